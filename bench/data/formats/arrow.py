"""Reader of data sets that Hugging Face's `datasets` has stored on disk (`save_to_disk`, or its cache): Arrow files
with embedded encoded images, which are read in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.core.errors import UserError
from bench.data.formats.parquet import IMAGE_COLUMNS, LABEL_COLUMNS, hub_names
from bench.data.source import FolderContents, Places, Source, by_split, found, read_bytes

NAME = "Arrow files"


def recognises(names: set[str]) -> bool:
    return any(name.endswith(".arrow") for name in names)


def find(folder: Path) -> FolderContents:
    """Return the images of all .arrow files in `folder` and one level below, by split. Files "cache-…", in which
    `datasets` keeps results of operations, are ignored.

    Raises:
        UserError: pyarrow is not installed; a file is damaged, or lacks a column of embedded images or integer labels.
    """
    paths = [*folder.glob("*.arrow"), *folder.glob("*/*.arrow")]
    groups = by_split([path for path in paths if not path.name.startswith("cache-")], below=folder)
    names: list[str] | None = None
    sources = {}
    for split, files in groups.items():
        sources[split], names = _source(files)
    return found(sources, folder, names=names, format=NAME)


def _source(paths: list[Path]) -> tuple[Source, list[str] | None]:
    parts = [_rows(path) for path in paths]
    labels_N, offset_N, size_N = (np.concatenate([part[at] for part in parts]) for at in range(3))
    file_N = np.repeat(np.arange(len(paths)), [len(part[0]) for part in parts])
    ends = np.cumsum([len(part[0]) for part in parts])

    def name(number: int) -> str:
        file = int(file_N[number])
        return f"{paths[file].name}, row {number - (int(ends[file - 1]) if file else 0)}"

    source = Source(
        labels_N=labels_N,
        files=tuple(paths),
        name=name,
        read=lambda number: read_bytes(paths[file_N[number]], int(offset_N[number]), int(size_N[number])),
        places=lambda: Places(file_N=file_N, offset_N=offset_N),
    )
    return source, parts[0][3]


def _rows(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str] | None]:
    """Return what an Arrow file holds: (labels_N, offset of each image's first byte in the file, length of each image
    in bytes; all int64 (N,)), and the names of the classes, None if the file has none."""
    try:
        import pyarrow
    except ImportError as error:
        raise UserError("Reading Arrow files needs the package pyarrow.", "Run: pip install pyarrow") from error
    columns: list[list[np.ndarray]] = [[], [], []]
    try:
        with pyarrow.memory_map(str(path)) as file:
            whole = file.read_buffer()
            with pyarrow.ipc.open_stream(whole) as stream:
                image, label = (_column(path, stream.schema, names) for names in (IMAGE_COLUMNS, LABEL_COLUMNS))
                for batch in stream:
                    if batch.num_rows:
                        for column, values in zip(columns, _placed(path, whole, batch, image, label), strict=True):
                            column.append(values)
                names = hub_names(stream.schema, label)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as an Arrow stream: {error}.", "Get the file again.") from error
    labels_N, offset_N, size_N = (np.concatenate([*column, np.empty(0, dtype=np.int64)]) for column in columns)
    return labels_N, offset_N, size_N, names


def _column(path: Path, schema: Any, names: tuple[str, ...]) -> str:
    found = next((name for name in names if name in schema.names), None)
    if found is None:
        raise UserError(f"{path} has the columns {', '.join(schema.names[:10])}.", f"Expected {' or '.join(names)}.")
    return found


def _placed(path: Path, whole: Any, batch: Any, image: str, label: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (labels, offsets in the file, sizes in bytes) of the images of one record batch, each int64 (N,).

    Args:
        whole: buffer of the whole memory-mapped file, in which the batch's buffers must lie uncompressed.
        batch: the record batch.
        image, label: names of its columns of images and labels.

    Raises:
        UserError: the batch is compressed, an image or a label is missing, or labels are not integers.
    """
    labels, images = batch.column(label), batch.column(image)
    if not str(labels.type).removeprefix("u").startswith("int") or labels.null_count:
        raise UserError(f"{path}: {label} is {labels.type}.", "Every image needs a label, a whole number from 0.")
    embedded = images.field("bytes") if str(images.type).startswith("struct") else images
    kinds = {"binary": np.int32, "large_binary": np.int64}
    if str(embedded.type) not in kinds or embedded.null_count:
        raise UserError(f"{path} does not hold the images themselves.", "Save it with its images embedded.")
    _, offsets, data = embedded.buffers()
    first = data.address - whole.address
    if not 0 <= first <= whole.size - data.size:
        raise UserError(f"{path} is compressed; its images cannot be read in place.", "Save it without compression.")
    ends_N = np.frombuffer(offsets, dtype=kinds[str(embedded.type)])[embedded.offset :][: len(embedded) + 1]
    ends_N = ends_N.astype(np.int64)
    return labels.to_numpy(zero_copy_only=False).astype(np.int64), first + ends_N[:-1], np.diff(ends_N)
