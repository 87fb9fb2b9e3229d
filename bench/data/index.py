"""Where every encoded image of a data set lies, so that any of them can be read at any time: made once, then mapped.

All files are read once: an image's key is a hash of its bytes, and whether it can be decoded is found out then, not in
the middle of an epoch. Those that cannot are left out, counted and named, before anything is trained; so they are the
same for every process and every restart. The images come in an order that follows their keys (`subset.nested`), so the
same files are the same set whichever format carries them.

What is compressed inside its file (Parquet) is copied out once, into one file in the cache. A file that has changed
since it was indexed is an error when it is read: nothing else is put in its place.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.core.environment import cores
from bench.core.errors import UserError
from bench.data import cache, real
from bench.data.decode import Unreadable, facts_of, judge
from bench.data.progress import Progress
from bench.data.source import Found, Source, image_suffix
from bench.data.subset import held_out, nested

REVISION = 1
BATCH, BATCH_BYTES = 64, 16 << 20  # images per task of the pool, and what is read of them beforehand
OPEN_FILES = 64
IMAGE = (("file", "<i4"), ("offset", "<i8"), ("size", "<i4"), ("label", "<i8"), ("key", "<u8"), ("height", "<u2"),
         ("width", "<u2"), ("channels", "u1"), ("orientation", "u1"))  # fmt: skip


class ImageIndex:
    """The images of one split.

    Attributes:
        label, key, height, width, orientation, …: arrays (N,), as in IMAGE. Heights and widths are upright.
        class_names: one per class. format, unreadable: for people.
    """

    label: np.ndarray
    key: np.ndarray
    height: np.ndarray
    width: np.ndarray
    channels: np.ndarray
    orientation: np.ndarray

    def __init__(self, folder: Path, stored: Mapping[str, np.ndarray], split: str) -> None:
        self.folder, self.stored = folder, stored
        for name, _ in IMAGE:
            setattr(self, name, stored[f"{split}_{name}"])
        facts = json.loads(stored["facts"].tobytes())
        self.class_names, self.format = tuple(facts["class_names"]), facts["format"]
        self.unreadable: int = facts["unreadable"]
        self.encoded_bytes: int = facts["bytes"][split]
        self.multi_labels = real.from_arrays(dict(stored)) if "real_classes" in stored and split == "test" else None
        self._files: Callable[[int], int] = lru_cache(OPEN_FILES)(self._open)

    def __len__(self) -> int:
        return len(self.label)

    def name(self, row: int) -> str:
        """What a message calls an image."""
        path, offset = self._path(int(self.stored_at("file", row))), int(self.stored_at("offset", row))
        return f"{path}, byte {offset:,}" if offset or not image_suffix(path) else str(path)

    def stored_at(self, name: str, row: int) -> Any:
        return getattr(self, name)[row]

    def read(self, row: int) -> bytes:
        """The encoded image.

        Raises:
            UserError: its file is gone, or has changed.
        """
        number, offset, size = (int(self.stored_at(name, row)) for name in ("file", "offset", "size"))
        try:
            handle = self._files(number)
            status = os.fstat(handle.number)
            data = os.pread(handle.number, size, offset)
        except OSError as error:
            what = f"{self._path(number)} can no longer be read: {error.strerror}."
            raise UserError(what, "Put it back, and start again: training goes on where it was.") from error
        if len(data) != size or (status.st_size, status.st_mtime_ns) != tuple(self.stored["file_status"][number]):
            raise UserError(
                f"{self._path(number)} has changed since its images were indexed.",
                "Put the file back as it was, or start again with the images as they are now.",
            )
        return data

    def _open(self, number: int) -> _Handle:
        return _Handle(self._path(number))

    def _path(self, number: int) -> Path:
        ends = self.stored["file_ends"]
        start = int(ends[number - 1]) if number else 0
        return self.folder / os.fsdecode(self.stored["file_names"][start : int(ends[number])].tobytes())


class _Handle:
    """An open file, closed when nothing refers to it any more."""

    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


def stamp(folder: Path) -> str:
    """16 hex digits that change when files are added, removed, renamed, or written anew other than one image a file."""
    digest = hashlib.sha256()
    for where, folders, files in os.walk(folder):
        folders.sort()
        digest.update(f"{os.path.relpath(where, folder)} {os.stat(where).st_mtime_ns}\n".encode("utf8", "surrogateescape"))
        for name in sorted(name for name in files if not image_suffix(name)):
            status = os.stat(os.path.join(where, name))
            digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode("utf8", "surrogateescape"))
    return digest.hexdigest()[:16]


def key_of(folder: Path, *, as_published: bool) -> str:
    """The name of a folder's index in the cache."""
    settings = (REVISION, str(folder.resolve()), as_published)
    return f"index-{hashlib.sha256(repr((settings, stamp(folder))).encode()).hexdigest()[:16]}"


def open_index(folder: Path, split: str, *, find: Callable[[], Found], as_published: bool) -> ImageIndex:
    """The index of a split of a folder's images; made by the first process that asks, while others wait.

    Args:
        find: what lies in the folder.
        as_published: see `bench.data.decode.Storage`.

    Raises:
        UserError: what `find` raises; too many images cannot be decoded; the disk is full.
    """
    key = key_of(folder, as_published=as_published)
    build = partial(_build, folder, find, as_published=as_published, packed=cache.directory() / f"{key}.images")
    return ImageIndex(folder, cache.arrays(key, build), split)


def _build(folder: Path, find: Callable[[], Found], *, as_published: bool, packed: Path) -> dict[str, np.ndarray]:
    found = find()
    built: dict[str, np.ndarray] = {}
    facts: dict[str, Any] = {"class_names": found.class_names, "format": found.format, "unreadable": 0, "bytes": {}}
    files: list[Path] = []
    with _Packed(packed, found) as copy:
        for part, source in found.sources.items():
            images, kept_N, unreadable = _read_all(
                source, first_file=len(files), copy=copy, as_published=as_published, where=f"{folder}, {part}"
            )
            files += source.files if source.places is not None else ()
            facts["unreadable"] += len(unreadable)
            order_N = nested(images["label"], None, keys_N=images["key"])
            rows = {part: order_N}
            if part == "all":
                test_N = held_out(images["label"], images["key"])[order_N]
                rows = {"train": order_N[~test_N], "test": order_N[test_N]}
            for split, rows_M in rows.items():
                if not len(rows_M):
                    raise UserError(f"{folder}: too few different images for a {split} split.",
                                    "Put two or more into a class, or the test images into a folder test/.")  # fmt: skip
                built |= {f"{split}_{name}": images[name][rows_M] for name, _ in IMAGE}
                facts["bytes"][split] = int(images["size"][rows_M].sum(dtype=np.int64))
            if part == "test" and (several := real.beside(folder, found)) is not None:
                built |= real.to_arrays(tuple(several[i] for i in kept_N[order_N].tolist()))
    names = [os.fsencode(os.path.relpath(path, folder)) for path in files]
    if copy.used:
        for split in ("train", "test"):
            file_N = built[f"{split}_file"]
            built[f"{split}_file"] = np.where(file_N < 0, len(names), file_N).astype(np.int32)
        files, names = [*files, packed], [*names, os.fsencode(packed.absolute())]
    status = [os.stat(path) for path in files]
    built["file_status"] = np.array([(entry.st_size, entry.st_mtime_ns) for entry in status], dtype=np.int64)
    built["file_ends"] = np.cumsum([len(name) for name in names], dtype=np.int64)
    built["file_names"] = np.frombuffer(b"".join(names), dtype=np.uint8)
    built["facts"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    return built


def _read_all(
    source: Source, *, first_file: int, copy: _Packed, as_published: bool, where: str
) -> tuple[dict[str, np.ndarray], np.ndarray, list[str]]:
    """(arrays of IMAGE, numbers of the images kept, those that cannot be decoded with the reason), in order."""
    count, kept, unreadable = len(source), 0, []
    images = {name: np.zeros(count, dtype=dtype) for name, dtype in IMAGE}
    kept_N = np.zeros(count, dtype=np.int64)
    progress = Progress(f"indexing {where}", count)
    for number, (data, found) in enumerate(_checked(source, as_published=as_published)):
        progress.step()
        if isinstance(found, str):
            unreadable.append(f"{source.name(number)} ({found})")
            continue
        if source.places is None:
            place = (-1, copy.add(data), len(data))
        else:
            place = (first_file + int(source.places.file_N[number]), int(source.places.offset_N[number]), len(data))
        row = (*place, int(source.labels_N[number]), *found)
        for (name, _), value in zip(IMAGE, row, strict=True):
            images[name][kept] = value
        kept_N[kept] = number
        kept += 1
    judge(unreadable, count=count, where=where)
    return {name: values[:kept] for name, values in images.items()}, kept_N[:kept], unreadable


def _checked(source: Source, *, as_published: bool) -> Iterator[tuple[bytes, tuple[int, ...] | str]]:
    """(encoded image, its key and facts or why it cannot be decoded), in order; a bounded number at a time."""

    def work(batch: list[tuple[int, Any]]) -> list[tuple[bytes, tuple[int, ...] | str]]:
        done: list[tuple[bytes, tuple[int, ...] | str]] = []
        for number, data in batch:
            try:
                data = source.read(number) if data is None else data
                key = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
                facts = facts_of(data, name=source.name(number), as_published=as_published)
                done.append((data if source.places is None else b"", (key, *facts)))
            except (Unreadable, OSError) as error:
                done.append((b"", str(error)))
        return done
    ...
