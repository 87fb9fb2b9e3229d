"""A disk cache for arrays that are slow to compute: written atomically, verified when opened, memory-mapped.

An entry is a folder `<key>/` with one .npy per array and `manifest.json` (size and sha256 of each). The key must name
everything that the content depends on (a revision, a hash of the source). An entry that fails verification is built
again. No result depends on the cache: if it cannot be written, the arrays are used from memory, with a warning. Arrays
larger than memory are built as `Chunks` or in a `scratch` array.
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
IN_MEMORY = 256 << 20  # bytes of the largest scratch array that is kept in memory; larger ones lie in a file
_verified: set[tuple[str, int, int]] = set()  # (path, size, mtime_ns) whose sha256 this process has already checked


def directory() -> Path:
    """Return the folder of the cache: $VIT_BENCH_CACHE, or else the platform's folder for caches."""
    chosen = os.environ.get("VIT_BENCH_CACHE")
    return Path(chosen) if chosen else user_cache_path("vit-bench", appauthor=False)


def kernels() -> Path:
    """Create and return the folder in which torch keeps the kernels that it generates, so that later processes reuse
    them. Kernels are executed, so the folder lies in the cache, never among results, which may come from others, and
    only this user may write to it.

    Raises:
        UserError: other users can write to the folder.
    """
    folder = directory() / f"kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise UserError(f"Others can write to {folder}, which holds code.", "Remove it, or set VIT_BENCH_CACHE.")
    return folder


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """An array that is made piece by piece, so that it need not fit in memory.

    Attributes:
        shape, dtype: of the whole array.
        make: () -> iterator over the array's pieces along the first axis.
    """

    shape: tuple[int, ...]
    dtype: str
    make: Callable[[], Iterator[np.ndarray]]

    def whole(self) -> np.ndarray:
        return np.concatenate([*self.make(), np.empty((0, *self.shape[1:]), self.dtype)])

    def save(self, file: IO[bytes]) -> None:
        """Write the array to an open file in the .npy format.

        Raises:
            ValueError: `make` yielded another number of rows than `shape` states.
        """
        description = {"descr": np.dtype(self.dtype).str, "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(file, description)
        written = 0
        for piece in self.make():
            written += len(piece)
            file.write(np.ascontiguousarray(piece, dtype=self.dtype).data)
        if written != self.shape[0]:
            raise ValueError(f"{written} rows were made of {self.shape[0]} promised")


def rows(array: np.ndarray, indices_M: np.ndarray, *, at_once: int = 4096) -> Chunks:
    """Return `array[indices_M]` as `Chunks`, made in pieces of `at_once` rows."""

    def make() -> Iterator[np.ndarray]:
        for start in range(0, len(indices_M), at_once):
            yield array[indices_M[start : start + at_once]]

    return Chunks(shape=(len(indices_M), *array.shape[1:]), dtype=array.dtype.str, make=make)


def scratch(shape: tuple[int, ...], *, dtype: Any = np.uint8) -> np.ndarray:
    """Return a writable array of zeros. If it has more than `IN_MEMORY` bytes, it is memory-mapped from an unnamed file
    in the cache's folder.

    Raises:
        UserError: the disk has no room for it.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size <= IN_MEMORY:
        return np.zeros(shape, dtype=dtype)
    try:
        directory().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory()) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)  # reserve: writing to a map of a full disk kills the process
            return np.memmap(file, dtype=dtype, mode="r+", shape=shape)
    except OSError as error:
        raise UserError(
            f"{directory()} has no room for {size / 1e9:.1f} GB of decoded images ({error}).",
            "Free some space, or set VIT_BENCH_CACHE to a folder on a larger disk.",
        ) from error


def arrays(key: str, build: Callable[[], Mapping[str, np.ndarray | Chunks]]) -> dict[str, np.ndarray]:
    """Return the arrays stored under `key`, by name, as read-only memory maps. If they are missing or damaged, one
    process of the machine calls `build`, which returns the arrays by name, and stores them; other processes wait."""
    entry = directory() / key
    there = _open(entry)
    if there is not None:
        return there
    with _turn(entry):
        return _open(entry) or _built(entry, build)


def _by_path(mapped: np.memmap) -> Any:
    """Return what `copyreg` needs to pickle a memory map: its file and the position in it, so that another process maps
    the same file. An array that is not a contiguous part of a file is pickled by its values."""
    if (file := mapped._mmap) is None or not mapped.size or not mapped.flags.c_contiguous:  # type: ignore[attr-defined]
        return np.ndarray.__reduce__(mapped)
    behind = mapped.ctypes.data - np.frombuffer(file, np.uint8).ctypes.data - mapped.offset % mmap.ALLOCATIONGRANULARITY
    return np.memmap, (mapped.filename, mapped.dtype, "r", mapped.offset + behind, mapped.shape)


copyreg.pickle(np.memmap, _by_path)


def stored(key: str) -> dict[str, np.ndarray] | None:
    """Return the arrays stored under `key`, by name; None if there are none, or if they are damaged."""
    return _open(directory() / key)


def remove(key: str) -> None:
    """Delete the arrays stored under `key`, so that they are built again when they are next needed."""
    shutil.rmtree(directory() / key, ignore_errors=True)


@contextlib.contextmanager
def _turn(entry: Path) -> Iterator[None]:
    """Let one process at a time execute the block, by a lock beside the cache entry `entry`. A lock ends with the
    process that holds it. Where files cannot be locked, no process waits."""
    path = entry.with_name(f".{entry.name}.lock")
    lock = FileLock(path)
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            print(f"waiting for another process that prepares {entry.name}", file=sys.stderr, flush=True)
            lock.acquire()
    except (OSError, NotImplementedError):  # no file can be written or locked here, so no process waits
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # safe: a process that waited for the lock looks first for what this one has built
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
    """Return the arrays of a cache entry, by name, as read-only memory maps; None if the entry does not exist, or if
    any byte differs from what was written."""
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
    """Write an entry to a temporary folder, sync it, then rename the folder to `entry`. If two processes write the same
    entry, it does not matter which one succeeds, because both write the same content."""
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
        temporary.chmod(stat.S_IMODE(entry.parent.stat().st_mode))  # mkdtemp allows one user; a cache may be shared
        try:
            os.rename(temporary, entry)
            sync_directory(entry.parent)
        except OSError:
            if _open(entry) is None:  # no other writer has stored a valid entry meanwhile, so this is a real failure
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _save(array: np.ndarray, file: IO[bytes]) -> None:
    np.save(file, array, allow_pickle=False)


def _write(path: Path, save: Callable[[IO[bytes]], object]) -> None:
    with synced(path) as file:
        save(file)


def fingerprint(settings: object, files: Sequence[Path], *, read_up_to: int = 1 << 30) -> str:
    """Return 16 hex digits that identify settings and source files, as a cache key for what is decoded from the files.

    If the files have up to `read_up_to` bytes in total, the digest covers their contents. Reading larger files would
    take minutes at every start, so for them it covers paths, sizes and modification times.

    Args:
        settings: everything else that the key must depend on; its `repr` is hashed.

    Raises:
        UserError: a file does not exist, or is not a regular file.
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
