"""Data sets of tiles cut from the pictures in scikit-image; the class of a tile is the picture that it is from.
Training and test tiles come from different parts of each picture, so that no test tile has been seen in training.

Tiles are 28 px and do not overlap. `name:56px` cuts larger tiles at the same distance, which overlap within a split:
they show more than a network for 28 px sees, as photographs do for fine-tuning at a higher resolution.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from bench.core.errors import UserError
from bench.data import cache
from bench.data.data_set import DataSet
from bench.data.image_set import ImageSet
from bench.data.readable import in_package
from bench.study import registry

REVISION = 1
STEP = 28  # pixels from one tile to the next
TRAIN_SHARE = 2 / 3  # fraction of every picture's columns of tiles, from the left, that are training tiles
PLAIN = 2.0  # least standard deviation of a tile in grey levels; tiles that vary less show nothing and are left out


def data_set(name: str, description: str, *, files: Mapping[str, str], level: bool = False, **facts: Any) -> DataSet:
    """Return the description of a data set whose images are tiles cut from pictures.

    Args:
        files: class name -> file in scikit-image, the picture from which the tiles of the class are cut.
        level: give all tiles the same mean and contrast, so that only their texture is informative.
        facts: further attributes of the `DataSet`.
    """
    return DataSet(
        name=name,
        description=description,
        kind="photographs",
        source="https://scikit-image.org, skimage.data",
        how_to_get="Install the package scikit-image, or put its folder skimage/data into <data root>/scikit-image. "
        "It is part of the extra `data`.",
        options="name:56px cuts tiles of 56 px, or of any size from 8 to 128 px",
        split="the left two thirds of each picture are for training, the right third for testing",
        pinned="comes with a package",
        side=STEP,
        takes_side=True,
        classes=len(files),
        load=partial(_load, name, files, level),
        available=lambda root: folder_with(tuple(files.values()), root) is not None,
        look=lambda option, *, root: (_side(name, option), 1),
        **facts,
    )


def _side(name: str, option: str) -> int:
    """Return the pixels per side of a tile: 56 for the option "56px" of a set's name, STEP for "".

    Raises:
        UserError: the option is not a size, or is out of range.
    """
    match = re.fullmatch(r"(\d{1,3})px", option or f"{STEP}px")
    if match is None or not 8 <= (side := int(match.group(1))) <= 128:
        what = f"Data set {name!r} has no option {option!r}."
        raise UserError(what, f"{name}:56px cuts tiles of 56 px, or of any size from 8 to 128 px.")
    return side


def _load(
    name: str, files: Mapping[str, str], level: bool, split: str, *, root: Path | None, option: str = ""
) -> ImageSet:
    side, folder = _side(name, option), folder_with(tuple(files.values()), root)
    if folder is None:
        raise registry.load("data set", name).absent()
    paths = [folder / file for file in files.values()]
    rule = (REVISION, split, level, side, STEP, TRAIN_SHARE, PLAIN)
    build = partial(cut, paths, split, side=side, level=level)
    stored = cache.arrays(f"{name}-{split}-{cache.fingerprint(rule, paths)}", build)
    return ImageSet(
        name=f"{name}:{option}" if option else name,
        split=split,
        images_NHWC=stored["images"],
        labels_N=stored["labels"],
        class_names=tuple(files),
        kind="photographs",
        source="scikit-image",
    )


def folder_with(files: tuple[str, ...], root: Path | None) -> Path | None:
    """Return the folder that holds all of these files: "scikit-image" in the data root `root`, or else the installed
    package (which is not imported). None if neither holds them all."""
    folders = [root / "scikit-image" if root else None, in_package("skimage", "data")]
    return next((folder for folder in folders if folder and all((folder / file).is_file() for file in files)), None)


def cut(paths: Sequence[Path], split: str, *, side: int, level: bool) -> dict[str, np.ndarray]:
    """Cut one split of tiles. Return {"images": uint8 (N, side, side, 1), "labels": index of each tile's picture (N,)}.

    Args:
        split: "train" for the left two thirds of each picture, "test" for the right third; they share no pixel.
        side: pixels per side of a tile.
        level: give every tile the same mean and contrast, so that only its texture is informative.
    """
    tiles = [_tiles(_read(path), split, side) for path in paths]
    tiles = [_levelled(part) for part in tiles] if level else tiles
    labels = [np.full(len(part), label) for label, part in enumerate(tiles)]
    return {"images": np.concatenate(tiles)[..., None], "labels": np.concatenate(labels)}


def _read(path: Path) -> np.ndarray:
    """Read a picture as grey uint8 (H, W)."""
    try:
        with Image.open(path) as picture:
            return np.asarray(picture.convert("L"))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} cannot be read: {error}.", "Install the package scikit-image again.") from error


def _tiles(picture_HW: np.ndarray, split: str, side: int) -> np.ndarray:
    """Return the tiles of one split of a picture, uint8 (N, side, side), without those that show nothing (`PLAIN`).
    `split`: "train" or "test"; `side`: pixels per side of a tile."""
    height, width = picture_HW.shape
    border = round(width // STEP * TRAIN_SHARE) * STEP
    first, end = (0, border) if split == "train" else (border, width)
    tiles_NHW = np.stack(
        [
            picture_HW[top : top + side, left : left + side]
            for left in range(first, end - side + 1, STEP)
            for top in range(0, height - side + 1, STEP)
        ]
    )
    return tiles_NHW[tiles_NHW.std(axis=(1, 2)) >= PLAIN]


def _levelled(tiles_NHW: np.ndarray) -> np.ndarray:
    """Return the tiles, each scaled to a mean of 128 and a standard deviation of 48 grey levels, uint8 (N, side,
    side)."""
    mean_N11, std_N11 = (f(axis=(1, 2), keepdims=True) for f in (tiles_NHW.mean, tiles_NHW.std))
    return np.clip(np.rint(128 + 48 * (tiles_NHW - mean_N11) / std_N11), 0, 255).astype(np.uint8)
