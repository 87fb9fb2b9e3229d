"""NumPy archives and IDX pairs: images that are pixels already.

An archive per split (train.npz, test.npz with `images` and `labels`), or one for both (`train_images`, `train_labels`,
`test_images`, `test_labels`, as MedMNIST has them; or `x_train`, `y_train`, …, as Keras has them).
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from bench.core.errors import UserError
from bench.data.decode import Item
from bench.data.formats._source import MAX_BYTES, Found, Source, by_split, class_names_of, names_beside
from bench.data.idx import find_pair, read_idx_pair

NAME = "NumPy arrays"
PAIRS = (("{}_images", "{}_labels"), ("x_{}", "y_{}"), ("{}_x", "{}_y"))
EXPECTED = "Expected images and labels, or train_images, train_labels, test_images and test_labels."


def recognises(names: set[str]) -> bool:
    return any(name.endswith(".npz") or "idx3-ubyte" in name for name in names)


def find(folder: Path) -> Found:
    """The archive or archives in `folder`, else its IDX files.

    Raises:
        UserError: damaged files, Python objects in them, arrays of another kind or shape, labels out of range.
    """
    paths = sorted(folder.glob("*.npz"))
    if not paths:
        return _idx(folder)
    sources: dict[str, Source] = {}
    if len(paths) == 1 and (both := _both(paths[0])):
        sources = both
    else:
        for split, files in by_split(paths, below=folder).items():
            sources[split] = _single(files, folder)
    return _found(sources, folder, NAME)


def _idx(folder: Path) -> Found:
    pairs = {split: find_pair([folder], split) for split in ("train", "test")}
    sources = {}
    for split, pair in pairs.items():
        if pair is None:
            raise UserError(f"{folder} lacks the IDX files of the {split} split.", "Four files belong together.")
        images_NHWC, labels_N = read_idx_pair(*pair, num_classes=256)
        sources[split] = source_of(images_NHWC, labels_N, files=pair, where=pair[0])
    return _found(sources, folder, "IDX files")


def _found(sources: dict[str, Source], folder: Path, said: str) -> Found:
    labels = {split: source.labels_N for split, source in sources.items()}
    return Found(sources=sources, class_names=class_names_of(labels, names_beside(folder), where=folder), format=said)


def source_of(images_NHWC: np.ndarray, labels_N: np.ndarray, *, files: tuple[Path, ...], where: Path) -> Source:
    """Arrays as a source, after checking their kind and shape.

    Raises:
        UserError: not uint8, not (N, H, W) or (N, H, W, 1 or 3), labels that are not N whole numbers.
    """
    if images_NHWC.ndim == 3:
        images_NHWC = images_NHWC[..., None]
    shape = images_NHWC.shape
    if images_NHWC.dtype != np.uint8 or len(shape) != 4 or shape[3] not in (1, 3) or 0 in shape[1:]:
        raise UserError(
            f"{where}: the images are {images_NHWC.dtype} of shape {shape}.",
            "They must be uint8 of shape (N, height, width) or (N, height, width, 1 or 3).",
        )
    if labels_N.ndim == 2 and labels_N.shape[1] == 1:
        labels_N = labels_N[:, 0]
    if labels_N.ndim != 1 or labels_N.dtype.kind not in "iu":
        raise UserError(f"{where}: labels are {labels_N.dtype} of shape {labels_N.shape}.", "One whole number each.")
    if len(labels_N) != len(images_NHWC):
        raise UserError(f"{where} has {len(images_NHWC):,} images but {len(labels_N):,} labels.")

    def items() -> Iterator[Item]:
        for row in range(len(labels_N)):
            read = partial(images_NHWC.__getitem__, row)
            yield Item(name=f"{where.name}, image {row}", label=int(labels_N[row]), read=read)

    return Source(items=items, labels_N=labels_N.astype(np.int64), files=files)


def _both(path: Path) -> dict[str, Source]:
    """Both splits of one archive; empty when its arrays have other names."""
    names = set(_sizes(path))
    for words in PAIRS:
        keys = {split: [word.format(split) for word in words] for split in ("train", "test")}
        if all(key in names for pair in keys.values() for key in pair):
            stored = _read(path, [key for pair in keys.values() for key in pair])
            return {
                split: source_of(stored[images], stored[labels], files=(path,), where=path)
                for split, (images, labels) in keys.items()
            }
    return {}


def _single(paths: list[Path], folder: Path) -> Source:
    if len(paths) > 1:
        raise UserError(f"{folder} has several archives for one split.", "Name them train.npz and test.npz.")
    stored = _read(paths[0], ["images", "labels"])
    return source_of(stored["images"], stored["labels"], files=(paths[0],), where=paths[0])


def _sizes(path: Path) -> dict[str, int]:
    """Names and unpacked bytes of an archive's arrays."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
        raise UserError(f"{path} is not a NumPy archive: {error}.", "Get the file again.") from error


def _read(path: Path, keys: list[str]) -> dict[str, np.ndarray]:
    sizes = _sizes(path)
    for key in keys:
        if key not in sizes:
            raise UserError(f"{path} lacks {key!r}; it holds {', '.join(sorted(sizes)[:10])}.", EXPECTED)
        if sizes[key] > MAX_BYTES:
            raise UserError(f"{path} promises {sizes[key]:,} bytes for {key!r}.", f"At most {MAX_BYTES:,} are read.")
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {key: stored[key] for key in keys}
    except Exception as error:  # a damaged archive can fail in any way
        raise UserError(f"{path} cannot be read: {error}.", "It must hold plain arrays, no Python objects.") from error
