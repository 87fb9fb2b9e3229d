"""Pixels as a file that nothing has to decode: a PPM or PGM image whose comment says that it lies as `bench.data.pack`
wrote it, upright and behind a header of fixed length. Other files of these kinds are read by Pillow."""

from __future__ import annotations

import numpy as np

_MARK = b"\n# packed by vit-bench\n"
_HEADER = b"P%d" + _MARK + b"%9d %9d\n255\n"
_START = len(_HEADER % (6, 1, 1))


def as_file(pixels_HWC: np.ndarray) -> bytes:
    """The file of uint8 (H, W, 1 or 3)."""
    height, width, channels = pixels_HWC.shape
    return _HEADER % (5 if channels == 1 else 6, width, height) + pixels_HWC.tobytes()


def is_raw(data: bytes) -> bool:
    """Whether a file is one of `as_file`."""
    return data.startswith(_MARK, 2)


def pixels(data: bytes) -> np.ndarray:
    """uint8 (H, W, 1 or 3), where they lie in a file of `as_file`.

    Raises:
        ValueError: it is not whole.
    """
    width, height = map(int, data[2 + len(_MARK) : _START - 5].split())
    return np.frombuffer(data, dtype=np.uint8, offset=_START).reshape(height, width, -1)
