"""Memory from shapes against memory really allocated; and a cell's measured peak, which is its own."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from bench.execute.workloads import LiveBytes, largest_batch, peak_bytes
from bench.study import registry
from tests.conftest import PROJECT


def test_live_bytes_follow_allocation_and_release() -> None:
    with LiveBytes() as tracker:
        a = torch.empty(1000, device="meta")
        b = a.view(10, 100)  # no memory of its own
        assert tracker.live == 4000
        c = a + 1
        assert tracker.live == 8000
        del a, b
        assert tracker.live == 4000
        del c
    assert (tracker.live, tracker.peak) == (0, 8000)


def test_a_chain_of_layers_keeps_two_at_a_time() -> None:
    layers = nn.Sequential(*(nn.ReLU() for _ in range(10))).to("meta")
    assert peak_bytes(layers, torch.empty(1000, device="meta"), training=False) == 4000 + 2 * 4000


@pytest.mark.parametrize("name", ["ViT-nano/7", "R8x0.25-s2"])
@pytest.mark.parametrize("training", [False, True])
def test_shapes_alone_give_what_real_tensors_take(name: str, training: bool) -> None:
    """The same bookkeeping over real CPU tensors; attention is spelled out there, so it is compared without."""
    sizes = {"image_size": 28, "channels": 3, "num_classes": 10}
    real = registry.build_model(name, **sizes)  # type: ignore[arg-type]
    with torch.device("meta"):
        meta = registry.build_model(name, **sizes)  # type: ignore[arg-type]
    images = torch.zeros(8, 3, 28, 28)
    predicted = peak_bytes(meta, images.to("meta"), training=training)
    assert predicted == pytest.approx(peak_bytes(real, images, training=training), rel=0.15)


def test_largest_batch_is_the_last_that_fits() -> None:
    with torch.device("meta"):
        model = registry.build_model("ViT-nano/7", image_size=28, channels=3, num_classes=10)
    budget = 2**28
    for training in (False, True):
        batch = largest_batch(model, (3, 28, 28), budget=budget, training=training)

        def peak(count: int, training: bool = training) -> int:
            return peak_bytes(model, torch.empty(count, 3, 28, 28, device="meta"), training=training)

        assert peak(batch) <= 1.01 * budget < 1.03 * peak(batch + 1)


# -- measured --------------------------------------------------------------------------------------------------------

SIZE = 300 << 20  # bytes
HELD = 1 << 30  # more than torch itself takes

FORGETS = f"""
import numpy as np
from bench.cost import memory

larger = np.ones({SIZE}, dtype=np.uint8)
before = memory.measured_peak_bytes()
assert before > {SIZE}, before
del larger
memory.reset_peak()
assert memory.measured_peak_bytes() < before - {SIZE // 2}, memory.measured_peak_bytes()
again = np.ones({SIZE // 3}, dtype=np.uint8)
assert memory.measured_peak_bytes() > {SIZE // 3}, memory.measured_peak_bytes()
"""
INHERITS = f"""
from bench.cost import memory
assert memory.measured_peak_bytes() < {HELD}, memory.measured_peak_bytes()
"""


def in_a_fresh_process(code: str) -> None:
    """This process's allocator may keep what other tests freed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment | {"PYTHONPATH": str(PROJECT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.gate
@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="this system resets no peaks")
def test_the_peak_is_forgotten_between_cells():
    in_a_fresh_process(FORGETS)


@pytest.mark.gate
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system tells no peak of one program")
def test_the_parents_peak_is_not_the_workers():
    """getrusage(2): ru_maxrss is kept across exec."""
    held = np.ones(HELD, dtype=np.uint8)
    in_a_fresh_process(INHERITS)
    assert held[-1] == 1
