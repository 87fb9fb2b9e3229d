"""Tiles of the pictures that scikit-image carries: which picture is a tile from? Training and test tiles come from
different parts of each picture, so that nothing is recognised by having been seen.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from bench.data import _cache
from bench.data.images import ImageSet
from bench.errors import UserError

SIZE = 28
TRAIN_SHARE = 2 / 3  # of every picture's columns of tiles, from the left
PLAIN = 2.0  # grey levels: a tile that varies less shows nothing
HOW_TO_GET = (
    "Install the package scikit-image, or put its folder skimage/data into <data root>/scikit-image. "
    "It is part of the extra `data`."
)


def image_set(
    name: str, split: str, *, files: Mapping[str, str], kind: str, revision: int, root: Path | None, level: bool = False
) -> ImageSet:
    """Grey tiles of 28 px that do not overlap, the left two thirds of each picture to train, the right third to test.

    Args:
        files: class name -> file of scikit-image.
        level: give every tile the same mean and contrast, so that only its texture tells.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    folder = folder_with(tuple(files.values()), root)
    if folder is None:
        raise UserError(f"Data set {name!r} is not on this machine.", HOW_TO_GET)
    paths = [folder / file for file in files.values()]

    def build() -> dict[str, np.ndarray]:
        tiles = [_tiles(_read(path), split) for path in paths]
        tiles = [_levelled(part) for part in tiles] if level else tiles
        labels = [np.full(len(part), label) for label, part in enumerate(tiles)]
        return {"images": np.concatenate(tiles)[..., None], "labels": np.concatenate(labels)}

    key = _cache.fingerprint((revision, split, level, SIZE, TRAIN_SHARE, PLAIN), paths)
    stored = _cache.arrays(f"{name}-{split}-{key}", build)
    return ImageSet(
        name=name,
        split=split,
        images_NHWC=stored["images"],
        labels_N=stored["labels"],
        class_names=tuple(files),
        kind=kind,
        source="scikit-image",
    )


def folder_with(files: tuple[str, ...], root: Path | None) -> Path | None:
    """The folder that holds all of these files: below the data root, or in scikit-image (which is not imported)."""
    folders = [root / "scikit-image"] if root is not None else []
    found = importlib.util.find_spec("skimage")
    if found is not None and found.submodule_search_locations:
        folders.append(Path(found.submodule_search_locations[0]) / "data")
    return next((folder for folder in folders if all((folder / file).is_file() for file in files)), None)


def _read(path: Path) -> np.ndarray:
    """uint8 grey picture (H, W)."""
    try:
        with Image.open(path) as picture:
            return np.asarray(picture.convert("L"))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} cannot be read: {error}.", "Install the package scikit-image again.") from error


def _tiles(picture_HW: np.ndarray, split: str) -> np.ndarray:
    """uint8 tiles (N, 28, 28) of one split, those that show nothing left out."""
    rows, columns = (side // SIZE for side in picture_HW.shape)
    border = round(columns * TRAIN_SHARE)
    chosen = range(border) if split == "train" else range(border, columns)
    tiles_NHW = np.stack(
        [picture_HW[r * SIZE : (r + 1) * SIZE, c * SIZE : (c + 1) * SIZE] for c in chosen for r in range(rows)]
    )
    return tiles_NHW[tiles_NHW.std(axis=(1, 2)) >= PLAIN]


def _levelled(tiles_NHW: np.ndarray) -> np.ndarray:
    """The tiles at mean 128 and a standard deviation of 48 grey levels."""
    mean_N11, std_N11 = (f(axis=(1, 2), keepdims=True) for f in (tiles_NHW.mean, tiles_NHW.std))
    return np.clip(np.rint(128 + 48 * (tiles_NHW - mean_N11) / std_N11), 0, 255).astype(np.uint8)
