"""dSprites (Matthey et al., 2017): all 737,280 pictures of a shape by scale, turn and place, for VTAB's two tasks.

Read in pieces from the published NumPy archive, whose pictures are zeros and ones; here they are 0 and 255, as in VTAB.
The last tenth in a fixed random order is for testing; VTAB divides 80/10/10, "train" is the first two.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from bench.core.errors import UserError
from bench.data import cache as _cache
from bench.data import named
from bench.data.decode import Progress
from bench.data.image_set import ImageSet
from bench.data.subset import mix

FILE = "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
LICENCE = "Apache-2.0"
SOURCE = "https://github.com/google-deepmind/dsprites-dataset (DeepMind)"
HOW_TO_GET = f"Put {FILE} from https://github.com/google-deepmind/dsprites-dataset into <data root>/dsprites/."
SIDE, AT_ONCE = 64, 4096
BINS = 16


def available(root: Path | None) -> bool:
    return named.all_below(root, f"dsprites/{FILE}")


def image_set(about: ModuleType | Any, split: str, *, root: Path | None, column: int, values: int) -> ImageSet:
    """One split, labelled by a latent class in `BINS` bins.

    Args:
        about: the set's module.
        column: of `latents_classes`: colour, shape, scale, orientation, x, y.
        values: how many the column has.
    """
    if root is None or not available(root):
        raise named.absent(about)
    path = root / "dsprites" / FILE
    try:
        stored = _cache.arrays(
            f"{about.NAME}-{_cache.fingerprint((about.NAME, about.REVISION, split), [path])}",
            partial(_build, path, split, column=column, values=values),
        )
    except UserError:
        raise
    except Exception as error:  # a damaged archive can fail in any way
        raise UserError(f"{path} cannot be read: {error}.", "Get the file again. " + HOW_TO_GET) from error
    return ImageSet(
        name=about.NAME,
        split=split,
        images_NHWC=stored["images"],
        labels_N=stored["labels"],
        class_names=tuple(str(number) for number in range(BINS)),
        kind=about.KIND,
        source="published file",
    )


def binned(classes_N: np.ndarray, values: int) -> np.ndarray:
    """VTAB's bins: floor(class / (values / BINS))."""
    return (classes_N * BINS // values).astype(np.int64)


def for_testing(count: int) -> np.ndarray:
    """Which pictures are for testing: a tenth, by their place in the file."""
    order_N = np.argsort(mix(np.arange(count, dtype=np.uint64), "dsprites/split"), kind="stable")
    chosen_N = np.zeros(count, dtype=bool)
    chosen_N[order_N[: count // 10]] = True
    return chosen_N


def _build(path: Path, split: str, *, column: int, values: int) -> dict[str, np.ndarray | _cache.Chunks]:
    with np.load(path, allow_pickle=False) as archive:
        classes_NF = archive["latents_classes"]
    if classes_NF.ndim != 2 or classes_NF.shape[1] != 6 or classes_NF[:, column].max() != values - 1:
        raise UserError(f"{path} holds other latents than dSprites.", HOW_TO_GET)
    kept_N = for_testing(len(classes_NF)) == (split == "test")
    images = _cache.Chunks(
        shape=(int(kept_N.sum()), SIDE, SIDE, 1), dtype="uint8", make=partial(_images, path, kept_N, split)
    )
    return {"images": images, "labels": binned(classes_NF[kept_N, column], values)}


def _images(path: Path, kept_N: np.ndarray, split: str) -> Iterator[np.ndarray]:
    """The pictures that are kept, in the file's order; 3 GB of them are never in memory together."""
    progress = Progress(f"unpacking dSprites, {split}", len(kept_N))
    with zipfile.ZipFile(path) as archive, archive.open("imgs.npy") as file:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = reader(file)
        if shape != (len(kept_N), SIDE, SIDE) or dtype != np.uint8 or fortran:
            raise UserError(f"{path}: the pictures are {dtype} of shape {shape}.", "Get the file again.")
        for start in range(0, len(kept_N), AT_ONCE):
            count = min(AT_ONCE, len(kept_N) - start)
            data = file.read(count * SIDE * SIDE)
            if len(data) < count * SIDE * SIDE:
                raise UserError(f"{path} is cut short.", "Get the file again.")
            pixels_NHW = np.frombuffer(data, dtype=np.uint8).reshape(count, SIDE, SIDE)
            yield pixels_NHW[kept_N[start : start + count], ..., None] * np.uint8(255)
            progress.step(count)
