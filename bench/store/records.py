"""Records: what a finished cell leaves. A record that exists and verifies means that the cell is done."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import SCHEMA_VERSION
from bench.core import files
from bench.core.errors import UserError
from bench.core.spec import canonical
from bench.store import faults

REQUIRED = ("suite", "cell_id", "directory", "cell", "revisions", "status", "cost", "env", "attempts", "horizons")
READ = ("schema", "status", "reason", "directory", "digest")
STATUSES = ("complete", "diverged", "oom", "failed")
FIELD = re.compile(rb'^[{]?"(\w+)":(.*)', re.MULTILINE)
"""Fields of a record and their values, as `to_bytes` writes them: one to a line."""

LONG_INTEGER = re.compile(rb":\d{19}")


class DamagedRecord(UserError):
    """A record that is torn, altered, incomplete, or of another cell than its folder's."""


def digest(body: dict[str, Any]) -> str:
    """sha256 of the record without its own digest."""
    return hashlib.sha256(canonical({k: v for k, v in body.items() if k != "digest"}).encode()).hexdigest()


def to_bytes(body: dict[str, Any]) -> bytes:
    """A record as it is written: canonical JSON, with every field on a line of its own."""
    return ("{" + ",\n".join(f'"{key}":{canonical(body[key])}' for key in sorted(body)) + "}\n").encode()


def written_digest(data: bytes, stated: str) -> str | None:
    """`digest` of a record from its file's bytes, many times faster than from what they stand for: the canonical text
    is what `to_bytes` wrote without its line ends (JSON has none inside strings) and without the digest's own entry.
    None where it is not that text."""
    text, entry = data.replace(b"\n", b""), f'"digest":"{stated}",'.encode()
    return hashlib.sha256(text.replace(entry, b"")).hexdigest() if text.count(entry) == 1 else None


def write_record(path: Path, body: dict[str, Any]) -> None:
    """Write a record atomically, with its schema version and digest. This is the last act of a cell."""
    full = {"schema": SCHEMA_VERSION, **body}
    full = json.loads(json.dumps(full, allow_nan=False))  # tuples to lists before the digest, as a reader will see it
    full["digest"] = digest(full)
    files.write_bytes(path, to_bytes(full), before_replace=lambda: faults.reach("record-before-replace"))
    faults.reach("record-after-replace")


def read_record(path: Path, *, of: str | None = None) -> dict[str, Any]:
    """Read and verify a record.

    Args:
        of: the cell's folder, which the record must name; None takes a record from anywhere.

    Raises:
        FileNotFoundError: there is none.
        UserError: written by a newer version of the project.
        DamagedRecord: no file, not JSON, a changed byte, a missing field, of another cell.
    """
    data = _bytes(path)
    try:
        body = _parse(data)
    except ValueError as error:
        raise DamagedRecord(f"{path} is damaged: not valid JSON ({error}).", MEND) from error
    if not isinstance(body, dict) or not isinstance(body.get("schema"), int):
        raise DamagedRecord(f"{path} is damaged: it has no schema version.", MEND)
    check_schema(path, body["schema"])
    stated = str(body.get("digest"))
    if written_digest(data, stated) != stated and digest(body) != stated:
        raise DamagedRecord(f"{path} is damaged: its contents do not match its digest.", MEND)
    missing = [key for key in REQUIRED if key not in body]
    if missing or body["status"] not in STATUSES:
        raise DamagedRecord(f"{path} is damaged: missing or wrong {', '.join(missing) or 'status'}.", MEND)
    if of not in (None, body["directory"]):  # copied, or in a folder that was renamed: no result of this cell
        raise DamagedRecord(f"{path} is damaged: it is the record of another cell, {body['directory']}.", MEND)
    return body


def _bytes(path: Path) -> bytes:
    """What a record's file holds. A folder or a pipe of its name is none; nor is what the disk does not give back."""
    if path.exists() and not path.is_file():
        raise DamagedRecord(f"{path} is damaged: it is not a file.", MEND)
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise DamagedRecord(f"{path} is damaged: it cannot be read ({error.strerror}).", MEND) from error


def _parse(data: bytes) -> Any:
    """What `json.loads` gives, three times faster where orjson is: FLOPs of large studies pass 64 bits, and it rounds
    those."""
    try:
        import orjson  # here: commands that only look at states start sooner without it
    except ImportError:  # not installed: the same, slower
        return json.loads(data.decode())
    return json.loads(data.decode()) if LONG_INTEGER.search(data) else orjson.loads(data)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a cell ended, with the reason where it is not complete."""

    status: str
    reason: str | None


def read_outcome(path: Path, *, of: str | None = None) -> Outcome:
    """How a cell ended, from a record verified as strictly as `read_record` does, without parsing all of it: a plan of
    a thousand cells reads a thousand.

    Args and Raises:
        As `read_record`.
    """
    data = _bytes(path)
    lines = FIELD.findall(data)
    fields = {key.decode(): value for key, value in lines}
    try:
        schema, status, reason, directory, stated = (json.loads(fields[key].rstrip(b",}")) for key in READ)
        known = isinstance(schema, int) and schema <= SCHEMA_VERSION and status in STATUSES
        whole = len(fields) == len(lines) and fields.keys() >= set(REQUIRED)
        if known and whole and of in (None, directory) and written_digest(data, stated) == stated:
            return Outcome(status=status, reason=reason)
    except (KeyError, ValueError):
        pass
    body = read_record(path, of=of)  # written otherwise, or damaged: this says how
    return Outcome(status=body["status"], reason=body.get("reason"))


MEND = "Run the study again: the cell is repeated and the damaged file is kept beside it."


def check_schema(path: Path, version: int) -> None:
    """Refuse what a newer version wrote.

    Raises:
        UserError: `version` is newer than this project's.
    """
    if version > SCHEMA_VERSION:
        raise UserError(
            f"{path} was written by a newer version of this project "
            f"(schema {version}; this one reads up to {SCHEMA_VERSION}).",
            "Update the project, or choose another folder with --results.",
        )
