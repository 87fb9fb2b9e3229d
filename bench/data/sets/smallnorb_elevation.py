"""sNORB-Elevation: from how high up is a toy seen? One of VTAB's tasks (arXiv:1910.04867)."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.data import norb
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "smallnorb-elevation", 1, "photographs"
LICENCE, SOURCE, HOW_TO_GET = norb.LICENCE, norb.SOURCE, norb.HOW_TO_GET
DESCRIPTION = "96 px grey photographs of toys by their elevation, 9 classes, 24,300 + 12,150"
CLASSES = tuple(f"{30 + 5 * number}°" for number in range(9))
COLUMN = 1
STEP = 1

available = norb.available


def load(split: str, *, root: Path | None) -> ImageSet:
    return norb.image_set(sys.modules[__name__], split, root=root, column=COLUMN, step=STEP)
