"""CLEVR-Count: how many things are in a drawn scene, 3 to 10. One of VTAB's tasks (arXiv:1910.04867)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.data import clevr, named
from bench.data.formats._source import Source
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "clevr-count", 1, "rendered"
LICENCE = "CC-BY-4.0"
SOURCE = "https://cs.stanford.edu/people/jcjohns/clevr (Stanford University and Facebook AI Research)"
HOW_TO_GET, DOWNLOADS = clevr.HOW_TO_GET, clevr.DOWNLOADS
DESCRIPTION = "drawn scenes by their number of things, 8 classes, 70,000 + 15,000"
SIDE, CHANNELS = 224, 3
OPTIONS = named.options(NAME, SIDE)
FEWEST, MOST = 3, 10
CLASSES = tuple(str(count) for count in range(FEWEST, MOST + 1))
available = clevr.available


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    return clevr.listed(split, root, label=label), CLASSES


def label(objects: Sequence[dict[str, Any]]) -> int:
    """Class of a scene with these things; VTAB's `count_all` less 3."""
    return len(objects) - FEWEST
