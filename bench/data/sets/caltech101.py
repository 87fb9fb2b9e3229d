"""Caltech-101: photographs of 101 kinds of things and a class of clutter (Fei-Fei et al., 2004).

The protocol: 30 images of every class are for training, the others for testing; which 30 follows a hash of the name.
VTAB counts the clutter (BACKGROUND_Google) as a class, so there are 102. torchvision's class leaves it out, so the
folders are read here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.data import named
from bench.data.formats._source import Source
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "caltech101", 1, "photographs"
LICENCE = "CC-BY-4.0"
SOURCE = "https://data.caltech.edu/records/mzrjq-6wc02 (California Institute of Technology)"
HOW_TO_GET = (
    "Unpack caltech-101.zip from https://data.caltech.edu/records/mzrjq-6wc02 and the 101_ObjectCategories.tar.gz "
    "in it into <data root>/caltech101/ (so that <data root>/caltech101/101_ObjectCategories is there)."
)
DESCRIPTION = "photographs of things, 102 classes, 3,060 + 6,084"
SIDE, CHANNELS = 224, 3
OPTIONS = named.options(NAME, SIDE)
PER_CLASS = 30


def available(root: Path | None) -> bool:
    return named.all_below(root, "caltech101/101_ObjectCategories")


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    paths, labels, names = named.class_folders(root / "caltech101" / "101_ObjectCategories")
    return named.part_of(paths, labels, keep=lambda rank, _: (rank < PER_CLASS) == (split == "train")), names
