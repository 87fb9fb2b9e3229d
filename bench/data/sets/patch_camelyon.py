"""PatchCamelyon: is there a tumour in the middle of a piece of tissue? (Veeling et al., 2018, arXiv:1806.03962).

VTAB's `Camelyon`. Read by torchvision from the published HDF5 files; "train" is the training and the validation part.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.data import named
from bench.data.decode import Item
from bench.data.formats._source import Source
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "patch-camelyon", 1, "photographs"
LICENCE = "CC0-1.0"
SOURCE = "https://github.com/basveeling/pcam (Bas Veeling; from Camelyon16)"
HOW_TO_GET = (
    "Put the six files camelyonpatch_level_2_split_{train,valid,test}_{x,y}.h5, unpacked from the links at "
    "https://github.com/basveeling/pcam, into <data root>/pcam/; reading them needs the package h5py."
)
DESCRIPTION = "96 px microscope pictures of tissue, 2 classes, 294,912 (train and val) + 32,768"
SIDE, CHANNELS = 96, 3
OPTIONS = named.options(NAME, SIDE)
CLASSES = ("no tumour", "tumour")
PATTERN = "camelyonpatch_level_2_split_{}_{}.h5"


def available(root: Path | None) -> bool:
    names = (PATTERN.format(part, what) for part in ("train", "valid", "test") for what in "xy")
    return named.all_below(root, *(f"pcam/{name}" for name in names))


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    return named.joined(*(_part(root, part) for part in {"train": ("train", "val"), "test": ("test",)}[split])), CLASSES


def _part(root: Path, part: str) -> Source:
    from torchvision.datasets import PCAM

    data = PCAM(root, part)
    stem = {"val": "valid"}.get(part, part)
    paths = tuple(root / "pcam" / PATTERN.format(stem, what) for what in "xy")
    import h5py

    with h5py.File(paths[1]) as file:
        labels_N = np.asarray(file["y"], dtype=np.int64).reshape(-1)

    def read(row: int) -> Any:
        return np.asarray(data[row][0])

    def items() -> Iterator[Item]:
        for row, label in enumerate(labels_N.tolist()):
            yield Item(name=f"{paths[0].name}, image {row}", label=label, read=partial(read, row))

    return Source(items=items, labels_N=labels_N, files=paths)
