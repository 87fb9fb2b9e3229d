"""NWPU-RESISC45: aerial pictures of 45 kinds of scenes (Cheng et al., 2017, arXiv:1703.00121).

No split is published. As in VTAB four fifths are for training (60 % and, for validation, 20 %); which images follows a
hash of the name.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.data import named
from bench.data.formats._source import Source
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "resisc45", 1, "photographs"
LICENCE = "none stated; for research"
SOURCE = "https://gcheng-nwpu.github.io (Northwestern Polytechnical University)"
HOW_TO_GET = (
    "Unpack NWPU-RESISC45.rar (linked at https://gcheng-nwpu.github.io) into <data root>/resisc45/ (so that "
    "<data root>/resisc45/NWPU-RESISC45/airplane is there)."
)
DESCRIPTION = "256 px aerial pictures, 45 classes, 25,200 + 6,300"
SIDE, CHANNELS = 224, 3
OPTIONS = named.options(NAME, SIDE)


def available(root: Path | None) -> bool:
    return named.all_below(root, "resisc45/NWPU-RESISC45")


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    paths, labels, names = named.class_folders(root / "resisc45" / "NWPU-RESISC45")
    return named.part_of(paths, labels, keep=named.last_fifth(split)), names
