"""dSprites-Location: where is the shape, from left to right? One of VTAB's tasks (arXiv:1910.04867)."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.data import dsprites
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "dsprites-location", 1, "rendered"
LICENCE, SOURCE, HOW_TO_GET = dsprites.LICENCE, dsprites.SOURCE, dsprites.HOW_TO_GET
DESCRIPTION = "64 px drawn shapes by their location, 16 classes, 663,552 + 73,728"
COLUMN, VALUES = 4, 32  # of `latents_classes`

available = dsprites.available


def load(split: str, *, root: Path | None) -> ImageSet:
    return dsprites.image_set(sys.modules[__name__], split, root=root, column=COLUMN, values=VALUES)
