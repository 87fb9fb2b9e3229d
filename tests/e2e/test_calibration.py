"""Calibration takes the quickest of a few calls, stops in time, and notices that others use the machine."""

from __future__ import annotations

import dataclasses

import pytest

from bench import run
from bench.core.spec import Cell
from bench.cost.peaks import Peak
from bench.plan import calibrate, console, estimate
from tests.execute.test_local import plan_of

CELL = Cell(model="ViT-pico/14", data="jft-300m", horizons=(0, 64_000))


class Machine:
    """A clock of which this thread gets a share; `calls` are the seconds of work that each call takes."""

    def __init__(self, calls, share=1.0):
        self.calls, self.share, self.now, self.made = list(calls), share, 0.0, 0

    def run(self):
        work = self.calls[min(self.made, len(self.calls) - 1)]
        self.made += 1
        self.now += work / self.share

    @property
    def clock(self):
        return calibrate.Clock(wall=lambda: self.now, own=lambda: self.now * self.share)


def test_the_quickest_call_counts_and_the_first_is_warming_up():
    machine = Machine([0.01, 0.2, 0.1, 0.2])
    assert calibrate.quickest(machine.run, clock=machine.clock) == (pytest.approx(0.1), pytest.approx(1.0))
    assert machine.made == 4  # 0.35 s of them


def test_on_a_busy_machine_the_time_is_the_threads_own_and_is_limited():
    machine = Machine([0.2], share=0.05)
    seconds, share = calibrate.quickest(machine.run, clock=machine.clock)
    assert seconds == pytest.approx(0.2) and share == pytest.approx(0.05)
    assert machine.made == 1 and machine.now == pytest.approx(4.0)  # beyond the limit: not even a second time


def rates_of(**changes):
    rate = estimate.Rates(train_images_per_second=10.0, eval_images_per_second=30.0, measured=True, basis="measured",
                          train_flops_per_image={"dense": 10**12, "paper": 10**12}, params=1)  # fmt: skip
    return dataclasses.replace(rate, **changes)


def summary(**changes):
    plan = plan_of([CELL], "")
    cells = tuple(dataclasses.replace(cell, flops={"dense": 10**15, "paper": 10**15}) for cell in plan.cells)
    return "\n".join(console.plan_summary(dataclasses.replace(plan, cells=cells, **changes)))


def test_a_busy_machine_is_said():
    assert "busy" not in summary(rates={"m": rates_of()})
    assert "busy: the calibration got 12% of a processor" in summary(rates={"m": rates_of(share=0.12)})


def test_a_study_meant_for_accelerators_is_costed_on_one_wherever_it_is_planned():
    assert "H100" not in summary(scale="cpu")
    said = summary(scale="gpu")
    assert "H100-hours at 40% of its bfloat16 peak (assumed)" in said and "nowhere near" in said
    assert "A100-hours" in summary(scale="cpu", accelerator="A100")
    assert "H100" not in summary(scale="gpu", device="cuda")
    assert run.main(["--plan", "--suite", "smoke", "--accelerator", "H1000"]) == 2


@pytest.mark.parametrize("device, shape, measured", [
    ("cpu", None, False), ("cpu", (28, 28, 1), True), ("cuda", None, True),
])  # fmt: skip
def test_a_processor_is_not_asked_how_fast_it_would_train_on_images_that_are_not_here(device, shape, measured):
    sizes = {CELL.data: estimate.DataSize(train=10, test=10, classes=2, shape=shape)}
    assert [job["measure"] for job in estimate._jobs([CELL], sizes, device=device).values()] == [measured]


def test_what_is_not_measured_comes_from_flops(monkeypatch):
    monkeypatch.setattr(calibrate, "measure", lambda *_, **__: pytest.fail("measured"))
    monkeypatch.setattr(calibrate.peaks, "peak", lambda *_, **__: Peak(flops_per_second=1e10, source="a test"))
    rates = calibrate.answer(CELL, 10, device="cpu", threads=1, measure=False)["rates"]
    assert not rates["measured"] and "assumed" in rates["basis"]
    assert rates["train_images_per_second"] * rates["train_flops_per_image"]["dense"] < 1e10
