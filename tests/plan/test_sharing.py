"""How many cells a plan would put on each GPU."""

import time

import pytest
import torch

from bench.plan import calibrate, sharing
from bench.plan.estimate import Rates
from bench.plan.resources import Needs
from tests.gpu.posing import posing

GB = 1 << 30


def load(launching: float, computing: float, *, seconds: float = 100.0, device: int = GB) -> sharing.Load:
    rates = Rates(
        model=f"net of {computing:g} s",
        train_images_per_second=1.0,
        eval_images_per_second=1.0,
        train_flops_per_image={},
        params=1,
        measured=True,
        basis="",
        launching=launching,
        computing=computing,
    )
    needs = Needs(tier="resident", device=device, host=0, shared={}, kept=0, weights=0)
    return sharing.Load(seconds=seconds, rates=rates, needs=needs)


SMALL, LARGE = load(0.006, 0.0015), load(0.006, 0.060)


def simulated(number: int, *, launching: float, computing: float, steps: int = 200) -> float:
    """Steps per second of so many processes that launch one step after another on a GPU, which takes them in turn."""
    free, ready = 0.0, [0.0] * number
    for _ in range(steps * number):
        process = min(range(number), key=ready.__getitem__)
        launched = ready[process] + launching
        free = max(free, launched) + computing
        ready[process] = max(launched, free - computing)  # a step ahead of the GPU
    return steps * number / free


@pytest.mark.parametrize("number", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("one", [SMALL, LARGE, load(0.004, 0.003)])
def test_the_gain_is_that_of_a_device_that_serves_processes_in_turn(one, number):
    rates = {"launching": one.rates.launching, "computing": one.rates.computing}
    expected = simulated(number, **rates) / simulated(1, **rates)
    assert sharing.gain([one] * 9, number) == pytest.approx(expected, rel=0.05)


def said(monkeypatch, loads, *, cores: int = 32, memory: int = 80 * GB) -> str:
    monkeypatch.setattr("bench.core.environment.cores", lambda: cores)
    with posing():  # two devices
        return sharing.proposal(loads, device="cuda", memory=memory)


def test_memory_cores_and_launching_each_bound_the_number(monkeypatch):
    assert "--share 4 is up to 4.0 times" in said(monkeypatch, [SMALL] * 20)
    assert "net of 0.0015 s: 6.0 ms, computed in 1.5 ms" in said(monkeypatch, [SMALL, LARGE] * 10)
    assert "--share 2 is up to 2.0 times" in said(monkeypatch, [SMALL] * 20, cores=4)
    assert "--share 3 is up to 3.0 times" in said(monkeypatch, [SMALL] * 20, memory=5 * GB)
    assert "--share 2 is" in said(monkeypatch, [SMALL] * 4)  # two on each
    for nothing in ([LARGE] * 20, [SMALL] * 2):
        assert said(monkeypatch, nothing) == ""
    for bound in ({"cores": 2}, {"memory": GB}):
        assert said(monkeypatch, [SMALL] * 20, **bound) == ""


def test_without_a_calibration_on_the_gpu_the_plan_says_that_one_is_needed(monkeypatch):
    assert "after a calibration on the GPU" in said(monkeypatch, [SMALL, load(0.0, 0.0), SMALL])


def test_launching_is_timed_without_waiting_for_the_device(monkeypatch):
    held: list[int] = []
    with posing():
        monkeypatch.setattr(torch.cuda, "_sleep", held.append)
        launching, computing = calibrate.launched(lambda: time.sleep(0.01), device="cuda")
    assert launching >= 0.01 and computing >= 0.01 and held == [calibrate.HELD_CYCLES] * calibrate.HELD_STEPS
    slow = iter([0.01, 0.2] * calibrate.HELD_STEPS)  # its queue is full while it is held
    with posing():
        assert 0.01 <= calibrate.launched(lambda: time.sleep(next(slow)), device="cuda")[0] < 0.2
