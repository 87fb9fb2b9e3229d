"""SVHN, cropped digits: 32 px colour photographs of house numbers, 10 classes (Netzer et al., 2011)."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np

from bench.core.errors import UserError
from bench.data import cache as _cache
from bench.data.image_set import ImageSet

REVISION = 1
KIND = "photographs"
LICENCE = "for non-commercial use"
SOURCE = "http://ufldl.stanford.edu/housenumbers (Stanford University)"
HOW_TO_GET = (
    "Put train_32x32.mat and test_32x32.mat from http://ufldl.stanford.edu/housenumbers into <data root>/svhn/."
)
DESCRIPTION = "32 px colour photographs of house numbers, 10 classes, 73,257 + 26,032"
MAX_BYTES = 4 << 30
NUMBERS = ("double", "single", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")


def available(root: Path | None) -> bool:
    return all(_file(root, split) for split in ("train", "test"))


def load(split: str, *, root: Path | None) -> ImageSet:
    path = _file(root, split)
    if path is None:
        raise UserError("Data set 'svhn' is not on this machine.", HOW_TO_GET)
    stored = _cache.arrays(f"svhn-{_cache.fingerprint((REVISION, split), [path])}", lambda: _read(path))
    return ImageSet(
        name="svhn",
        split=split,
        images_NHWC=stored["images"],
        labels_N=stored["labels"],
        class_names=tuple("0123456789"),
        kind=KIND,
        source="MATLAB files",
    )


def _file(root: Path | None, split: str) -> Path | None:
    paths = [root / name / f"{split}_32x32.mat" for name in ("svhn", "SVHN")] if root else []
    return next((path for path in paths if path.is_file()), None)


def _read(path: Path) -> dict[str, np.ndarray]:
    """`X` (32, 32, 3, N) and `y` (N, 1), where the label 10 is the digit 0."""
    from scipy.io import loadmat, whosmat

    try:
        promised = {name: (shape, kind) for name, shape, kind in whosmat(path)}
        for name in ("X", "y"):
            shape, kind = promised[name]
            if kind not in NUMBERS or prod(shape) > MAX_BYTES:
                raise UserError(f"{path}: {name} is {kind} of shape {shape}.", "Get the file again.")
        stored = loadmat(path, variable_names=["X", "y"])
        images_HWCN, labels_N = stored["X"], stored["y"].reshape(-1)
    except KeyError as error:
        raise UserError(f"{path} lacks {error}.", "It must hold X and y: the cropped digits, format 2.") from error
    except UserError:
        raise
    except Exception as error:  # a damaged file can fail in any way
        raise UserError(f"{path} cannot be read as a MATLAB file: {error}.", "Get the file again.") from error
    if images_HWCN.dtype != np.uint8 or images_HWCN.ndim != 4 or images_HWCN.shape[:3] != (32, 32, 3):
        raise UserError(f"{path}: X is {images_HWCN.dtype} of shape {images_HWCN.shape}.", "Expected (32, 32, 3, N).")
    if len(labels_N) != images_HWCN.shape[3] or not len(labels_N):
        raise UserError(f"{path} has {images_HWCN.shape[3]:,} images but {len(labels_N):,} labels.")
    labels_N = labels_N.astype(np.int64)
    if int(labels_N.min()) < 1 or int(labels_N.max()) > 10:
        raise UserError(f"{path} holds labels {labels_N.min()} to {labels_N.max()}.", "Expected 1 to 10.")
    return {"images": images_HWCN.transpose(3, 0, 1, 2), "labels": labels_N % 10}
