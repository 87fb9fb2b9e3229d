"""Readers for CIFAR-10 and CIFAR-100, binary version and Python version (Krizhevsky, 2009).

Both hold rows of 3,072 bytes: the red, green and blue planes of a 32 px image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.core.errors import UserError
from bench.data import cache as _cache
from bench.data.pickles import array_of, read_plain_pickle

SIDE = 32
PIXELS = 3 * SIDE * SIDE


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where one version keeps its rows.

    Attributes:
        folder: as the archive unpacks it.
        files: by split.
        rows: in each file.
        label: place of the label byte, or its key.
        label_bytes: in front of the pixels of a row; 0 for the Python version.
    """

    folder: str
    files: Mapping[str, tuple[str, ...]]
    rows: Mapping[str, int]
    label: int | bytes
    label_bytes: int = 0


def find(root: Path | None, name: str, layouts: tuple[Layout, ...], split: str) -> tuple[Layout, list[Path]] | None:
    """The first version whose files are all there, below `root` or `root/name`."""
    for layout in layouts if root else ():
        for folder in (root / layout.folder, root / name / layout.folder, root / name):  # type: ignore[operator]
            paths = [folder / file for file in layout.files[split]]
            if all(path.is_file() for path in paths):
                return layout, paths
    return None


def read(
    root: Path | None, name: str, layouts: tuple[Layout, ...], split: str, *, num_classes: int, how_to_get: str
) -> tuple[np.ndarray, np.ndarray, str]:
    """(images_NHWC, labels_N, which version), decoded once and memory-mapped from then on.

    Raises:
        UserError: not there, cut short, labels out of range, or a pickle with anything but arrays in it.
    """
    found = find(root, name, layouts, split)
    if found is None:
        raise UserError(f"Data set {name!r} is not on this machine.", how_to_get)
    layout, paths = found
    parse = _binary if layout.label_bytes else _pickled

    def build() -> dict[str, np.ndarray]:
        parts = [parse(path, layout, layout.rows[split]) for path in paths]
        planes_N = np.concatenate([rows for rows, _ in parts]).reshape(-1, 3, SIDE, SIDE)
        labels_N = np.concatenate([labels for _, labels in parts]).astype(np.int64)
        if int(labels_N.min()) < 0 or int(labels_N.max()) >= num_classes:
            wrong = labels_N[(labels_N < 0) | (labels_N >= num_classes)][0]
            raise UserError(f"{paths[0].parent} holds label {wrong}.", f"{name} has classes 0 to {num_classes - 1}.")
        return {"images": planes_N.transpose(0, 2, 3, 1), "labels": labels_N}

    stored = _cache.arrays(f"{name}-{_cache.fingerprint((1, split, layout), paths)}", build)
    return stored["images"], stored["labels"], "binary version" if layout.label_bytes else "Python version"


def _binary(path: Path, layout: Layout, rows: int) -> tuple[np.ndarray, np.ndarray]:
    width = layout.label_bytes + PIXELS
    size = path.stat().st_size
    if size != rows * width:
        raise UserError(f"{path} has {size:,} bytes; {rows * width:,} were expected.", "Get the file again.")
    stored = np.fromfile(path, dtype=np.uint8).reshape(rows, width)
    assert isinstance(layout.label, int)
    return stored[:, layout.label_bytes :], stored[:, layout.label]


def _pickled(path: Path, layout: Layout, rows: int) -> tuple[np.ndarray, np.ndarray]:
    stored: Any = read_plain_pickle(path)
    try:
        data = array_of(stored[b"data"] if b"data" in stored else stored["data"])
        given = stored[layout.label] if layout.label in stored else stored[str(layout.label, "ascii")]  # type: ignore
        labels = np.array(given, dtype=np.int64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{path} does not hold CIFAR's arrays ({error}).", "Get the file again.") from error
    if data.shape != (rows, PIXELS) or labels.shape != (rows,):
        raise UserError(
            f"{path} holds pixels of shape {data.shape} and labels of shape {labels.shape}.",
            f"Expected {(rows, PIXELS)} and {(rows,)}: get the file again.",
        )
    return data, labels
