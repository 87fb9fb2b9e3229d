"""FGVC-Aircraft: photographs of 100 variants of aircraft (Maji et al., 2013, arXiv:1306.5151), by torchvision."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.data import named
from bench.data.formats._source import Source
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "aircraft", 1, "photographs"
LICENCE = "for non-commercial research"
SOURCE = "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft (Visual Geometry Group, Oxford)"
HOW_TO_GET = (
    "Unpack fgvc-aircraft-2013b.tar.gz from https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft into <data root>/."
)
DESCRIPTION = "photographs of aircraft, 100 classes, 6,667 + 3,333"
SIDE, CHANNELS = 224, 3
OPTIONS = named.options(NAME, SIDE)


def available(root: Path | None) -> bool:
    return named.all_below(root, "fgvc-aircraft-2013b/data/images")


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    return named.torchvision("FGVCAircraft", root, {"train": "trainval", "test": "test"}[split])
