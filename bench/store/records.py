"""Read and write records on disk: the only code that turns a `Record` into JSON and JSON into a `Record`.

A record verifies if it is complete and its contents match its digest. A cell (a training run with its evaluations) is
done if its record exists, verifies, and does not state a failure.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from bench import SCHEMA_VERSION
from bench.core import files
from bench.core.errors import UserError
from bench.core.files import canonical, digest
from bench.store import faults
from bench.store.prediction_bits import restore_groups, share_groups
from bench.study.cell import Cell, cell_from_json, to_json
from bench.study.record import STATUSES, Cost, Record, Score, Scores

Json = dict[str, Any]
Kind = TypeVar("Kind")

REQUIRED = (
    *("suite", "cell_id", "directory", "cell", "revisions", "status", "cost", "attempts", "horizons"),
    *("environment", "execution", "model", "data"),
)
"""Fields without which a record is damaged."""
OLDEST_SCHEMA = 2
READ = ("schema", "status", "reason", "directory", "digest")  # the fields that `read_outcome` parses first
FIELD = re.compile(rb'^[{]?"(\w+)":(.*)', re.MULTILINE)
"""Matches a field of a record and its value, as `to_bytes` writes them: one field to a line."""

AS_ZEROS, LONG = bytes.maketrans(b"123456789", b"0" * 9), b"0" * 19
BEFORE_NUMBERS = b" \t\n\r:,[-"
DAMAGED_FIX = "Run the study again: the run is repeated and the damaged file is kept beside it."


class DamagedRecord(UserError):
    """Raised for a record that is truncated, altered or incomplete, or that belongs to another cell than its folder.

    Attributes:
        reason: what is wrong with the record, without its path.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} is damaged: {reason}", DAMAGED_FIX)
        self.reason = reason


# -- writing -----------------------------------------------------------------------------------------------------------


def write_record(path: Path, record: Record, *, new: bool = False) -> None:
    """Write a record atomically, with its schema version and digest. A cell is done once this has succeeded.

    Args:
        path: file of the record.
        new: whether to refuse to replace an existing record, so that only one of two writers succeeds.

    Raises:
        FileExistsError: `new` is true and there is a record already.
        ValueError: a number is not finite.
        UserError: the record cannot be written (the disk is full, …).
    """
    body = {"schema": SCHEMA_VERSION, **to_json(record)}
    body = json.loads(json.dumps(body, allow_nan=False))  # tuples to lists before the digest, as a reader will see it
    share_groups(body)
    body["digest"] = digest(body)
    write = files.write_new if new else files.write_bytes
    write(path, to_bytes(body), before=lambda: faults.reach("record-before-replace"))
    faults.reach("record-after-replace")


def changed(path: Path, change: Callable[[Json], Json]) -> bytes:
    """Return the bytes that the file of a record would have after a change, with a new digest. The file is not written.

    Args:
        path: file of the record.
        change: JSON of the record, without a digest -> changed JSON.

    Raises:
        UserError: the record cannot be read (see `read_record`).
    """
    read_record(path)
    body = _parse(_bytes(path))
    body.pop("digest", None)
    body = change(body)
    body["digest"] = digest(body)
    return to_bytes(body)


def to_bytes(body: Json) -> bytes:
    """Return the JSON of a record as the bytes of its file: canonical JSON, with every field on a line of its own."""
    return ("{" + ",\n".join(f'"{key}":{canonical(body[key])}' for key in sorted(body)) + "}\n").encode()


def written_digest(data: bytes, stated: str) -> str | None:
    """Compute the digest of a record (see `bench.core.files.digest`) from the bytes of its file, `data`, many times
    faster than from the parsed record.

    The digest is over the canonical text, which is what `to_bytes` wrote without line ends (JSON has none inside
    strings) and without the entry of the digest itself.

    Args:
        stated: the digest that the file states.

    Returns:
        The digest; None if the file does not contain the entry with `stated` exactly once.
    """
    text, entry = data.replace(b"\n", b""), f'"digest":"{stated}",'.encode()
    return hashlib.sha256(text.replace(entry, b"")).hexdigest() if text.count(entry) == 1 else None


# -- reading -----------------------------------------------------------------------------------------------------------


def read_record(path: Path, *, of: str | None = None) -> Record:
    """Read a record from its file, verify it, and return it.

    Args:
        of: name of the cell's folder, which the record must state as its own; None: a record of any cell is accepted.

    Raises:
        FileNotFoundError: there is no record.
        UserError: a newer version of the project wrote the record.
        DamagedRecord: the record is not a regular file, is not JSON, has a changed byte, lacks a field, belongs to
            another cell, or has an old schema that is no longer read.
    """
    data = _bytes(path)
    try:
        body = _parse(data)
    except ValueError as error:
        raise DamagedRecord(path, f"not valid JSON ({error}).") from error
    if not isinstance(body, dict) or not isinstance(body.get("schema"), int):
        raise DamagedRecord(path, "it has no schema version.")
    check_schema(path, body["schema"])
    if body["schema"] < OLDEST_SCHEMA:
        raise DamagedRecord(path, f"it has schema {body['schema']}, which is no longer read.")
    stated = str(body.get("digest"))
    if written_digest(data, stated) != stated and digest(body) != stated:
        raise DamagedRecord(path, "its contents do not match its digest.")
    missing = [key for key in REQUIRED if key not in body]
    if missing or body["status"] not in STATUSES:
        raise DamagedRecord(path, f"missing or wrong {', '.join(missing) or 'status'}.")
    if of not in (None, body["directory"]):  # copied, or its folder was renamed: not this cell's result
        raise DamagedRecord(path, f"it is the record of another run, {body['directory']}.")
    try:
        if b'"grouped"' in data:
            restore_groups(body)
        return from_json(body)
    except (LookupError, TypeError, ValueError, AttributeError, UserError) as error:
        why = f"field {error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error).partition("\n")[0]
        raise DamagedRecord(path, f"{why}.") from error


def from_json(body: Json) -> Record:
    """Return the record from its JSON object.

    Raises:
        LookupError, TypeError, ValueError, AttributeError: a field is missing or of the wrong type.
        UserError: this version of the project does not understand the record's cell.
    """
    return build(Record, body)


def _bytes(path: Path) -> bytes:
    """Return the contents of a record's file.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such file.
        DamagedRecord: it is not a regular file, or cannot be read.
    """
    try:
        return files.read_whole(path)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise DamagedRecord(path, f"it cannot be read ({error.strerror}).") from error


def _parse(data: bytes) -> Any:
    """Parse JSON as `json.loads` does, but three times faster if orjson is installed.

    JSON with integers of more than 64 bits (FLOPs of large studies) is parsed by `json`, because orjson rounds them.
    """
    try:
        import orjson  # imported here: commands that only look at states start sooner without it
    except ImportError:  # without orjson the result is the same, only slower
        return json.loads(data.decode())
    return json.loads(data.decode()) if _has_long_integer(data) else orjson.loads(data)


def _has_long_integer(data: bytes) -> bool:
    """Return whether an integer in JSON `data` may have more than 64 bits. This is twelve times faster than a regular
    expression, which took longer than parsing."""
    zeros, at = data.translate(AS_ZEROS), -1
    while (at := zeros.find(LONG, at + 1)) >= 0:
        if data[at - 1 : at] and data[at - 1] in BEFORE_NUMBERS:
            return True
        while zeros[at : at + len(LONG)] == LONG:  # digits of a hash, or after a decimal point
            at += len(LONG)
    return False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a cell ended, and how long it took.

    Attributes:
        status: "complete", "diverged", "oom" (out of memory) or "failed".
        reason: why the status is not "complete"; None if it is.
        seconds, processor_seconds: wall-clock and processor seconds of the cell; None if not known.
    """

    status: str
    reason: str | None
    seconds: float | None = None
    processor_seconds: float | None = None


def read_outcome(path: Path, *, of: str | None = None) -> Outcome:
    """Return how a cell ended, from the file of its record. Arguments and errors are those of `read_record`.

    The record is verified as strictly as `read_record` does, but only a few of its fields are parsed, because a plan of
    a thousand cells reads a thousand records.
    """
    data = _bytes(path)
    lines = FIELD.findall(data)
    values = {key.decode(): value for key, value in lines}
    try:
        schema, status, reason, directory, stated = (json.loads(values[key].rstrip(b",}")) for key in READ)
        known = schema == SCHEMA_VERSION and status in STATUSES
        whole = len(values) == len(lines) and values.keys() >= set(REQUIRED)
        if known and whole and of in (None, directory) and written_digest(data, stated) == stated:
            spent = build(Cost, json.loads(values["cost"].rstrip(b",")))
            seconds, processor = spent.seconds.total, spent.processor_seconds
            return Outcome(status=status, reason=reason, seconds=seconds, processor_seconds=processor)
    except (LookupError, TypeError, ValueError, AttributeError):
        pass
    record = read_record(path, of=of)  # has another layout, or is damaged, which this reports
    seconds, processor = record.cost.seconds.total, record.cost.processor_seconds
    return Outcome(status=record.status, reason=record.reason, seconds=seconds, processor_seconds=processor)


def check_schema(path: Path, version: int, *, newest: int = SCHEMA_VERSION) -> None:
    """Refuse a file that a newer version of the project wrote.

    Args:
        version: the schema that the file states.
        newest: the newest schema that this version of the project can read.

    Raises:
        UserError: `version` is above `newest`.
    """
    if version > newest:
        raise UserError(
            f"{path} was written by a newer version of this project (schema {version}; this one reads up to {newest}).",
            "Update the project, or choose another folder with --results.",
        )


# -- JSON types to dataclasses -----------------------------------------------------------------------------------------


def build(kind: type[Kind], body: Mapping[str, Any]) -> Kind:
    """Return an object of the dataclass `kind`, made from a JSON object by converting each value to its field's type.

    Fields that `body` lacks get their defaults; entries of `body` that are no fields of the dataclass are ignored.

    Raises:
        KeyError: a field without a default is missing.
        TypeError, …: a field has a value of the wrong type.
    """
    made = object.__new__(kind)
    for name, put, convert, default, make in _plan(kind):  # type: ignore[arg-type]  # a type is hashable
        if name in body:
            value = body[name]
            if convert is not None and value is not None:
                value = convert(value)
        elif make is not None:
            value = make()
        elif default is MISSING:
            raise KeyError(name)
        else:
            value = default
        put(made, value)
    if hasattr(made, "__post_init__"):  # as the dataclass's own __init__ does
        made.__post_init__()
    return made


def _one_of_a_kind(value: Any) -> Any:
    return sys.intern(value) if type(value) is str else value


@functools.cache
def _plan(kind: type) -> list[tuple[str, Callable[[Any, Any], None], Callable[[Any], Any] | None, Any, Any]]:
    """Return (name, setter, converter from JSON or None, default or MISSING, default factory or None) of each field of
    a dataclass.

    Setting fields by such setters takes a third of the time of a frozen dataclass's own __init__, which matters because
    a large study has millions of scores.
    """
    hints = typing.get_type_hints(kind)
    return [
        (
            f.name,
            getattr(kind, f.name).__set__ if "__slots__" in kind.__dict__ else functools.partial(_put, name=f.name),
            _converter(hints[f.name]),
            f.default,
            None if f.default_factory is MISSING else f.default_factory,
        )
        for f in fields(kind)  # type: ignore[arg-type]
        if f.init
    ]


def _put(made: Any, value: Any, *, name: str) -> None:
    object.__setattr__(made, name, value)


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    """Return the function that converts a JSON value to the annotated type `hint`; None if no conversion is needed."""
    arguments = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return next((c for c in map(_converter, arguments) if c is not None), None)
    if typing.get_origin(hint) is tuple:
        inner = _converter(arguments[0])
        return tuple if inner is None else lambda items: tuple(inner(item) for item in items)
    if hint is Cell:
        return cell_from_json
    if hint == Sequence[Score]:
        return Scores.of_json
    if hint is str:  # every score has three of a few names: interned, thousands of records share one copy of each
        return _one_of_a_kind
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    if is_dataclass(hint):
        return functools.partial(build, typing.cast(type, hint))
    return None
