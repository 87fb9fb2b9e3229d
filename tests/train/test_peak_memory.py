"""A cell's peak memory is its own, not that of a larger one before it in the same process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.jobs import train


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_the_peak_is_forgotten_between_cells():
    larger = np.ones(300 << 20, dtype=np.uint8)
    before = train._peak_memory("cpu")
    assert before > larger.nbytes
    size = larger.nbytes
    del larger
    train._forget_peak_memory("cpu")
    assert train._peak_memory("cpu") < before - size // 2
    again = np.ones(100 << 20, dtype=np.uint8)
    assert train._peak_memory("cpu") > again.nbytes
