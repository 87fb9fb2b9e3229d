"""Photo tiles: grey tiles of nine photographs; the class is the photograph that a tile is from."""

from __future__ import annotations

from bench.data.generated import tiles

FILES = {
    "astronaut": "astronaut.png",
    "brick": "brick.png",
    "camera man": "camera.png",
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "coins": "coins.png",
    "grass": "grass.png",
    "gravel": "gravel.png",
    "rocket": "rocket.jpg",
}
DATASET = tiles.data_set(
    "photo-tiles",
    "28 px grey tiles of nine photographs, 9 classes",
    images=(1_528, 744),
    licence="CC0 or public domain, as listed in skimage/data/_fetchers.py; coins: no known restrictions",
    files=FILES,
)
