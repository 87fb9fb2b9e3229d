"""Reader of IDX files, the format of MNIST and its relatives (http://yann.lecun.com/exdb/mnist), plain or gzipped.

torchvision's reader is not used, because it imports torch and reads only plain files in its own folders. Here the files
may lie anywhere, for example where Debian's packages put them.
"""

from __future__ import annotations

import gzip
import itertools
import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.core.errors import UserError

MAX_BYTES = 4 << 30  # a file whose header states more bytes than this is taken to be damaged, not large
UNSIGNED_BYTE = 0x08


def read_idx(path: Path, *, dimensions: int) -> np.ndarray:
    """Return the uint8 array in an IDX file.

    Args:
        path: the file, gzipped if its name ends in ".gz".
        dimensions: 3 for images (N, H, W), 1 for labels (N).

    Raises:
        UserError: the file is not IDX, is not of unsigned bytes, has other dimensions, or is cut short or too long.
    """
    expected = f"An IDX file of unsigned bytes with {dimensions} dimension{'s' if dimensions > 1 else ''} was expected."
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            header = file.read(4)
            if len(header) < 4 or header[:2] != b"\0\0":
                raise UserError(f"{path} is not an IDX file (magic number {header.hex() or 'missing'}).", expected)
            if header[2] != UNSIGNED_BYTE or header[3] != dimensions:
                raise UserError(f"{path} is IDX of type 0x{header[2]:02x} with {header[3]} dimensions.", expected)
            sizes = file.read(4 * dimensions)
            if len(sizes) < 4 * dimensions:
                raise UserError(f"{path} ends inside its header.", "Get the file again.")
            shape = struct.unpack(f">{dimensions}I", sizes)
            if (count := math.prod(shape)) > MAX_BYTES:
                raise UserError(f"{path} promises an array of shape {shape}, {count:,} bytes.", "Get the file again.")
            body = file.read(count + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}.", "Get the file again.") from error
    if len(body) != count:
        held = "more" if len(body) > count else f"only {len(body):,}"
        raise UserError(f"{path} promises {count:,} bytes of data but holds {held}.", "Get the file again.")
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


def read_idx_pair(images: Path, labels: Path, *, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Read the IDX files of a split's images and labels; return (uint8 images_NHWC with one channel, int64 labels_N
    from 0).

    Raises:
        UserError: a file cannot be read (see `read_idx`), the counts differ, there are no images, or a label is not
            below `num_classes`.
    """
    images_NHW = read_idx(images, dimensions=3)
    labels_N = read_idx(labels, dimensions=1).astype(np.int64)
    if len(images_NHW) != len(labels_N):
        raise UserError(
            f"{images} has {len(images_NHW):,} images but {labels} has {len(labels_N):,} labels.",
            "Both must come from the same split of the same data set.",
        )
    if images_NHW.size == 0:
        raise UserError(f"{images} holds no images.", "Get the file again.")
    wrong = labels_N[(labels_N < 0) | (labels_N >= num_classes)]
    if len(wrong):
        what = f"{labels} holds label {wrong[0]}; the data set has classes 0 to {num_classes - 1}."
        raise UserError(what, "Is this the label file of another data set?")
    return images_NHW[..., None], labels_N


def read_full_set(folders: list[Path], split: str, *, num_classes: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return (images_NHWC, labels_N) of a split, "train" or "test", from the first of the folders that has its files;
    None unless both splits are there, so that a split of the full set is never used beside one of a smaller copy."""
    pairs = {part: find_pair(folders, part) for part in ("train", "test")}
    return read_idx_pair(*pair, num_classes=num_classes) if (pair := pairs[split]) and all(pairs.values()) else None


def find_pair(folders: list[Path], split: str) -> tuple[Path, Path] | None:
    """Return the (images, labels) files of a split, "train" or "test", in the first folder that has both under their
    usual names; None if no folder has."""
    for folder in folders:
        for images, labels in names_of_pair({"train": "train", "test": "t10k"}[split]):
            if (folder / images).is_file() and (folder / labels).is_file():
                return folder / images, folder / labels
    return None


def names_of_pair(stem: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of names (images, labels) that the files of a split may have, plain or gzipped. `stem`: the word
    for the split, "train" (train-images-idx3-ubyte.gz, …) or "t10k" for the test split."""
    kinds = ("images{}idx3-ubyte{}", "labels{}idx1-ubyte{}")
    endings = [[kind.format(dot, end) for dot in "-." for end in (".gz", "")] for kind in kinds]
    for images, labels in itertools.product(*endings):
        yield f"{stem}-{images}", f"{stem}-{labels}"
