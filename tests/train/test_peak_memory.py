"""A cell's peak memory is its own, not that of a larger one before it in the same process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT

CODE = """
import numpy as np
from bench.jobs import train

larger = np.ones(300 << 20, dtype=np.uint8)
before = train._peak_memory("cpu")
assert before > larger.nbytes
size = larger.nbytes
del larger
train._forget_peak_memory("cpu")
assert train._peak_memory("cpu") < before - size // 2
again = np.ones(100 << 20, dtype=np.uint8)
assert train._peak_memory("cpu") > again.nbytes
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_the_peak_is_forgotten_between_cells():
    """In a process of its own: what other tests freed may be kept by this one's allocator."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment | {"PYTHONPATH": str(PROJECT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
