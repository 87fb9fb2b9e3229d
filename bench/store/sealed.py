"""JSON files that notice a changed byte: their own sha256 is one of their fields."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.core.spec import canonical
from bench.store import atomic

SEAL = "digest"


def write(path: Path, body: Mapping[str, Any]) -> None:
    """Write a JSON object with its seal, atomically.

    Raises:
        UserError: the disk is full, ….
    """
    atomic.write_bytes(path, to_bytes(body))


def to_bytes(body: Mapping[str, Any]) -> bytes:
    """A JSON object with its seal, as `write` writes it."""
    return atomic.dump_json({**body, SEAL: _digest(body)})


def read(path: Path, *, before: frozenset[str]) -> dict[str, Any]:
    """The object as it was written, without its seal.

    Args:
        before: fields that such a file had before files were sealed; one with these alone is taken as it is.

    Raises:
        OSError: it cannot be read.
        ValueError: it is torn or altered.
    """
    body = json.loads(path.read_bytes().decode())
    if not isinstance(body, dict):
        raise ValueError("it holds no object")
    stated = body.pop(SEAL, None)
    if stated is None and body.keys() <= before:
        return body
    if stated != _digest(body):
        raise ValueError("its contents do not match its digest")
    return body


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(dict(body)).encode()).hexdigest()
