"""CLEVR-Distance: how near is the nearest thing in a drawn scene? One of VTAB's tasks (arXiv:1910.04867)."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.data import clevr, named
from bench.data.formats._source import Source
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "clevr-distance", 1, "rendered"
LICENCE = "CC-BY-4.0"
SOURCE = "https://cs.stanford.edu/people/jcjohns/clevr (Stanford University and Facebook AI Research)"
HOW_TO_GET, DOWNLOADS = clevr.HOW_TO_GET, clevr.DOWNLOADS
DESCRIPTION = "drawn scenes by the distance of the nearest thing, 6 classes, 70,000 + 15,000"
SIDE, CHANNELS = 224, 3
OPTIONS = named.options(NAME, SIDE)
BOUNDS = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0)  # VTAB's, in the units of CLEVR's camera
CLASSES = tuple(f"{low:g} to {high:g}" for low, high in itertools.pairwise(BOUNDS))
available = clevr.available


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    return clevr.listed(split, root, label=label), CLASSES


def label(objects: Sequence[dict[str, Any]]) -> int:
    """Class of a scene with these things: the last bound that lies below the smallest depth (`pixel_coords`)."""
    nearest = min(float(thing["pixel_coords"][2]) for thing in objects)
    return max(place for place, bound in enumerate(BOUNDS) if bound < nearest)
