"""Packed pixels: PPM or PGM files that need no decoding. A comment in such a file marks it as written by
`bench.data.pack`: upright, and with a header of fixed length. Other PPM and PGM files are read by Pillow."""

from __future__ import annotations

import numpy as np

_MARK = b"\n# packed by vit-bench\n"
_HEADER = b"P%d" + _MARK + b"%9d %9d\n255\n"
_START = len(_HEADER % (6, 1, 1))


def as_file(pixels_HWC: np.ndarray) -> bytes:
    """Return uint8 pixels (H, W, 1 or 3) as the bytes of a PGM or PPM file."""
    height, width, channels = pixels_HWC.shape
    return _HEADER % (5 if channels == 1 else 6, width, height) + pixels_HWC.tobytes()


def is_raw(data: bytes) -> bool:
    """Whether the bytes are those of a file that `as_file` made."""
    return data.startswith(_MARK, 2)


def pixels(data: bytes) -> np.ndarray:
    """Return the pixels in a file that `as_file` made, uint8 (H, W, 1 or 3), without copying them.

    Raises:
        ValueError: the file is incomplete.
    """
    width, height = map(int, data[2 + len(_MARK) : _START - 5].split())
    return np.frombuffer(data, dtype=np.uint8, offset=_START).reshape(height, width, -1)
