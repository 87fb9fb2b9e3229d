"""Random number streams as pure functions of (seed, purpose), so that new code that uses random numbers changes no
other stream, and a resumed run sees the numbers that an uninterrupted run would have seen. The streams are derived with
sha256, because Python's own hash() is salted per process."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed that depends on `seed` and `purpose` only. `purpose`: words and numbers that say what the
    random numbers are for, as in `stream(0, "order", epoch)`."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return a NumPy generator that is seeded with `stream(seed, *purpose)`."""
    return np.random.Generator(np.random.PCG64(stream(seed, *purpose)))


def uniforms(address: str, *, count: int) -> np.ndarray:
    """Return `count` float64 numbers, uniform in [0, 1), that depend on the text `address` only. A larger `count` adds
    numbers at the end and leaves the others as they are."""
    return np.frombuffer(hashlib.shake_128(address.encode()).digest(4 * count), dtype="<u4") / 2.0**32
