"""Specimen tiles: grey tiles of medical, microscopic and astronomical pictures, all with the same mean and contrast.

There is one picture of each kind: the classes are kinds of pictures, not patients. If mean and contrast were not made
equal, brightness alone would give the class away.
"""

from __future__ import annotations

from bench.data.generated import tiles

FILES = {
    "cells": "cell.png",
    "galaxies": "hubble_deep_field.jpg",
    "tissue": "ihc.png",
    "moon": "moon.png",
    "retina": "retina.jpg",
}
DATASET = tiles.data_set(
    "specimen-tiles",
    "28 px grey tiles of medical, microscopic and astronomical pictures, 5 classes",
    level=True,
    images=(2_674, 1_134),
    licence="CC0 or public domain, as listed in skimage/data/_fetchers.py; tissue: no known restrictions",
    files=FILES,
)
