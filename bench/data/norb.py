"""Small NORB (LeCun et al., 2004): 96 px grey photographs of toys from all sides, for VTAB's two tasks.

The left pictures of the published pairs. VTAB judges on the second half of the published test part (five toys of each
kind that the training part has not), in the order of the file; "train" is the published training part.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from functools import partial
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from bench.core.errors import UserError
from bench.data import cache as _cache
from bench.data import named
from bench.data.image_set import ImageSet

LICENCE = "for research"
SOURCE = "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small (New York University)"
STEMS = {"train": "smallnorb-5x46789x9x18x6x2x96x96-training", "test": "smallnorb-5x01235x9x18x6x2x96x96-testing"}
HOW_TO_GET = (
    f"Put {STEMS['train']}-dat.mat.gz, -info.mat.gz and {STEMS['test']}-dat.mat.gz, -info.mat.gz from "
    "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small into <data root>/smallnorb/."
)
DTYPES: dict[int, np.dtype[Any]] = {0x1E3D4C55: np.dtype("uint8"), 0x1E3D4C54: np.dtype("<i4")}
MAX_BYTES = 2 << 30


def available(root: Path | None) -> bool:
    return all(_path(root, stem, what) is not None for stem in STEMS.values() for what in ("dat", "info"))


def image_set(about: ModuleType | Any, split: str, *, root: Path | None, column: int, step: int) -> ImageSet:
    """One split, labelled by a column of the information file divided by `step`.

    Args:
        about: the set's module, with CLASSES.
        column: instance, elevation, azimuth, lighting.
    """
    images, information = (_path(root, STEMS[split], what) for what in ("dat", "info"))
    if images is None or information is None:
        raise named.absent(about)
    key = f"smallnorb-{_cache.fingerprint(('smallnorb', about.REVISION, split), [images, information])}"
    stored = _cache.arrays(key, partial(_build, images, information, split))
    labels_N = np.asarray(stored["information"][:, column] // step, dtype=np.int64)
    if int(labels_N.min()) < 0 or int(labels_N.max()) >= len(about.CLASSES):
        raise UserError(f"{information} holds {labels_N.max() * step} in column {column}.", "Get the file again.")
    return ImageSet(
        name=about.NAME,
        split=split,
        images_NHWC=stored["images"],
        labels_N=labels_N,
        class_names=about.CLASSES,
        kind=about.KIND,
        source="published files",
    )


def _path(root: Path | None, stem: str, what: str) -> Path | None:
    names = [root / "smallnorb" / f"{stem}-{what}.mat{ending}" for ending in (".gz", "")] if root else []
    return next((path for path in names if path.is_file()), None)


def _build(images: Path, information: Path, split: str) -> dict[str, np.ndarray]:
    pairs, facts_NF = read_matrix(images, dimensions=4), read_matrix(information, dimensions=2)
    if len(pairs) != len(facts_NF) or pairs.shape[1] != 2 or facts_NF.shape[1] != 4:
        raise UserError(f"{images} has shape {pairs.shape}, {information} {facts_NF.shape}.", "Get the files again.")
    first = len(pairs) // 2 if split == "test" else 0
    return {"images": pairs[first:, 0, :, :, None], "information": facts_NF[first:]}


def read_matrix(path: Path, *, dimensions: int) -> np.ndarray:
    """A matrix of NORB's own binary format: magic number, number of dimensions, at least three sizes, the values.

    Raises:
        UserError: it is another kind of file, or cut short.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            magic, count = struct.unpack("<ii", file.read(8))
            if magic not in DTYPES or count != dimensions:
                raise UserError(f"{path} is no matrix of {dimensions} dimensions (magic {magic:#x}).", HOW_TO_GET)
            sizes = struct.unpack(f"<{max(3, count)}i", file.read(4 * max(3, count)))[:count]
            size = prod(sizes) * DTYPES[magic].itemsize
            if min(sizes) < 1 or size > MAX_BYTES:
                raise UserError(f"{path} promises a matrix of shape {sizes}.", "Get the file again.")
            data = file.read(size + 1)
    except (OSError, EOFError, struct.error, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}.", "Get the file again.") from error
    if len(data) != size:
        raise UserError(f"{path} promises {size:,} bytes of values and holds {len(data):,}.", "Get the file again.")
    return np.frombuffer(data, dtype=DTYPES[magic]).reshape(sizes)
