"""Which photograph is this 28 px tile from? Nine photographs that scikit-image carries, in grey."""

from __future__ import annotations

from pathlib import Path

from bench.data.generated import tiles
from bench.data.image_set import ImageSet

REVISION = 1
KIND = "photographs"
LICENCE = "CC0 or public domain, each said in skimage/data/_fetchers.py; coins: no known restrictions"
SOURCE = "https://scikit-image.org, skimage.data"
HOW_TO_GET = tiles.HOW_TO_GET
OPTIONS = tiles.OPTIONS
DESCRIPTION = "28 px grey tiles of nine photographs, 9 classes"

FILES = {
    "astronaut": "astronaut.png", "brick": "brick.png", "camera man": "camera.png", "cat": "chelsea.png",
    "coffee": "coffee.png", "coins": "coins.png", "grass": "grass.png", "gravel": "gravel.png", "rocket": "rocket.jpg",
}  # fmt: skip


def available(root: Path | None) -> bool:
    return tiles.folder_with(tuple(FILES.values()), root) is not None


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return tiles.image_set(
        "photo-tiles", split, files=FILES, kind=KIND, revision=REVISION, root=root, option=option
    )
