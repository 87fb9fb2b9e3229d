"""An index of where every encoded image of a data set lies, so that any image can be read at any time. It is made once
and then memory-mapped.

All files are read once to make it: an image's key is a hash of its bytes, and each image is checked to be decodable
then, not in the middle of an epoch. Undecodable images are left out, counted and named before anything is trained, so
that every process and every restart leaves out the same ones. Images are ordered by their keys (`subset.nested`), so
the same files are the same set in whatever format they are stored.

Images that are compressed inside their file (Parquet) are copied once into one file in the cache. It is an error to
read a file whose size, modification time or bytes (by a checksum) have changed since it was indexed; no other image
replaces the one that changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import zlib
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from bench.core.errors import UserError
from bench.core.files import free_bytes
from bench.data import cache, raw, real
from bench.data.decode import each, facts_of, judge, too_many
from bench.data.progress import Progress
from bench.data.source import FolderContents, ImageName, PathList, Source, is_image
from bench.data.subset import held_out, nested

REVISION = 2  # 2: 16-bit grey and TIFF are read
OPEN_FILES = 256
IMAGE = {
    "file": "<i4",
    "offset": "<i8",
    "size": "<i4",
    "label": "<i8",
    "key": "<u8",
    "height": "<u4",
    "width": "<u4",
    "channels": "u1",
    "orientation": "u1",
    "crc": "<u4",
}
COPIED = -1  # stands for the file of copied images while the index is made


class ImageIndex:
    """The index of the images of one split.

    Attributes:
        label, key, height, width, channels, orientation: arrays (N,), dtypes as in IMAGE. The key is a hash of an
            image's bytes; height and width are those of the upright image in pixels; orientation is EXIF's.
        class_names: one name per class, in label order.
        format: format of the files, in words.
        unreadable: number of images that were left out.
        encoded_bytes: bytes of all encoded images together.
        copied: the file in the cache that images were copied to; None if they are read in place.
        groups_N, multi_labels, several: see `ImageSet`.
    """

    def __init__(self, folder: Path, stored: dict[str, np.ndarray], split: str) -> None:
        self.folder, self.stored, self._split, self._status = folder, stored, split, np.asarray(stored["file_status"])
        columns = {name: stored.get(f"{split}_{name}") for name in IMAGE}
        # as plain arrays, because indexing an np.memmap is slow
        own = {name: np.asarray(values) for name, values in columns.items() if values is not None}
        self._crc = own.get("crc")  # None for indexes that were made before there were checksums
        self._file, self._offset, self._size = own["file"], own["offset"], own["size"]
        self.label, self.key, self.height, self.width = own["label"], own["key"], own["height"], own["width"]
        self.channels, self.orientation = own["channels"], own["orientation"]
        facts = json.loads(stored["facts"].tobytes())
        self.class_names, self.format = tuple(facts["class_names"]), str(facts["format"])
        self.unreadable, self.encoded_bytes = int(facts["unreadable"]), int(facts["bytes"][split])
        self.copied = self._path(len(stored["file_ends"]) - 1) if facts.get("copied") else None
        self.groups_N = stored.get(f"{split}_groups")
        self.multi_labels = real.from_arrays(stored) if split == "test" and "real_classes" in stored else None
        self.several = f"{split}_several_classes" in stored
        if self.several:
            self.multi_labels = real.from_arrays(stored, f"{split}_several")
        self._open = lru_cache(OPEN_FILES)(_Handle)  # takes a path, not self: a reference to self would keep it alive

    def __reduce__(self) -> tuple[Any, ...]:
        return ImageIndex, (self.folder, self.stored, self._split)

    def __len__(self) -> int:
        return len(self.label)

    def name(self, row: int) -> str:
        """Return the name in messages of the image at position `row`."""
        path = self._path(int(self._file[row]))
        return str(path) if is_image(path.name) else f"{path}, byte {int(self._offset[row]):,}"

    def read(self, row: int) -> bytes:
        """Return the encoded bytes of the image at position `row`.

        Raises:
            UserError: its file is gone, or has changed since it was indexed.
        """
        number, size = int(self._file[row]), int(self._size[row])
        try:
            file = self._open(self._path(number))  # keep a reference: another thread may evict it from the cache
            status, data = os.fstat(file.handle), os.pread(file.handle, size, int(self._offset[row]))
        except OSError as error:
            what = f"{self._path(number)} can no longer be read: {error.strerror}."
            put_back = "Put it back and run again" if self._path(number) != self.copied else "Run again"
            raise UserError(what, f"{put_back}: training goes on where it was.") from error
        if len(data) != size or [status.st_size, status.st_mtime_ns] != self._status[number].tolist():
            raise self._changed(number, f"{self._path(number)} has changed since its images were indexed.")
        if self._crc is not None and _checksum(data) != self._crc[row]:
            raise self._changed(number, f"{self.name(row)} has changed since it was indexed, but not in size or time.")
        return data

    def _changed(self, number: int, what: str) -> UserError:
        path = self._path(number)
        if path == self.copied:
            return UserError(what, f"Run `{shlex.join(['rm', str(path)])}` and the same command: it is copied again.")
        again = shlex.join(["touch", str(path.parent)])
        return UserError(what, f"Put it back as it was; or run `{again}`, and what is there now is another data set.")

    def _path(self, number: int) -> Path:
        ends = self.stored["file_ends"]
        start = int(ends[number - 1]) if number else 0
        return self.folder / os.fsdecode(self.stored["file_names"][start : int(ends[number])].tobytes())


class _Handle:
    """An open file that is closed when nothing refers to it any more."""

    def __init__(self, path: Path) -> None:
        self.handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # opening it has failed
            os.close(self.handle)


def key_of(folder: Path, *, as_published: bool, words: str = "") -> str:
    """Return the cache key of a folder's index. It changes when files are added, removed or renamed, and when a file
    that holds several images is rewritten.

    Args:
        as_published: see `bench.data.decode.Storage`.
        words: the parts of the set's name that identify its labels and groups, separated by blanks; "" without any.
    """
    digest = hashlib.sha256(repr((REVISION, str(folder.resolve()), as_published, *words.split())).encode())
    for where, folders, files in os.walk(folder):
        folders.sort()
        for name in ["", *sorted(name for name in files if not is_image(name))]:
            path = os.path.join(where, name)
            status = os.stat(path) if os.path.exists(path) else os.lstat(path)
            size = status.st_size if name else 0
            digest.update(f"{name} {size} {status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return f"index-{digest.hexdigest()[:16]}"


def open_index(folder: Path, split: str, *, found: FolderContents, as_published: bool) -> ImageIndex:
    """Return the index of one split of a folder's images. The first process that needs it makes it, while others wait.

    Args:
        found: the contents of the folder.
        as_published: see `bench.data.decode.Storage`.

    Raises:
        UserError: too many images cannot be decoded, or the disk has no room for copied images.
    """
    if (known := indexed(folder, split, as_published=as_published, words=found.words)) is not None:
        return known
    key = key_of(folder, as_published=as_published, words=found.words)
    copied = (cache.directory() / f"{key}.images").absolute()
    stored = cache.arrays(key, partial(_build, folder, found, as_published=as_published, copied=copied))
    return ImageIndex(folder, stored, split)


def indexed(folder: Path, split: str, *, as_published: bool, words: str = "") -> ImageIndex | None:
    """Return the index of a folder's split if it has been made already, else None. An index is deleted if the file that
    its images were copied to is gone or has changed. `as_published`, `words`: see `key_of`."""
    key = key_of(folder, as_published=as_published, words=words)
    stored = cache.stored(key)
    if stored is None:
        return None
    opened = ImageIndex(folder, stored, split)
    if opened.copied is None or _status(opened.copied) == stored["file_status"][-1].tolist():
        return opened
    cache.remove(key)
    return None


def _checksum(data: bytes) -> int:
    """Return a checksum of one encoded image, its CRC-32. For packed pixels (`bench.data.raw`), whose CRC would take
    longer than all other work on them, it is computed from the sum of their 64-bit words instead, which any single
    changed byte changes."""
    if not raw.is_raw(data):
        return zlib.crc32(data)
    words, rest = np.frombuffer(data, dtype="<u8", count=len(data) // 8), data[len(data) // 8 * 8 :]
    return zlib.crc32(rest, int(words.sum()) % ((1 << 32) - 1))


def _status(path: Path) -> list[int]:
    """Return [bytes, mtime in ns] of a file; an empty list if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns]


class _Names:
    """Names of files, relative to a folder, joined to one byte string.

    Attributes:
        text: all names, one after the other.
        ends: the position in `text` at which each name ends.
        shared: whether `text` and `ends` still belong to a `PathList`, so that they must be copied before a change.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.below = folder, os.path.join(os.fsencode(folder), b"")
        self.text, self.ends, self.shared = bytearray(), array("q"), False

    def join(self, paths: Sequence[Path]) -> None:
        """Add paths. The first ones added are shared with their list instead of copied, if it is a `PathList` of this
        folder."""
        if not self.ends and isinstance(paths, PathList) and (held := paths.relative_to(self.folder)) is not None:
            self.text, self.ends = held
            self.shared = True
            return
        for path in _encoded(paths):
            self.add(path)

    def add(self, name: bytes, *, whole: bool = False) -> None:
        if name.startswith(self.below) and not whole:
            name = name[len(self.below) :]
        elif not whole:
            name = os.path.relpath(name, os.fsencode(self.folder))
        if self.shared:
            self.text, self.ends, self.shared = bytearray(self.text), array("q", self.ends), False
        self.text += name
        self.ends.append(len(self.text))


def _encoded(paths: Sequence[Path]) -> Iterator[bytes]:
    """Return the paths as bytes, as the operating system encodes them."""
    return map(paths.encoded, range(len(paths))) if isinstance(paths, PathList) else map(os.fsencode, paths)


def _build(folder: Path, contents: FolderContents, *, as_published: bool, copied: Path) -> dict[str, np.ndarray]:
    files, names, status = 0, _Names(folder), array("q")
    copies = any(source.places is None for source in contents.sources.values())
    built: dict[str, np.ndarray] = {}
    unreadable, total = list[str](), {}
    with _copying(copied, contents) if copies else contextlib.nullcontext() as copy:
        for part, source in contents.sources.items():
            images, kept_N, bad = _read_all(source, copy, as_published=as_published, where=f"{folder}, {part}")
            unreadable += bad
            order_N = nested(images["label"], None, keys_N=images["key"])
            rows = {part: order_N}
            if part == "all":
                test_N = held_out(images["label"], images["key"])[order_N]
                rows = {"train": order_N[~test_N], "test": order_N[test_N]}
            for split, rows_M in rows.items():
                if not len(rows_M):
                    what = f"{folder}: too few different images to hold some out for testing."
                    raise UserError(what, "Put two or more into a class, or the test images into a folder test/.")
                total[split] = int(images["size"][rows_M].sum(dtype=np.int64))
                if source.several is not None:
                    kept = kept_N[rows_M].tolist()
                    built |= real.to_arrays(tuple(source.several[i] for i in kept), f"{split}_several")
            kept_order = kept_N[order_N] if len(kept_N) < len(source) or source.groups_N is not None else order_N
            del kept_N, order_N
            for name in list(images):  # one at a time, so that only one sorted copy is in memory beside the originals
                values = images.pop(name)
                built |= {f"{split}_{name}": values[rows_M] for split, rows_M in rows.items()}
            if source.places is not None:  # only now, because sorting takes as much memory as the names do
                for split in rows:
                    built[f"{split}_file"] += files
                files += len(source.files)
                names.join(source.files)
                for path in _encoded(source.files):
                    found = os.stat(path)
                    status.extend((found.st_size, found.st_mtime_ns))
            if source.groups_N is not None:
                built[f"{part}_groups"] = source.groups_N[kept_order]
            several = real.beside(folder, source, num_classes=len(contents.class_names)) if part == "test" else None
            if several is not None:
                built |= real.to_arrays(tuple(several[i] for i in kept_order.tolist()))
    if copies:
        names.add(os.fsencode(copied), whole=True)
        status.extend(_status(copied))
        for split in total:
            file_N = built[f"{split}_file"]
            file_N[file_N == COPIED] = files
    facts = {
        "class_names": contents.class_names,
        "format": contents.format,
        "bytes": total,
        "copied": copies,
        "unreadable": len(unreadable),
        "named": unreadable[:100],
    }
    return built | {
        "file_status": np.frombuffer(status, dtype=np.int64).reshape(-1, 2),
        "file_ends": np.frombuffer(names.ends, dtype=np.int64),
        "file_names": np.frombuffer(names.text, dtype=np.uint8),
        "facts": np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8),
    }


def _read_all(
    source: Source, copy: IO[bytes] | None, *, as_published: bool, where: str
) -> tuple[dict[str, np.ndarray], np.ndarray, list[str]]:
    """Read all images of a source to index them.

    Args:
        copy: file to which the images' bytes are copied if they cannot be read in place; else None.
        as_published: see `bench.data.decode.Storage`.
        where: name of the source in messages.

    Returns:
        (arrays (N,) with the fields of IMAGE, the index of each image in the source, name of and reason for each image
        that cannot be decoded), all in the order of the source.
    """

    def work(data: bytes | np.ndarray, name: ImageName) -> tuple[bytes | None, tuple[int, ...]]:
        if isinstance(data, np.ndarray):
            raise UserError(f"{where} holds pixels, not encoded images.", "Leave :stream out: they are mapped.")
        key = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
        facts = facts_of(data, name=name, as_published=as_published)
        return data if source.places is None else None, (len(data), key, _checksum(data), *facts)

    count, kept, unreadable = len(source), 0, list[str]()
    images = {name: np.zeros(count, dtype=dtype) for name, dtype in IMAGE.items()}
    kept_N = np.zeros(count, dtype=np.int32 if count < 1 << 31 else np.int64)
    progress, end = Progress(f"indexing {where}", count), copy.tell() if copy else 0
    for number, result in enumerate(each(source, work)):
        progress.step()
        if isinstance(result, str):
            unreadable.append(f"{source.name(number)} ({result})")
            if too_many(unreadable, count=count):
                break
            continue
        data, (size, key, crc, height, width, channels, orientation) = result
        if data is not None and copy is not None:
            images["offset"][kept], end = end, end + copy.write(data)
        facts = {"size": size, "key": key, "crc": crc, "height": height, "width": width, "channels": channels}
        for name, value in (facts | {"orientation": orientation}).items():
            images[name][kept] = value
        kept_N[kept], kept = number, kept + 1
    judge(unreadable, count=count, where=where)
    images, kept_N = {name: values[:kept] for name, values in images.items()}, kept_N[:kept]
    images["label"][:] = source.labels_N[kept_N]
    if source.places is None:
        images["file"][:] = COPIED
    else:
        places = source.places()
        images["file"][:], images["offset"][:] = places.file_N[kept_N], places.offset_N[kept_N]
    return images, kept_N, unreadable


@contextlib.contextmanager
def _copying(path: Path, contents: FolderContents):  # type: ignore[no-untyped-def]
    """Open a temporary file to copy the images of `contents` into. It is renamed to `path` if the block succeeds, and
    deleted otherwise.

    Raises:
        UserError: the disk has no room, or the file cannot be written.
    """
    sizes = (
        file.stat().st_size for source in contents.sources.values() if source.places is None for file in source.files
    )
    need, temporary = sum(sizes), path.with_name(f".{path.name}-{os.getpid()}")
    full = "Free some space, or set VIT_BENCH_CACHE to a folder on a larger disk."
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if (free := free_bytes(path)) < need:
            what = f"{path.parent} has {free / 1e9:.1f} GB free; a copy of the images takes {need / 1e9:.1f}."
            raise UserError(what, full)
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{path.parent} cannot take the images copied out of their files: {error}.", full) from error
    finally:
        temporary.unlink(missing_ok=True)
