"""sNORB-Azimuth: from which side is a toy seen? One of VTAB's tasks (arXiv:1910.04867)."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.data import norb
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "smallnorb-azimuth", 1, "photographs"
LICENCE, SOURCE, HOW_TO_GET = norb.LICENCE, norb.SOURCE, norb.HOW_TO_GET
DESCRIPTION = "96 px grey photographs of toys by their azimuth, 18 classes, 24,300 + 12,150"
CLASSES = tuple(f"{20 * number}°" for number in range(18))
COLUMN = 2
STEP = 2  # azimuths are even, 0 to 34: tens of degrees

available = norb.available


def load(split: str, *, root: Path | None) -> ImageSet:
    return norb.image_set(sys.modules[__name__], split, root=root, column=COLUMN, step=STEP)
