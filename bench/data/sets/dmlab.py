"""DMLab: how far is which kind of thing in a maze? One of VTAB's tasks (arXiv:1910.04867), from its TFRecords."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from bench.core.errors import UserError
from bench.data import named
from bench.data.decode import Item
from bench.data.formats._source import Source, read_bytes
from bench.data.formats.tfrecord import Record, example, records
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "dmlab", 1, "rendered"
LICENCE = "Apache-2.0"
SOURCE = "https://github.com/google-research/task_adaptation (Google)"
HOW_TO_GET = (
    "Unpack dmlab.tar.gz of https://github.com/google-research/task_adaptation (the archive that TensorFlow Datasets "
    "gets for `dmlab`) into <data root>/dmlab/: dmlab-train.tfrecord, dmlab-validation.tfrecord, dmlab-test.tfrecord."
)
DESCRIPTION = "rendered views of mazes, 6 classes, 88,178 (train and val) + 22,735"
SIDE, CHANNELS = 224, 3
OPTIONS = named.options(NAME, SIDE)
CLASSES = tuple("012345")  # what and how far: two kinds at three distances; the files name none
PARTS = {"train": ("train", "validation"), "test": ("test",)}


def available(root: Path | None) -> bool:
    return named.all_below(root, *(f"dmlab/dmlab-{part}.tfrecord" for parts in PARTS.values() for part in parts))


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    return named.joined(*(_part(root / "dmlab" / f"dmlab-{part}.tfrecord") for part in PARTS[split])), CLASSES


def _part(path: Path) -> Source:
    places = list(records(path))
    labels = [_label(path, place) for place in places]

    def items() -> Iterator[Item]:
        for number, (place, label) in enumerate(zip(places, labels, strict=True)):
            yield Item(name=f"{path.name}, record {number}", label=label, read=partial(_image, path, place))

    return Source(items=items, labels_N=np.array(labels, dtype=np.int64), files=(path,))


def _label(path: Path, place: Record) -> int:
    label = example(read_bytes(path, place.offset, place.size))["label"][0]
    if not isinstance(label, int) or not 0 <= label < len(CLASSES):
        what = f"{path}: {label!r} at byte {place.offset:,} is no label."
        raise UserError(what, f"Labels are 0 to {len(CLASSES) - 1}.")
    return label


def _image(path: Path, place: Record) -> bytes:
    image = example(read_bytes(path, place.offset, place.size))["image"][0]
    if not isinstance(image, bytes):
        raise OSError("the record holds no encoded image")
    return image
