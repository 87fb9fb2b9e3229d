"""Atomic file writes (a file is complete or absent), and JSON files with a checksum.

All results, checkpoints, leases and caches are written here: to a temporary name beside the final one, opened
exclusively; then flush; fsync; a rename or a link; fsync of the folder. The temporary name is random, because the main
process of every container has the same process id. A writer holds a lock on its file, so leftovers of a killed process
can be distinguished from files that are being written (`remove_leftovers`).
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

SEAL = "digest"
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
    """Return a value as JSON with sorted keys and no spaces, so that equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def explain(error: OSError, path: Path) -> UserError:
    """Return the error to show the user for a failed write."""
    what, fix = REASONS.get(error.errno or 0, (f"Writing failed ({error.strerror})", "Check the disk and try again."))
    return UserError(f"{what}: {path}", fix)


# -- folders -----------------------------------------------------------------------------------------------------------


def free_bytes(path: Path) -> int:
    """Return the free bytes of the disk on which `path` lies or would be created."""
    whole = path.absolute()
    return shutil.disk_usage(next(folder for folder in (whole, *whole.parents) if folder.exists())).free


def make_directory(path: Path, *, parents: bool = True) -> Path:
    """Create the folder `path` and its parents so that they survive a power cut, and check that files can be written.

    Args:
        parents: False where a missing parent means that its file system is not mounted: the parent, if created, would
            lie on another disk.

    Raises:
        UserError: it cannot be created or written.
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
    """Return the entries of a folder; an empty list if it is not a folder or may not be read."""
    try:
        with os.scandir(folder) as there:
            return list(there)
    except OSError:
        return []


def sync_directory(path: Path) -> None:
    """Make a rename inside `path` survive a power cut (POSIX needs the directory itself to be synced)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def temporary_name(path: Path) -> Path:
    """Return a unique path beside `path` that matches `.*.tmp`. The name is cut to 200 bytes first, because file
    systems limit the bytes of a name."""
    kept = os.fsencode(path.name)[:200].decode(errors="ignore")
    return path.with_name(f".{kept}.{secrets.token_hex(8)}.tmp")


@contextlib.contextmanager
def synced(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file, which is synced to disk when the block ends; for files in a `new_directory`.

    Raises:
        OSError: the file exists already, or cannot be written.
    """
    with open(path, "xb") as handle:
        yield handle
        handle.flush()
        os.fsync(handle.fileno())


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Create a temporary folder for the block to fill; it is renamed to `path` when the block ends. If the block
    raises, the folder is deleted.

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
        owned: whether no other process writes in these folders. Where files cannot be locked, a temporary file is
            deleted only if this is true or the file is older than `ABANDONED_AFTER`.
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
    """Whether files in `folder` can be locked; on some network file systems they cannot.

    Raises:
        UserError: the folder cannot be written to.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as handle:
            return lock(handle.fileno()) is True
    except OSError as error:
        raise explain(error, folder) from error


def lock(handle: int, *, wait: bool = False) -> bool | None:
    """Try to lock an open file. Return True if it succeeded, False if another process holds the lock, None if the file
    system or the operating system has no locks. `wait`: wait for another process to release the lock."""
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
    """Open a file under a temporary name beside `path`. It is deleted when the block ends, unless it was renamed.

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
    """Open a temporary file that is synced and replaces `path` when the block ends without an error.

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
    """Ignore a false FileNotFoundError of a rename to `target` inside the block. `handle` is the open file or folder.

    A network file system whose first reply was lost repeats the rename and then finds nothing to rename. The rename
    succeeded if `target` is what is open as `handle`.
    """
    try:
        yield
    except FileNotFoundError:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(target)):
                return
        raise


def write_bytes(path: Path, data: bytes, *, before: Callable[[], None] = lambda: None) -> None:
    """Write `data` as the whole file `path`, atomically, replacing a file that is there. `before` is called just before
    the replacement.

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
    """Write `data` as a file that must not exist yet, atomically: of two writers, exactly one succeeds. `before` is
    called just before the file gets its name.

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
    """Give the file `source` the second name `target`, which must not exist yet. Where the file system has no hard
    links, the file is renamed.

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
    """Rename a file, replacing the file at `target`. It is no error if `source` is missing, because another process may
    just have moved it.

    Raises:
        UserError: it cannot be renamed.
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
    """Return a value as JSON bytes with sorted keys. NaN raises ValueError: a missing number is null."""
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """Write a value as a JSON file, atomically; see `write_bytes`."""
    write_bytes(path, dump_json(value))


def append_line(path: Path, value: Any) -> None:
    """Append a value to a file as one line of JSON. Readers must tolerate an incomplete last line.

    Raises:
        UserError: the disk is full, ….
    """
    try:
        with open(path, "a", encoding="utf-8") as handle:
            handle.write(json.dumps(value, sort_keys=True) + "\n")
    except OSError as error:
        raise explain(error, path) from error


def digest(body: Mapping[str, Any]) -> str:
    """Return the sha256 of a JSON object, computed without the entry `SEAL`, which states it."""
    return hashlib.sha256(canonical({k: v for k, v in body.items() if k != SEAL}).encode()).hexdigest()


def sealed(body: Mapping[str, Any]) -> bytes:
    """Return a JSON object as bytes, with its own sha256 in the field `SEAL`, so that a changed byte is noticed."""
    return dump_json({**body, SEAL: digest(body)})


def write_sealed(path: Path, body: Mapping[str, Any]) -> None:
    """Write a JSON object with its own sha256 (see `sealed`), atomically.

    Raises:
        UserError: the disk is full, ….
    """
    write_bytes(path, sealed(body))


def read_whole(path: Path) -> bytes:
    """Return a file's contents.

    Raises:
        OSError: the file cannot be read; is not a regular file (a pipe might never end); or is larger than
            `MOST_BYTES`, which no file written here is.
    """
    if (path.exists() and not path.is_file()) or path.stat().st_size > MOST_BYTES:
        raise OSError(errno.EINVAL, "it is not a file, or too large", str(path))
    return path.read_bytes()


def read_sealed(path: Path, *, legacy_fields: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Read a file that `write_sealed` wrote, verify its sha256, and return the object without the field `SEAL`.

    Args:
        legacy_fields: a file without a sha256 is accepted if it has only these fields: it was written before such files
            were sealed.

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
