"""Oxford Flowers 102: photographs of 102 kinds of flowers (Nilsback and Zisserman, 2008), by torchvision."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.data import named
from bench.data.formats._source import Source
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "flowers102", 1, "photographs"
LICENCE = "none stated; for research"
SOURCE = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102 (Visual Geometry Group, Oxford)"
HOW_TO_GET = (
    "Get 102flowers.tgz, imagelabels.mat and setid.mat from https://www.robots.ox.ac.uk/~vgg/data/flowers/102, "
    "put them into <data root>/flowers-102/ and unpack the first there (it makes the folder jpg)."
)
DESCRIPTION = "photographs of flowers, 102 classes, 2,040 (train and val) + 6,149"
SIDE, CHANNELS = 224, 3
OPTIONS = named.options(NAME, SIDE)


def available(root: Path | None) -> bool:
    return named.all_below(root, "flowers-102/jpg", "flowers-102/imagelabels.mat", "flowers-102/setid.mat")


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    return named.torchvision("Flowers102", root, *{"train": ("train", "val"), "test": ("test",)}[split])
