"""A cell's peak memory is its own: not that of a larger one before it, nor that of the process that started it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import PROJECT

SIZE = 300 << 20  # bytes

FORGETS = f"""
import numpy as np
from bench.cost import resident

larger = np.ones({SIZE}, dtype=np.uint8)
before = resident.peak_bytes()
assert before > {SIZE}, before
del larger
resident.forget_peak()
assert resident.peak_bytes() < before - {SIZE // 2}, resident.peak_bytes()
again = np.ones({SIZE // 3}, dtype=np.uint8)
assert resident.peak_bytes() > {SIZE // 3}, resident.peak_bytes()
"""
INHERITS = f"""
from bench.cost import resident
assert resident.peak_bytes() < {SIZE}, resident.peak_bytes()
"""


def in_a_fresh_process(code: str) -> None:
    """What other tests freed may be kept by this one's allocator."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment | {"PYTHONPATH": str(PROJECT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="this system resets no peaks")
def test_the_peak_is_forgotten_between_cells():
    in_a_fresh_process(FORGETS)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system tells no peak of one program")
def test_the_parents_peak_is_not_the_workers():
    """getrusage(2): ru_maxrss is kept across exec."""
    held = np.ones(2 * SIZE, dtype=np.uint8)
    in_a_fresh_process(INHERITS)
    assert held[-1] == 1
