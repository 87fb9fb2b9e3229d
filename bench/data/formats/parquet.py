"""Parquet with embedded images, as the Hugging Face hub ships it: a struct {bytes, path} and a label per row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.core.errors import UserError
from bench.data.decode import Item
from bench.data.formats._source import Found, Source, by_split, class_names_of, names_beside

NAME = "Parquet"
IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels", "fine_label")
ROWS_AT_ONCE = 256


def recognises(names: set[str]) -> bool:
    return any(name.endswith(".parquet") for name in names)


def find(folder: Path) -> Found:
    """All .parquet files in `folder` and one level below (the hub's "data"), by split.

    Raises:
        UserError: pyarrow is not installed; damaged files; no column of images or of whole-number labels.
    """
    reader = _pyarrow()
    groups = by_split([*folder.glob("*.parquet"), *folder.glob("*/*.parquet")], below=folder)
    sources = {split: _source(reader, paths) for split, paths in groups.items()}
    labels = {split: source.labels_N for split, source in sources.items()}
    names = _class_names(reader, next(iter(groups.values()))[0]) or names_beside(folder)
    return Found(sources=sources, class_names=class_names_of(labels, names, where=folder), format=NAME)


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UserError("Reading Parquet needs the package pyarrow.", "Run: pip install pyarrow") from error
    return pyarrow.parquet


def _guarded(path: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (OSError, ValueError, KeyError, NotImplementedError) as error:  # ArrowInvalid is a ValueError
        raise UserError(f"{path} cannot be read as Parquet: {error}.", "Get the file again.") from error


def _source(reader: Any, paths: list[Path]) -> Source:
    labels = [_labels(reader, path) for path in paths]

    def items() -> Iterator[Item]:
        for path, labels_N in zip(paths, labels, strict=True):
            for row, data in enumerate(_images(reader, path)):
                name = f"{path.name}, row {row}"
                yield Item(name=name, label=int(labels_N[row]), read=partial(_bytes, data, name))

    return Source(items=items, labels_N=np.concatenate(labels), files=tuple(paths))


def _labels(reader: Any, path: Path) -> np.ndarray:
    with _guarded(path, lambda: reader.ParquetFile(path)) as file:
        names = file.schema_arrow.names
        column = next((name for name in LABEL_COLUMNS if name in names), None)
        if column is None or not any(name in names for name in IMAGE_COLUMNS):
            raise UserError(
                f"{path} has the columns {', '.join(names[:10])}.",
                f"Expected {' or '.join(IMAGE_COLUMNS)} and {' or '.join(LABEL_COLUMNS)}.",
            )
        labels_N = _guarded(path, lambda: file.read(columns=[column])).column(column)
        if labels_N.null_count:
            raise UserError(f"{path}: {labels_N.null_count} rows have no {column}.", "Every image needs a label.")
        labels_N = labels_N.to_numpy()
    if labels_N.dtype.kind not in "iu":
        raise UserError(f"{path}: {column} is {labels_N.dtype}.", "Labels are whole numbers, counted from 0.")
    return labels_N.astype(np.int64)


def _images(reader: Any, path: Path) -> Iterator[Any]:
    """The encoded image of each row, a batch in memory at a time."""
    with _guarded(path, lambda: reader.ParquetFile(path)) as file:
        column = next(name for name in IMAGE_COLUMNS if name in file.schema_arrow.names)
        batches = iter(file.iter_batches(ROWS_AT_ONCE, columns=[column], use_threads=False))
        while (batch := _guarded(path, partial(next, batches, None))) is not None:
            if not batch.num_rows:  # a damaged file can give empty batches for ever
                raise UserError(f"{path} is damaged: fewer rows than it promises.", "Get the file again.")
            yield from _guarded(path, batch.column(0).to_pylist)


def _bytes(data: Any, name: str) -> bytes:
    """The embedded file. A path without bytes is not followed: it was somebody else's disk."""
    if isinstance(data, dict):
        data = data.get("bytes")
    if not isinstance(data, bytes):
        raise UserError(f"{name} holds no embedded image.", "Write the images into the file (struct of bytes, path).")
    return data


def _class_names(reader: Any, path: Path) -> list[str] | None:
    """The hub's ClassLabel names, from the metadata of the schema."""
    with _guarded(path, lambda: reader.ParquetFile(path)) as file:
        stored = (file.schema_arrow.metadata or {}).get(b"huggingface")
        column = next(name for name in LABEL_COLUMNS if name in file.schema_arrow.names)
    try:
        names = json.loads(stored)["info"]["features"][column]["names"] if stored else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return [str(name) for name in names] if isinstance(names, list) and names else None
