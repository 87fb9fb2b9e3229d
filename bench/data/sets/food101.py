"""Food-101: photographs of dishes (Bossard et al., 2014), by torchvision."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.data import named
from bench.data.formats._source import Source
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "food101", 1, "photographs"
LICENCE = "none stated; for research"
SOURCE = "https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101 (ETH Zurich)"
HOW_TO_GET = "Unpack food-101.tar.gz from https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101 into <data root>/."
DESCRIPTION = "photographs of dishes, 101 classes, 75,750 + 25,250"
SIDE, CHANNELS = 224, 3
OPTIONS = named.options(NAME, SIDE)


def available(root: Path | None) -> bool:
    return named.all_below(root, "food-101/images", "food-101/meta")


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    return named.torchvision("Food101", root, split)
