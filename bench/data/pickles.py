"""Reads pickles of plain values and uint8 arrays, such as CIFAR's, and nothing else.

A pickle is a program. This reader runs it with a handful of harmless names: those that rebuild numpy arrays and bytes.
Whatever else it asks for is refused before it is looked up, so nothing of it is imported or called.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.core.errors import UserError

MAX_BYTES = 1 << 30


def read_plain_pickle(path: Path) -> Any:
    """The dicts, lists, tuples, strings, bytes, numbers and uint8 arrays in a pickle.

    Text of Python 2 comes as bytes.

    Raises:
        UserError: it asks for anything else, or is damaged.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path} is larger than {MAX_BYTES:,} bytes.", "Get the file again.")
        data = path.read_bytes()
        _check_memory(data)
        return _Reader(io.BytesIO(data), encoding="bytes").load()
    except _Refused as error:
        raise UserError(
            f"{path} is a pickle that asks to run {error}; nothing of it was run.",
            "Only plain values and arrays are read. Get the file from its original source, or the binary version.",
        ) from error
    except UserError:
        raise
    except Exception as error:  # a damaged program can fail in any way
        raise UserError(f"{path} is not a readable pickle: {error}.", "Get the file again.") from error


def _check_memory(data: bytes) -> None:
    """Refuse steps that claim memory which the file does not have: a note number sizes the reader's table of notes.

    Raises:
        ValueError: such a step, or one that is cut short.
    """
    for step, argument, _ in pickletools.genops(data):
        if step.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(str(argument)) > len(data):
            raise ValueError(f"note number {argument}")


class _Refused(Exception):
    """A name that no plain value needs."""


class _Array:
    """Stands for an array while its pickle is read: what it says about itself is checked before memory is given."""

    array: np.ndarray

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _Dtype) or not isinstance(data, bytes) or not isinstance(shape, tuple):
            raise ValueError("an array that is not of bytes")
        self.array = np.frombuffer(data, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")


class _Dtype:
    """The element type of an array: unsigned bytes only."""

    def __init__(self, name: Any = b"", *_: Any) -> None:
        if name not in ("u1", b"u1", "uint8", b"uint8"):
            raise ValueError(f"an array of {name!r}; only unsigned bytes are read")

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment, which single bytes do not have."""


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """How Python 3 writes bytes for Python 2."""
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise ValueError("bytes in an unknown encoding")
    return text.encode("latin1")


def _empty() -> bytes:
    """How Python 3 writes no bytes at all for Python 2."""
    return b""


_NAMES: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _empty,
}


class _Reader(pickle.Unpickler):
    """An unpickler whose every name is one of ours."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _NAMES[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None

    def persistent_load(self, pid: Any) -> Any:
        raise _Refused("a persistent reference")


def array_of(value: Any) -> np.ndarray:
    """The uint8 array that a value read from a pickle stands for.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, _Array) or not hasattr(value, "array"):
        raise ValueError("not an array")
    return value.array
