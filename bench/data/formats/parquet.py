"""Reader of Parquet files with embedded images, as on the Hugging Face hub: each row has a struct {bytes, path} and a
label."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.core.errors import UserError
from bench.data.source import FolderContents, Source, by_split, found

NAME = "Parquet"
IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels", "fine_label")
MAX_ROWS_AT_ONCE = 256
MAX_BATCH_BYTES = 16 << 20  # bytes of a batch of images, as far as the file's metadata give an upper bound
LABELS_AT_ONCE = 1 << 16
BUFFER_BYTES = 1 << 20  # bytes of a column read at a time; unbuffered, a row group's images would be in memory twice


def recognises(names: set[str]) -> bool:
    return any(name.endswith(".parquet") for name in names)


def find(folder: Path) -> FolderContents:
    """Return the images of all .parquet files in `folder` and one level below (the hub's "data"), by split.

    Raises:
        UserError: pyarrow is not installed; a file is damaged, or has no column of images or of integer labels.
    """
    _pyarrow()
    groups = by_split([*folder.glob("*.parquet"), *folder.glob("*/*.parquet")], below=folder)
    sources = {split: _source(paths) for split, paths in groups.items()}
    return found(sources, folder, names=_class_names(next(iter(groups.values()))[0]), format=NAME)


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


def _open(path: Path) -> Any:
    return _guarded(path, lambda: _pyarrow().ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES))


def _source(paths: list[Path]) -> Source:
    labels = [_labels(path) for path in paths]
    ends = np.cumsum([len(labels_N) for labels_N in labels]).tolist()

    def place(number: int) -> tuple[Path, int]:
        file = int(np.searchsorted(ends, number, side="right"))
        return paths[file], number - (ends[file - 1] if file else 0)

    def name(number: int) -> str:
        path, row = place(number)
        return f"{path.name}, row {row}"

    def read(number: int) -> bytes:
        path, row = place(number)
        return next(_images(path, first=row))

    def in_order() -> Iterator[bytes]:
        for path, labels_N in zip(paths, labels, strict=True):
            yield from itertools.islice(_images(path), len(labels_N))

    return Source(labels_N=np.concatenate(labels), files=tuple(paths), name=name, read=read, in_order=in_order)


def _labels(path: Path) -> np.ndarray:
    """Return the labels of a file, int64 (N,).

    Raises:
        UserError: a column is missing, labels are not integers or are missing, or the file claims more rows than it has
            bytes: each row takes at least one, and damaged metadata could claim any number.
    """
    with _open(path) as file:
        names = file.schema_arrow.names
        column = next((name for name in LABEL_COLUMNS if name in names), None)
        if column is None or not any(name in names for name in IMAGE_COLUMNS):
            raise UserError(
                f"{path} has the columns {', '.join(names[:10])}.",
                f"Expected {' or '.join(IMAGE_COLUMNS)} and {' or '.join(LABEL_COLUMNS)}.",
            )
        kind, rows, size = file.schema_arrow.field(column).type, file.metadata.num_rows, path.stat().st_size
        if not str(kind).removeprefix("u").startswith("int"):
            raise UserError(f"{path}: {column} is {kind}.", "Labels are whole numbers, counted from 0.")
        if rows > size:
            raise UserError(f"{path} promises {rows:,} images in {size:,} bytes.", "Get the file again.")
        labels_N, done = np.empty(rows, dtype=np.int64), 0
        for batch in _batches(path, file, column, range(file.metadata.num_row_groups), LABELS_AT_ONCE):
            if nulls := batch.column(0).null_count:
                raise UserError(f"{path}: {nulls} rows or more have no {column}.", "Every image needs a label.")
            labels_N[done : done + batch.num_rows] = batch.column(0).to_numpy(zero_copy_only=False)
            done += batch.num_rows
    return labels_N


def _images(path: Path, *, first: int = 0) -> Iterator[bytes]:
    """Yield the encoded image of each row from row `first` on. One batch is in memory at a time."""
    with _open(path) as file:
        column = next(name for name in IMAGE_COLUMNS if name in file.schema_arrow.names)
        row = 0
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            if row + group.num_rows <= first:
                row += group.num_rows
                continue
            # One image has at most as many bytes as its column. With dictionary encoding every row may have the
            # largest.
            parts = [group.column(place) for place in range(group.num_columns)]
            largest = max(part.total_uncompressed_size for part in parts if part.path_in_schema.split(".")[0] == column)
            at_once = max(1, min(MAX_ROWS_AT_ONCE, MAX_BATCH_BYTES // max(1, largest)))
            for batch in _batches(path, file, column, [number], at_once):
                values = _guarded(path, batch.column(0).to_pylist) if row + batch.num_rows > first else ()
                for place, value in enumerate(values, start=row):
                    if place >= first:
                        yield _bytes(value, f"{path.name}, row {place}")
                row += batch.num_rows
    raise UserError(f"{path} is damaged: fewer rows than it promises.", "Get the file again.")


def _batches(path: Path, file: Any, column: str, groups: Any, at_once: int) -> Iterator[Any]:
    batches = _guarded(
        path, lambda: file.iter_batches(at_once, row_groups=list(groups), columns=[column], use_threads=False)
    )
    while (batch := _guarded(path, lambda: next(batches, None))) is not None:
        if not batch.num_rows:  # a damaged file can give empty batches for ever
            raise UserError(f"{path} is damaged: fewer rows than it promises.", "Get the file again.")
        yield batch


def _bytes(data: Any, name: str) -> bytes:
    """Return the encoded image in a row's value `data`: a struct {bytes, path}, or the bytes themselves. A struct with
    a path alone is refused, because the path is of another machine. `name`: name of the row in messages.

    Raises:
        UserError: the value holds no bytes.
    """
    if isinstance(data, dict):
        data = data.get("bytes")
    if not isinstance(data, bytes):
        raise UserError(f"{name} holds no embedded image.", "Write the images into the file (struct of bytes, path).")
    return data


def _class_names(path: Path) -> list[str] | None:
    with _open(path) as file:
        schema = file.schema_arrow
    return hub_names(schema, next(name for name in LABEL_COLUMNS if name in schema.names))


def hub_names(schema: Any, column: str) -> list[str] | None:
    """Return the class names of the label column `column` that the Hugging Face hub stores in the schema's metadata
    (ClassLabel); None if there are none."""
    stored = (schema.metadata or {}).get(b"huggingface")
    try:
        names = json.loads(stored)["info"]["features"][column]["names"] if stored else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return [str(name) for name in names] if isinstance(names, list) and names else None
