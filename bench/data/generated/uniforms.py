"""Random numbers that are pure functions of a name: the same on every machine, in any order, without a state."""

from __future__ import annotations

import hashlib

import numpy as np


def uniforms(address: str, *, count: int) -> np.ndarray:
    """`count` float64 numbers in [0, 1) that depend on `address` alone; a longer row begins with a shorter one."""
    return np.frombuffer(hashlib.shake_128(address.encode()).digest(4 * count), dtype="<u4") / 2.0**32
