"""Arrays that are slow to make, kept on disk: written atomically, verified when opened, memory-mapped.

An entry is a folder `<key>/` with one .npy per array and `manifest.json` (size and sha256 of each). The key must name
everything the content depends on (a revision, a hash of the source). An entry that does not verify is built again. The
cache is never a result: when it cannot be written, the arrays are used from memory and a warning says so. Arrays larger
than memory are built as `Chunks`, and in a `scratch` array.
"""

from __future__ import annotations

import contextlib
import copyreg
import hashlib
import json
import math
import mmap
import os
import shutil
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from bench.core.errors import UserError
from bench.core.files import dump_json, file_sha256, sync_directory, synced
from bench.data.readable import not_regular, printable

MANIFEST = "manifest.json"
IN_MEMORY = 256 << 20  # bytes; a larger scratch array lies in a file
_verified: set[tuple[str, int, int]] = set()  # (path, size, mtime_ns) whose sha256 this process has already checked


def directory() -> Path:
    """$VIT_BENCH_CACHE, else the platform's folder for caches."""
    chosen = os.environ.get("VIT_BENCH_CACHE")
    return Path(chosen) if chosen else user_cache_path("vit-bench", appauthor=False)


def kernels() -> Path:
    """The folder in which torch keeps kernels that it generated, so that the next process finds the same ones. They are
    code: hence a folder that this user alone can write, never one that came with somebody's results.

    Raises:
        UserError: others can write there.
    """
    folder = directory() / f"kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise UserError(f"Others can write to {folder}, which holds code.", "Remove it, or set VIT_BENCH_CACHE.")
    return folder


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """An array that is never whole in memory: `make()` yields it in pieces along the first axis."""

    shape: tuple[int, ...]
    dtype: str
    make: Callable[[], Iterator[np.ndarray]]

    def whole(self) -> np.ndarray:
        return np.concatenate([*self.make(), np.empty((0, *self.shape[1:]), self.dtype)])

    def save(self, file: IO[bytes]) -> None:
        """Write as .npy."""
        description = {"descr": np.dtype(self.dtype).str, "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(file, description)
        written = 0
        for piece in self.make():
            written += len(piece)
            file.write(np.ascontiguousarray(piece, dtype=self.dtype).data)
        if written != self.shape[0]:
            raise ValueError(f"{written} rows were made of {self.shape[0]} promised")


def rows(array: np.ndarray, indices_M: np.ndarray, *, at_once: int = 4096) -> Chunks:
    """`array[indices_M]`, gathered piece by piece."""

    def make() -> Iterator[np.ndarray]:
        for start in range(0, len(indices_M), at_once):
            yield array[indices_M[start : start + at_once]]

    return Chunks(shape=(len(indices_M), *array.shape[1:]), dtype=array.dtype.str, make=make)


def scratch(shape: tuple[int, ...], *, dtype: Any = np.uint8) -> np.ndarray:
    """Zeros to be filled: in memory, or in an unnamed file beside the cache when they are more than IN_MEMORY.

    Raises:
        UserError: the disk has no room for them.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size <= IN_MEMORY:
        return np.zeros(shape, dtype=dtype)
    try:
        directory().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory()) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)  # a hole that cannot be filled later would end the process
            return np.memmap(file, dtype=dtype, mode="r+", shape=shape)
    except OSError as error:
        raise UserError(
            f"{directory()} has no room for {size / 1e9:.1f} GB of decoded images ({error}).",
            "Free some space, or set VIT_BENCH_CACHE to a folder on a larger disk.",
        ) from error


def arrays(key: str, build: Callable[[], Mapping[str, np.ndarray | Chunks]]) -> dict[str, np.ndarray]:
    """The arrays stored under `key` as read-only memory maps; built and stored first where missing or damaged: by one
    process of a machine, while others wait."""
    entry = directory() / key
    there = _open(entry)
    if there is not None:
        return there
    with _turn(entry):
        return _open(entry) or _built(entry, build)


def _by_path(mapped: np.memmap) -> Any:
    """The file and its part, for another process to map where it is not forked; else the array."""
    if (file := mapped._mmap) is None or not mapped.size or not mapped.flags.c_contiguous:  # type: ignore[attr-defined]
        return np.ndarray.__reduce__(mapped)
    behind = mapped.ctypes.data - np.frombuffer(file, np.uint8).ctypes.data - mapped.offset % mmap.ALLOCATIONGRANULARITY
    return np.memmap, (mapped.filename, mapped.dtype, "r", mapped.offset + behind, mapped.shape)


copyreg.pickle(np.memmap, _by_path)


def stored(key: str) -> dict[str, np.ndarray] | None:
    """The arrays stored under `key`; None where there are none, or they are damaged."""
    return _open(directory() / key)


def remove(key: str) -> None:
    """Have what is stored under `key` built again when it is next asked for."""
    shutil.rmtree(directory() / key, ignore_errors=True)


@contextlib.contextmanager
def _turn(entry: Path) -> Iterator[None]:
    """One process at a time, as far as files can be locked; a lock ends with its process."""
    path = entry.with_name(f".{entry.name}.lock")
    lock = FileLock(path)
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            print(f"waiting for another process that prepares {entry.name}", file=sys.stderr, flush=True)
            lock.acquire()
    except (OSError, NotImplementedError):  # nothing can be written or locked here: nobody waits
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # whoever waits for this file looks for what was built first
        lock.release()


def _built(entry: Path, build: Callable[[], Mapping[str, np.ndarray | Chunks]]) -> dict[str, np.ndarray]:
    built = {
        name: value if isinstance(value, Chunks) else np.ascontiguousarray(value) for name, value in build().items()
    }
    try:
        _store(entry, built)
    except OSError as error:
        warnings.warn(f"The cache {entry} cannot be written ({error}); the next run prepares it again.", stacklevel=2)
        return _whole(built)
    return _open(entry) or _whole(built)


def _whole(built: Mapping[str, np.ndarray | Chunks]) -> dict[str, np.ndarray]:
    return {name: value.whole() if isinstance(value, Chunks) else value for name, value in built.items()}


def _open(entry: Path) -> dict[str, np.ndarray] | None:
    """The entry's arrays, or None when it is absent or any byte of it is not what was written."""
    try:
        manifest = json.loads((entry / MANIFEST).read_text())
        mapped = {}
        for name, promised in manifest["arrays"].items():
            path = entry / f"{name}.npy"
            if not _verify(path, size=promised["size"], sha256=promised["sha256"]):
                return None
            mapped[name] = np.load(path, mmap_mode="r", allow_pickle=False)
        return mapped
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _verify(path: Path, *, size: int, sha256: str) -> bool:
    status = path.stat()
    seen = (str(path), status.st_size, status.st_mtime_ns)
    if status.st_size != size:
        return False
    if seen not in _verified:
        if file_sha256(path) != sha256:
            return False
        _verified.add(seen)
    return True


def _store(entry: Path, built: Mapping[str, np.ndarray | Chunks]) -> None:
    """Write beside the final place, sync, then rename. Either of two writers may win: they wrote the same content."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{entry.name}-", dir=entry.parent))
    try:
        manifest = {}
        for name, value in built.items():
            path = temporary / f"{name}.npy"
            _write(path, value.save if isinstance(value, Chunks) else partial(_save, value))
            manifest[name] = {"size": path.stat().st_size, "sha256": file_sha256(path)}
        _write(temporary / MANIFEST, lambda file: file.write(dump_json({"arrays": manifest})))
        if entry.exists() and _open(entry) is None:
            shutil.rmtree(entry, ignore_errors=True)
        temporary.chmod(stat.S_IMODE(entry.parent.stat().st_mode))  # mkdtemp's is for one user; a cache may be shared
        try:
            os.rename(temporary, entry)
            sync_directory(entry.parent)
        except OSError:
            if _open(entry) is None:  # not another writer's good entry: a real failure
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _save(array: np.ndarray, file: IO[bytes]) -> None:
    np.save(file, array, allow_pickle=False)


def _write(path: Path, save: Callable[[IO[bytes]], object]) -> None:
    with synced(path) as file:
        save(file)


def fingerprint(settings: object, files: Sequence[Path], *, read_up_to: int = 1 << 30) -> str:
    """16 hex digits over settings and source files: a key for what is decoded from them.

    Files of up to `read_up_to` bytes in all count with their bytes. More would take minutes to read at every start:
    then their names, sizes and times of change count.

    Raises:
        UserError: one of them is not there, or is no regular file.
    """
    digest = hashlib.sha256(repr(settings).encode())
    status = [_status(path) for path in files]
    by_content = sum(entry.st_size for entry in status) <= read_up_to
    for path, entry in zip(files, status, strict=True):
        what = file_sha256(path) if by_content else f"{path} {entry.st_size} {entry.st_mtime_ns}"
        digest.update(f"{path.name} {what}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def _status(path: Path) -> os.stat_result:
    try:
        status = path.stat()
    except OSError as error:
        what = f"{printable(path)} cannot be read: {error.strerror}."
        raise UserError(what, "Get it again, or take it away.") from error
    if not stat.S_ISREG(status.st_mode):
        raise not_regular(path)
    return status
