"""Atomic file writes (a file is complete or absent), and JSON files with a checksum.

All results, checkpoints, leases (claims of a cell by a process) and caches are written by these functions. A file is
created exclusively under a temporary name beside the final one; then follow flush, fsync, a rename or a link to the
final name, and fsync of the folder. The temporary name is random, because the main process of every container has the
same process id. A writer holds a lock on its file, so leftovers of a killed process can be distinguished from files
that are being written (`remove_leftovers`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from bench.core.errors import UserError

try:
    import fcntl
except ImportError:  # not POSIX, so files cannot be locked
    fcntl = None  # type: ignore[assignment]

SEAL = "digest"  # the entry of a JSON object that holds the sha256 of the others
MOST_BYTES = 1 << 30  # largest file that `read_whole` reads
ABANDONED_AFTER = (
    7 * 86_400.0
)  # seconds after which a temporary file counts as left behind, where files cannot be locked
NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)
REASONS = {
    errno.ENOSPC: ("The disk is full", "Free some space and run the same command again; nothing finished is lost."),
    errno.EDQUOT: ("The disk quota is used up", "Free some space and run the same command again."),
    errno.EROFS: (
        "The file system is read-only",
        "Choose another folder with --results; of a study that is there, report a copy.",
    ),
    errno.ENOENT: ("No folder or file can be made there", "Choose another folder with --results."),
    errno.EACCES: ("No permission to write", "Choose another folder with --results, or change its permissions."),
    errno.EPERM: ("No permission to write", "Choose another folder with --results, or change its permissions."),
    errno.ENOTDIR: ("A part of the path is a file, not a folder", "Choose another folder with --results."),
    errno.EEXIST: ("A part of the path is a file, not a folder", "Choose another folder with --results."),
    errno.EISDIR: ("A folder has the name of a file that is to be written", "Move it away, or choose another folder."),
    errno.ENAMETOOLONG: ("The path is too long", "Choose a shorter folder with --results."),
}


def canonical(value: Any) -> str:
    """Return a value as JSON text with sorted keys and without spaces, so that equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def explain(error: OSError, path: Path) -> UserError:
    """Return the error to show to the user for a failed write. `path`: the file or folder that was written."""
    what, fix = REASONS.get(error.errno or 0, (f"Writing failed ({error.strerror})", "Check the disk and try again."))
    return UserError(f"{what}: {path}", fix)


# -- folders -----------------------------------------------------------------------------------------------------------


def free_bytes(path: Path) -> int:
    """Return the number of free bytes on the disk on which `path` lies or would be created."""
    whole = path.absolute()
    return shutil.disk_usage(next(folder for folder in (whole, *whole.parents) if folder.exists())).free


def make_directory(path: Path, *, parents: bool = True) -> Path:
    """Create the folder `path` and its parents so that they survive a power cut, check that files can be written in it,
    and return `path`.

    Args:
        parents: whether to create missing parents. If not, a missing parent is an error: its file system may not be
            mounted, and a new folder would lie on another disk.

    Raises:
        UserError: the folder cannot be created, or files cannot be written in it.
    """
    try:
        new = list(itertools.takewhile(lambda folder: not folder.exists(), (path, *path.parents)))
        path.mkdir(parents=parents, exist_ok=True)
        for folder in reversed(new):
            sync_directory(folder.parent)
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(b"x")
            probe.flush()
    except OSError as error:
        raise explain(error, path) from error
    return path


def entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; an empty list if there is no such folder or it may not be read."""
    try:
        with os.scandir(folder) as there:
            return list(there)
    except OSError:
        return []


def sync_directory(path: Path) -> None:
    """Make a rename inside the folder `path` survive a power cut; POSIX requires that the folder itself is synced."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def temporary_name(path: Path) -> Path:
    """Return a unique path beside `path` whose name matches `.*.tmp`. It contains the name of `path`, cut to 200 bytes,
    because file systems limit the bytes of a name."""
    kept = os.fsencode(path.name)[:200].decode(errors="ignore")
    return path.with_name(f".{kept}.{secrets.token_hex(8)}.tmp")


@contextlib.contextmanager
def synced(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file for writing, and sync it to disk when the block ends. Meant for files in a `new_directory`, which
    is complete or absent as a whole.

    Raises:
        OSError: the file exists already, or cannot be written.
    """
    with open(path, "xb") as handle:
        yield handle
        handle.flush()
        os.fsync(handle.fileno())


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Create a temporary folder, yield its path for the block to fill, and rename it to `path` when the block ends. If
    the block raises an error, the folder is deleted.

    Raises:
        OSError: a write failed, or `path` exists already and is not an empty folder.
    """
    temporary = temporary_name(path)
    temporary.mkdir()
    try:
        handle = os.open(temporary, os.O_RDONLY)
        try:
            lock(handle)
            yield temporary
            os.fsync(handle)
            with _renaming(handle, path):
                os.rename(temporary, path)
        finally:
            os.close(handle)
        sync_directory(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def remove_leftovers(*folders: Path, owned: bool = False) -> None:
    """Delete what killed processes left half-written in `folders`: temporary files and folders that nobody has locked.

    Args:
        owned: True if no other process writes in these folders. Where files cannot be locked, a temporary file is
            deleted only if `owned` is True or the file is older than `ABANDONED_AFTER` seconds.
    """
    for path in [path for folder in folders for path in folder.glob(".*.tmp")]:
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                free = lock(handle)
                if free or (free is None and (owned or time.time() - os.fstat(handle).st_mtime > ABANDONED_AFTER)):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            finally:
                os.close(handle)


def has_locks(folder: Path) -> bool:
    """Return whether files in `folder` can be locked; on some network file systems they cannot.

    Raises:
        UserError: the folder cannot be written to.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as handle:
            return lock(handle.fileno()) is True
    except OSError as error:
        raise explain(error, folder) from error


def lock(handle: int, *, wait: bool = False) -> bool | None:
    """Try to lock an open file exclusively. Return True if it is locked now, False if another process holds the lock,
    None if the file system or the operating system has no locks.

    Args:
        handle: descriptor of the file.
        wait: whether to wait until another process that holds the lock releases it.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return True
    except BlockingIOError:
        return False
    except OSError:
        return None


# -- files -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def temporary_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file under a temporary name beside `path`. When the block ends, the file is deleted unless it was
    renamed.

    Raises:
        OSError: the file cannot be created.
    """
    handle = _create(path)
    try:
        with handle:
            yield handle
    finally:
        Path(handle.name).unlink(missing_ok=True)


def _create(path: Path) -> IO[bytes]:
    while True:
        handle = open(temporary_name(path), "xb")  # noqa: SIM115 - closed by the caller
        lock(handle.fileno(), wait=True)
        if os.path.exists(handle.name):
            return handle
        handle.close()  # another process found it before it was locked, and deleted it as a leftover


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file for writing. When the block ends without an error, the file is synced and replaces `path`.

    Raises:
        OSError: the disk is full, or the file cannot be written for another reason.
    """
    with temporary_file(path) as handle:
        yield handle
        handle.flush()
        os.fsync(handle.fileno())
        with _renaming(handle.fileno(), path):
            os.replace(handle.name, path)
        sync_directory(path.parent)


@contextlib.contextmanager
def _renaming(handle: int, target: Path) -> Iterator[None]:
    """Ignore a FileNotFoundError of a rename to `target` inside the block if the rename has succeeded all the same.

    A network file system whose first reply was lost repeats the rename and then finds nothing to rename. The rename
    has succeeded if `target` is the file or folder that is open under the descriptor `handle`.
    """
    try:
        yield
    except FileNotFoundError:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(target)):
                return
        raise


def write_bytes(path: Path, data: bytes, *, before: Callable[[], None] = lambda: None) -> None:
    """Write `data` as the whole file `path`, atomically, replacing a file that is there.

    Args:
        before: is called just before the file gets its final name; if it raises, nothing is written.

    Raises:
        UserError: the disk is full, read-only, …; no partial file is left, under the final or the temporary name.
    """
    try:
        with replacing(path) as handle:
            handle.write(data)
            handle.flush()
            before()
    except OSError as error:
        raise explain(error, path) from error


def write_new(path: Path, data: bytes, *, before: Callable[[], None] = lambda: None) -> None:
    """Write `data` as a file that must not exist yet, atomically: of two writers, exactly one succeeds.

    Args:
        before: is called just before the file gets its final name; if it raises, nothing is written.

    Raises:
        FileExistsError: the file exists.
        UserError: the disk is full, …; no file is left.
    """
    try:
        with temporary_file(path) as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
            before()
            link_new(Path(handle.name), path)
            try:
                sync_directory(path.parent)
            except OSError:  # this is reported as a failure, so the file must not remain and look like a success
                with contextlib.suppress(OSError):
                    if os.path.samestat(os.fstat(handle.fileno()), os.stat(path)):
                        path.unlink()
                raise
    except FileExistsError:
        raise
    except OSError as error:
        raise explain(error, path) from error


def link_new(source: Path, target: Path) -> None:
    """Give the file `source` a second name, `target`, which must not exist yet. If the file system has no hard links,
    the file is renamed to `target` instead.

    Raises:
        FileExistsError: `target` exists.
        OSError: the link or the rename failed for another reason.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        if not os.path.samefile(source, target):  # same file: a network file system carried the request out twice
            raise
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        os.replace(source, target)


def move(source: Path, target: Path) -> None:
    """Rename a file, replacing the file at `target`. A missing `source` is no error, because another process may just
    have moved it.

    Raises:
        UserError: the file cannot be renamed.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            os.replace(source, target)
        sync_directory(target.parent)
    except OSError as error:
        raise explain(error, target) from error


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


# -- JSON --------------------------------------------------------------------------------------------------------------


def dump_json(value: Any) -> bytes:
    """Return a value as JSON bytes with sorted keys, indented.

    Raises:
        ValueError: a number is NaN or infinite; a missing number is None (null).
    """
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """Write a value as a JSON file, atomically; see `write_bytes`."""
    write_bytes(path, dump_json(value))


def append_line(path: Path, value: Any) -> None:
    """Append a value to a file as one line of JSON. Readers must tolerate an incomplete last line.

    Raises:
        UserError: the file cannot be written (the disk is full, …).
    """
    try:
        with open(path, "a", encoding="utf-8") as handle:
            handle.write(json.dumps(value, sort_keys=True) + "\n")
    except OSError as error:
        raise explain(error, path) from error


def digest(body: Mapping[str, Any]) -> str:
    """Return the sha256 of a JSON object in hexadecimal, computed without the entry `SEAL`, which holds this sha256."""
    return hashlib.sha256(canonical({k: v for k, v in body.items() if k != SEAL}).encode()).hexdigest()


def sealed(body: Mapping[str, Any]) -> bytes:
    """Return a JSON object as bytes with its own sha256 in the entry `SEAL`, so that a changed byte can be noticed."""
    return dump_json({**body, SEAL: digest(body)})


def write_sealed(path: Path, body: Mapping[str, Any]) -> None:
    """Write a JSON object with its own sha256 (see `sealed`) as a file, atomically.

    Raises:
        UserError: the file cannot be written (the disk is full, …).
    """
    write_bytes(path, sealed(body))


def read_whole(path: Path) -> bytes:
    """Return a file's contents.

    Raises:
        OSError: the file cannot be read, is not a regular file (reading a pipe might never end), or is larger than
            `MOST_BYTES`, so that it cannot be a file that this project wrote.
    """
    if (path.exists() and not path.is_file()) or path.stat().st_size > MOST_BYTES:
        raise OSError(errno.EINVAL, "it is not a file, or too large", str(path))
    return path.read_bytes()


def read_sealed(path: Path, *, legacy_fields: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Read a file that `write_sealed` wrote, verify its sha256, and return the object without the entry `SEAL`.

    Args:
        legacy_fields: a file without a sha256 is accepted if it has no other entries than these: early versions of the
            project wrote such files without a sha256.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is incomplete or was altered.
    """
    try:
        body = json.loads(read_whole(path).decode())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(body, dict):
        raise ValueError("it holds no object")
    stated = body.pop(SEAL, None)
    if stated is None and body.keys() <= legacy_fields:
        return body
    if stated != digest(body):
        raise ValueError("its contents do not match its digest")
    return body
