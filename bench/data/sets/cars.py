"""Stanford Cars: photographs of 196 makes and models (Krause et al., 2013), by torchvision."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.data import named
from bench.data.formats._source import Source
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "cars", 1, "photographs"
LICENCE = "none stated; for research"
SOURCE = "https://ai.stanford.edu/~jkrause/cars/car_dataset.html (Stanford University; no longer served there)"
HOW_TO_GET = "Put cars_train/, cars_test/, devkit/ and cars_test_annos_withlabels.mat into <data root>/stanford_cars/."
DESCRIPTION = "photographs of cars, 196 classes, 8,144 + 8,041"
SIDE, CHANNELS = 224, 3
OPTIONS = named.options(NAME, SIDE)


def available(root: Path | None) -> bool:
    needed = ("cars_train", "cars_test", "devkit", "cars_test_annos_withlabels.mat")
    return named.all_below(root, *(f"stanford_cars/{name}" for name in needed))


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    return named.torchvision("StanfordCars", root, split)
