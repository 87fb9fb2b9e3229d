"""Atomic file writes (a file is complete or absent), and JSON files with a checksum.

The one place where results, checkpoints, leases and caches are written: a temporary name beside the final one, opened
exclusively; flush; fsync; a rename or a link; fsync of the folder. The name is random: the main process of every
container has the same process id. A writer holds a lock on its file, so leftovers of a killed process can be
distinguished from files that are being written (`remove_leftovers`).
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
except ImportError:  # not POSIX: no file can be locked
    fcntl = None  # type: ignore[assignment]

SEAL = "digest"
MOST_BYTES = 1 << 30  # of a file that is read as a whole
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
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def explain(error: OSError, path: Path) -> UserError:
    """The user's message for a failed write."""
    what, fix = REASONS.get(error.errno or 0, (f"Writing failed ({error.strerror})", "Check the disk and try again."))
    return UserError(f"{what}: {path}", fix)


# -- folders -----------------------------------------------------------------------------------------------------------


def free_bytes(path: Path) -> int:
    """Free space where `path` is, or would be made."""
    whole = path.absolute()
    return shutil.disk_usage(next(folder for folder in (whole, *whole.parents) if folder.exists())).free


def make_directory(path: Path, *, parents: bool = True) -> Path:
    """Create `path` and its parents, to survive a power cut, and check that files can be written there.

    Args:
        parents: False where a missing parent means that the file system is gone: remade, it would lie on another disk.

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
    """Entries of a folder; none where it is no folder or may not be read."""
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
    """A unique name beside `path`; `.*.tmp` finds such names. File systems count the bytes of a name."""
    kept = os.fsencode(path.name)[:200].decode(errors="ignore")
    return path.with_name(f".{kept}.{secrets.token_hex(8)}.tmp")


@contextlib.contextmanager
def synced(path: Path) -> Iterator[IO[bytes]]:
    """A new file in a `new_directory`, on the disk when the block ends. Raises OSError."""
    with open(path, "xb") as handle:
        yield handle
        handle.flush()
        os.fsync(handle.fileno())


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A folder to be filled, which takes the name `path` when the block ends; nothing is left where it raises.

    Raises:
        OSError: also where `path` is there already, unless it is an empty folder.
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
    """Remove what killed processes left half-written in `folders`: temporary names on which nobody holds a lock.

    Args:
        owned: nobody else has any business there. Where files cannot be locked, only this or age can tell.
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
    """Whether files in `folder` can be locked: on some network file systems none can.

    Raises:
        UserError: it cannot be written.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as handle:
            return lock(handle.fileno()) is True
    except OSError as error:
        raise explain(error, folder) from error


def lock(handle: int, *, wait: bool = False) -> bool | None:
    """Take the lock of an open file; False where another has it, None where the file system or this system has none."""
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
    """An open file under a temporary name beside `path`; it is gone when the block ends, unless it was renamed.

    Raises:
        OSError: it cannot be created.
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
        handle.close()  # somebody found it before it was locked, and took it for a leftover


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """An open file that takes the place of `path`, synced, when the block ends without an error.

    Raises:
        OSError: the disk is full, ….
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
    """Rename what is open as `handle` in this block. A network file system that lost its first answer asks again, and
    then says that there is nothing to rename: what was renamed is there."""
    try:
        yield
    except FileNotFoundError:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(target)):
                return
        raise


def write_bytes(path: Path, data: bytes, *, before: Callable[[], None] = lambda: None) -> None:
    """Write a whole file in place of `path`.

    Raises:
        UserError: the disk is full, read-only, …; no partial file is left under either name.
    """
    try:
        with replacing(path) as handle:
            handle.write(data)
            handle.flush()
            before()
    except OSError as error:
        raise explain(error, path) from error


def write_new(path: Path, data: bytes, *, before: Callable[[], None] = lambda: None) -> None:
    """Write a whole file that must not be there yet: of two writers, one succeeds.

    Raises:
        FileExistsError: it is there.
        UserError: the disk is full, …; nothing is left.
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
            except OSError:  # reported as a failure, so nobody may find it and take it for a success
                with contextlib.suppress(OSError):
                    if os.path.samestat(os.fstat(handle.fileno()), os.stat(path)):
                        path.unlink()
                raise
    except FileExistsError:
        raise
    except OSError as error:
        raise explain(error, path) from error


def link_new(source: Path, target: Path) -> None:
    """Give a file a second name that nothing has yet; where the file system knows no links, that name alone.

    Raises:
        FileExistsError: something has that name.
        OSError: …
    """
    try:
        os.link(source, target)
    except FileExistsError:
        if not os.path.samefile(source, target):  # else a network file system answered twice
            raise
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        os.replace(source, target)


def move(source: Path, target: Path) -> None:
    """Rename a file to where it belongs, in place of what is there. One that has just been moved is no error.

    Raises:
        UserError: it cannot be.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            os.replace(source, target)
        sync_directory(target.parent)
    except OSError as error:
        raise explain(error, target) from error


def file_sha256(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


# -- JSON --------------------------------------------------------------------------------------------------------------


def dump_json(value: Any) -> bytes:
    """JSON bytes as this project writes them: keys sorted, NaN refused (a missing number is null)."""
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """`write_bytes` for JSON."""
    write_bytes(path, dump_json(value))


def append_line(path: Path, value: Any) -> None:
    """Append one JSON line. A reader must tolerate a torn last line.

    Raises:
        UserError: the disk is full, ….
    """
    try:
        with open(path, "a", encoding="utf-8") as handle:
            handle.write(json.dumps(value, sort_keys=True) + "\n")
    except OSError as error:
        raise explain(error, path) from error


def digest(body: Mapping[str, Any]) -> str:
    """sha256 of a JSON object without the entry that states it."""
    return hashlib.sha256(canonical({k: v for k, v in body.items() if k != SEAL}).encode()).hexdigest()


def sealed(body: Mapping[str, Any]) -> bytes:
    """A JSON object with its own sha256 among its fields, so that a changed byte is noticed."""
    return dump_json({**body, SEAL: digest(body)})


def write_sealed(path: Path, body: Mapping[str, Any]) -> None:
    """Write a JSON object with its seal, atomically.

    Raises:
        UserError: the disk is full, ….
    """
    write_bytes(path, sealed(body))


def read_whole(path: Path) -> bytes:
    """A file's contents.

    Raises:
        OSError: it cannot be read, is a pipe, which might never end, or larger than all that is written here.
    """
    if (path.exists() and not path.is_file()) or path.stat().st_size > MOST_BYTES:
        raise OSError(errno.EINVAL, "it is not a file, or too large", str(path))
    return path.read_bytes()


def read_sealed(path: Path, *, legacy_fields: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The object as it was written, without its seal.

    Args:
        legacy_fields: accept an unsealed file that has only these: it was written before such files were sealed.

    Raises:
        OSError: it cannot be read.
        ValueError: it is torn or altered.
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
