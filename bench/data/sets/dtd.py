"""Describable Textures (Cimpoi et al., 2014, arXiv:1311.3618), by torchvision; the first of its ten partitions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.data import named
from bench.data.formats._source import Source
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "dtd", 1, "photographs"
LICENCE = "none stated; for research"
SOURCE = "https://www.robots.ox.ac.uk/~vgg/data/dtd (Visual Geometry Group, Oxford)"
HOW_TO_GET = (
    "Unpack dtd-r1.0.1.tar.gz from https://www.robots.ox.ac.uk/~vgg/data/dtd into <data root>/dtd/ (so that "
    "<data root>/dtd/dtd/images is there)."
)
DESCRIPTION = "photographs of textures, 47 classes, 3,760 (train and val) + 1,880"
SIDE, CHANNELS = 224, 3
OPTIONS = named.options(NAME, SIDE)


def available(root: Path | None) -> bool:
    return named.all_below(root, "dtd/dtd/images", "dtd/dtd/labels")


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    return named.torchvision("DTD", root, *{"train": ("train", "val"), "test": ("test",)}[split])
