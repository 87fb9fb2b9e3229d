"""Files that are either whole or absent, whatever happens while they are written."""

from __future__ import annotations

import errno
import itertools
import json
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.core.errors import UserError

REASONS = {
    errno.ENOSPC: ("The disk is full", "Free some space and run the same command again; nothing finished is lost."),
    errno.EDQUOT: ("The disk quota is used up", "Free some space and run the same command again."),
    errno.EROFS: ("The file system is read-only", "Choose another folder with --results."),
    errno.EACCES: ("No permission to write", "Choose another folder with --results, or change its permissions."),
    errno.EPERM: ("No permission to write", "Choose another folder with --results, or change its permissions."),
    errno.ENOTDIR: ("A part of the path is a file, not a folder", "Choose another folder with --results."),
    errno.EEXIST: ("A part of the path is a file, not a folder", "Choose another folder with --results."),
    errno.EISDIR: ("A folder has the name of a file that is to be written", "Move it away, or choose another folder."),
    errno.ENAMETOOLONG: ("The path is too long", "Choose a shorter folder with --results."),
}


def explain(error: OSError, path: Path) -> UserError:
    """The user's message for a failed write."""
    what, fix = REASONS.get(error.errno or 0, (f"Writing failed ({error.strerror})", "Check the disk and try again."))
    return UserError(f"{what}: {path}", fix)


def make_directory(path: Path) -> Path:
    """Create `path` and its parents, to survive a power cut, and check that files can be written there.

    Raises:
        UserError: it cannot be created or written.
    """
    try:
        new = list(itertools.takewhile(lambda folder: not folder.exists(), (path, *path.parents)))
        path.mkdir(parents=True, exist_ok=True)
        for folder in reversed(new):
            sync_directory(folder.parent)
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(b"x")
            probe.flush()
    except OSError as error:
        raise explain(error, path) from error
    return path


def sync_directory(path: Path) -> None:
    """Make a rename inside `path` survive a power cut (POSIX needs the directory itself to be synced)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def temporary_name(path: Path) -> Path:
    """A name beside `path` that nobody else uses: the main process of every container has the same process id."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def write_bytes(path: Path, data: bytes, *, before_replace: Callable[[], None] | None = None) -> None:
    """Write `data` to a temporary name beside `path`, sync it, replace `path`, sync the folder.

    Raises:
        UserError: the disk is full, read-only, …; no partial file is left under either name.
    """
    temporary = temporary_name(path)
    try:
        with open(temporary, "xb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        if before_replace:
            before_replace()
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise explain(error, path) from error


def write_text(path: Path, text: str) -> None:
    """`write_bytes` for text, as UTF-8 with the line ends it has."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """`write_bytes` for JSON: keys sorted, NaN refused (a missing number is null)."""
    write_bytes(path, dump_json(value))


def dump_json(value: Any) -> bytes:
    """JSON bytes as this project writes them."""
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        ValueError: it cannot be read, or holds something else.
    """
    try:
        return json.loads(path.read_bytes())
    except (OSError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read ({error})") from error


def append_line(path: Path, value: Any) -> None:
    """Append one JSON line. A reader must tolerate a torn last line (see `read_lines`)."""
    try:
        with open(path, "a", encoding="utf-8") as handle:
            handle.write(json.dumps(value, sort_keys=True) + "\n")
    except OSError as error:
        raise explain(error, path) from error


def read_lines(path: Path) -> list[Any]:
    """The JSON lines of a file; a torn last line is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    values = []
    for number, line in enumerate(lines):
        try:
            values.append(json.loads(line))
        except ValueError:
            if number < len(lines) - 1:
                raise UserError(f"{path}: line {number + 1} is damaged.", "Delete the line or the file.") from None
    return values
