"""TFRecord files of `tf.train.Example`: enough of both formats to read images and labels, without TensorFlow.

A record is its length (8 bytes), a checksum of that (4), the message, a checksum (4). The message is a protocol buffer:
features (field 1) hold entries (1) of a key (1) and a value (2), which is a list of bytes (1), floats (2) or
integers (3).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bench.core.errors import UserError
from bench.data.source import MAX_FILE_BYTES, Source, read_bytes

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


def read_records(paths: Sequence[Path], *, num_classes: int, image: str = "image", label: str = "label") -> Source:
    """The examples of all files, one file after another.

    Raises:
        UserError: a file is cut short or no TFRecord; a label is out of range.
    """
    places = [(path, offset, size) for path in paths for offset, size in records(path)]
    labels = [_label(*place, label=label, num_classes=num_classes) for place in places]

    def read(number: int) -> bytes:
        encoded = example(read_bytes(*places[number])).get(image, [None])[0]
        if not isinstance(encoded, bytes):
            raise OSError("the record holds no encoded image")
        return encoded

    return Source(
        labels_N=np.array(labels, dtype=np.int64),
        files=tuple(paths),
        name=lambda number: f"{places[number][0].name}, byte {places[number][1]:,}",
        read=read,
    )


def _label(path: Path, offset: int, size: int, *, label: str, num_classes: int) -> int:
    found = example(read_bytes(path, offset, size))[label][0]
    if not isinstance(found, int) or not 0 <= found < num_classes:
        raise UserError(f"{path}: {found!r} at byte {offset:,} is no label.", f"Labels are 0 to {num_classes - 1}.")
    return found


def records(path: Path) -> Iterator[tuple[int, int]]:
    """(offset, size) of the message of every record of a file.

    Raises:
        UserError: the file is cut short, or is no TFRecord.
    """
    total = path.stat().st_size
    with open(path, "rb") as file:
        offset = 0
        while offset < total:
            file.seek(offset)
            head = file.read(12)
            size = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else total
            if size > MAX_FILE_BYTES or offset + 16 + size > total:
                raise UserError(f"{path} is cut short or damaged after byte {offset:,}.", "Get the file again.")
            yield offset + 12, size
            offset += 16 + size


def example(message: bytes) -> dict[str, list[bytes] | list[int]]:
    """The features of an example that are bytes or integers, by name.

    Raises:
        ValueError: it is no example.
    """
    found: dict[str, list[bytes] | list[int]] = {}
    for features in _of(message, 1):
        for entry in _of(features, 1):
            (key,), (value,) = _of(entry, 1), _of(entry, 2)
            for one in _of(value, 1):
                found[key.decode()] = _of(one, 1)
            for one in _of(value, 3):
                found[key.decode()] = _integers(one)
    return found


def _of(message: bytes, wanted: int) -> list[bytes]:
    """The values with a length under one field number."""
    return [value for number, value in _fields(message) if number == wanted and isinstance(value, bytes)]


def _integers(message: bytes) -> list[int]:
    numbers: list[int] = []
    for number, value in _fields(message):
        if number == 1 and isinstance(value, bytes):  # packed
            place = 0
            while place < len(value):
                one, place = _varint(value, place)
                numbers.append(one)
        elif number == 1:
            numbers.append(int(value))
    return numbers


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == VARINT:
            value, place = _varint(message, place)
            yield tag >> 3, value
            continue
        size, place = _varint(message, place) if kind == LENGTH else ({FIXED64: 8, FIXED32: 4}.get(kind, -1), place)
        if size < 0 or place + size > len(message):
            raise ValueError("not a protocol buffer of an example")
        yield tag >> 3, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        byte = message[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError("not a protocol buffer of an example")
