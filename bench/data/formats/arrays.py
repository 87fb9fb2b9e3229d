"""Reader of NumPy archives and IDX files, which hold decoded pixels.

An archive per split (train.npz, test.npz with `images` and `labels`), or one for both (`train_images`, `train_labels`,
`test_images`, `test_labels`, as MedMNIST has them; or `x_train`, `y_train`, …, as Keras has them).
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench.core.errors import UserError
from bench.data import cache
from bench.data.idx import find_pair, read_idx_pair
from bench.data.source import MAX_BYTES, FolderContents, Source, by_split, found, pixels

NAME = "NumPy arrays"
PAIRS = (("{}_images", "{}_labels"), ("x_{}", "y_{}"), ("{}_x", "{}_y"))
EXPECTED = "Expected images and labels, or train_images, train_labels, test_images and test_labels."
AT_ONCE = 16 << 20  # bytes that are unpacked at a time


def recognises(names: set[str]) -> bool:
    return any(name.endswith(".npz") or "idx3-ubyte" in name for name in names)


def find(folder: Path) -> FolderContents:
    """Return the images in the NumPy archives of `folder`, or in its IDX files if it has no archive.

    Raises:
        UserError: a file is damaged or holds Python objects; arrays are not of the kinds and shapes of images and
            labels (`bench.data.source.pixels`); or labels are out of range.
    """
    paths = sorted(folder.glob("*.npz"))
    if not paths:
        return _idx(folder)
    groups = by_split(paths, below=folder)
    sources = _both(paths[0]) if len(paths) == 1 else {}
    return found(sources or {split: _single(paths, folder) for split, paths in groups.items()}, folder, format=NAME)


def _idx(folder: Path) -> FolderContents:
    sources = {}
    for split in ("train", "test"):
        pair = find_pair([folder], split)
        if pair is None:
            raise UserError(f"{folder} lacks the IDX files of the {split} split.", "Four files belong together.")
        sources[split] = pixels(*read_idx_pair(*pair, num_classes=256), files=pair)
    return found(sources, folder, format="IDX files")


def _both(path: Path) -> dict[str, Source]:
    """Return both splits of one archive, by split; an empty dict if its arrays have other names than those in
    `PAIRS`."""
    with guarded(path), zipfile.ZipFile(path) as archive:
        names = {name.removesuffix(".npy") for name in archive.namelist()}
    for words in PAIRS:
        keys = {split: [word.format(split) for word in words] for split in ("train", "test")}
        if all(key in names for pair in keys.values() for key in pair):
            stored = read_npz(path, [key for pair in keys.values() for key in pair])
            return {split: pixels(stored[x], stored[y], files=(path,)) for split, (x, y) in keys.items()}
    return {}


def _single(paths: list[Path], folder: Path) -> Source:
    if len(paths) > 1:
        raise UserError(f"{folder} has several archives for one split.", "Name them train.npz and test.npz.")
    stored = read_npz(paths[0], ["images", "labels"])
    return pixels(stored["images"], stored["labels"], files=(paths[0],))


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Turn any exception that a damaged archive causes in the block into a UserError that names the archive, `path`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # damaged archives raise errors of many kinds
        what = f"{path} cannot be read as a NumPy archive: {error}."
        raise UserError(what, "It must hold plain arrays, no Python objects.") from error


def read_npz(path: Path, keys: list[str]) -> dict[str, np.ndarray]:
    """Return the arrays named `keys` of an archive, by name. They are unpacked in pieces, large ones into a file
    instead of memory.

    Raises:
        UserError: the archive is damaged, lacks one of the arrays, or they have more than MAX_BYTES together.
    """
    with guarded(path), zipfile.ZipFile(path) as archive:
        sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
        for key in keys:
            if key not in sizes:
                raise UserError(f"{path} lacks {key!r}; it holds {', '.join(sorted(sizes)[:10])}.", EXPECTED)
        if (total := sum(sizes[key] for key in keys)) > MAX_BYTES:
            raise UserError(f"{path} promises {total:,} bytes.", f"At most {MAX_BYTES:,} are read.")
        arrays = {}
        for key in keys:
            shape, dtype, by_column, pieces = unpacked(archive, key)
            array, done = cache.scratch((math.prod(shape),), dtype=dtype), 0
            for piece in pieces:
                array[done : done + len(piece)] = piece
                done += len(piece)
            arrays[key] = array.reshape(shape, order="F" if by_column else "C")
        return arrays


def unpacked(archive: zipfile.ZipFile, key: str) -> tuple[tuple[int, ...], np.dtype[Any], bool, Iterator[np.ndarray]]:
    """Return (shape, dtype, whether it is stored in column-major order, iterator over its elements in flat pieces) of
    the array named `key` in an archive.

    Raises:
        ValueError: the array holds Python objects, has fewer bytes than its header states, or is damaged.
    """
    info = archive.getinfo(f"{key}.npy")
    file = archive.open(info)
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_column, dtype = read_header(file)
    size = math.prod(shape) * dtype.itemsize
    if dtype.hasobject:
        raise ValueError(f"{key} holds Python objects")
    if size > info.file_size:
        raise ValueError(f"{key} is cut short: {info.file_size:,} bytes for {dtype} of shape {shape}")

    def pieces() -> Iterator[np.ndarray]:
        left, at_once = size, max(dtype.itemsize, AT_ONCE // dtype.itemsize * dtype.itemsize)
        while left:
            data = file.read(min(left, at_once))
            if len(data) < min(left, at_once):
                raise ValueError(f"{key} is cut short")
            left -= len(data)
            yield np.frombuffer(data, dtype=dtype)

    return shape, dtype, by_column, pieces()
