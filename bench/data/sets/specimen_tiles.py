"""What was this 28 px tile taken of, by special equipment? A retina, stained tissue, cells, the moon, galaxies.

Five pictures that scikit-image carries, in grey: one of each, so the set tells kinds of pictures apart, not patients.
All tiles have the same mean and contrast: brightness alone would give the answer.
"""

from __future__ import annotations

from pathlib import Path

from bench.data.generated import tiles
from bench.data.image_set import ImageSet

REVISION = 1
KIND = "photographs"
LICENCE = "CC0 or public domain, each said in skimage/data/_fetchers.py; tissue: no known restrictions"
SOURCE = "https://scikit-image.org, skimage.data"
HOW_TO_GET = tiles.HOW_TO_GET
OPTIONS = tiles.OPTIONS
DESCRIPTION = "28 px grey tiles of medical, microscopic and astronomical pictures, 5 classes"

FILES = {
    "cells": "cell.png", "galaxies": "hubble_deep_field.jpg", "tissue": "ihc.png", "moon": "moon.png",
    "retina": "retina.jpg",
}  # fmt: skip


def available(root: Path | None) -> bool:
    return tiles.folder_with(tuple(FILES.values()), root) is not None


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return tiles.image_set(
        "specimen-tiles", split, files=FILES, kind=KIND, revision=REVISION, root=root, option=option, level=True
    )
