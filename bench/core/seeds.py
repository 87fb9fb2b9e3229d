"""Random streams as pure functions of (seed, purpose), so that adding one consumer shifts no other and a resumed run
sees what an uninterrupted one would have seen. Python's own hash() is salted per process, hence sha256."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose, e.g. `stream(0, "order", epoch)`."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A NumPy generator for one purpose."""
    return np.random.Generator(np.random.PCG64(stream(seed, *purpose)))


def uniforms(address: str, *, count: int) -> np.ndarray:
    """`count` float64 numbers in [0, 1) that depend on `address` alone; a longer row begins with a shorter one."""
    return np.frombuffer(hashlib.shake_128(address.encode()).digest(4 * count), dtype="<u4") / 2.0**32
