"""What is shown while a study runs: evaluation is work too, and is counted as such."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from bench.core.spec import Cell, Recipe
from bench.plan import console
from bench.plan.plan import Plan, PlannedCell

CELL = PlannedCell(cell=Cell(model="ViT-pico/14", data="digits", horizons=(0, 640)), name="a", state="missing",
                   fraction=0.0, images=640, seconds=100.0, evaluate_share=0.8)  # fmt: skip


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def progress(clock, tmp_path):
    plan = Plan(suite="x", scale="cpu", store=tmp_path, cells=(CELL,), device="cpu", workers=1, threads=1, ranks=1,
                rates={}, sizes={})  # fmt: skip
    shown = console.Progress(plan, Console(file=io.StringIO()))
    shown.event(0, {"event": "start", "cell": "a", "model": "ViT-pico/14", "data": "digits", "seed": 0})
    return shown


def report(progress, *, done, horizons, phase):
    progress.event(0, {"event": "progress", "cell": "a", "done": done, "total": 10, "phase": phase, "loss": None,
                       "seconds": 1.0, "horizons": horizons})  # fmt: skip


def test_a_cell_that_only_has_to_be_read_is_not_nearly_done(progress, clock):
    clock[0] = 60.0  # 40 s for the untrained network, 20 s of training
    report(progress, done=10, horizons=1, phase="evaluating")
    assert progress.fraction["a"] == pytest.approx(0.6)
    assert progress.left() == pytest.approx(40.0)
    clock[0] = 80.0  # half of the expected time for the last horizon
    progress.tick()
    assert progress.fraction["a"] == pytest.approx(0.8)
    assert progress.left() == pytest.approx(20.0)
    clock[0] = 400.0  # it takes far longer than expected: never "about 0 s"
    progress.tick()
    assert progress.fraction["a"] < 0.99 and progress.left() > 5
    assert "98%" in progress.console.file.getvalue() and "(evaluating)" in progress.console.file.getvalue()


def test_progress_never_goes_back_as_a_cell_advances(progress, clock):
    seen = []
    steps = ((1, 0, 0, "evaluating"), (45, 0, 1, "training"), (50, 5, 1, "training"), (60, 10, 1, "evaluating"),
             (61, 10, 1, "evaluating"), (100, 10, 2, "training"))  # fmt: skip
    for at, done, read, phase in steps:
        clock[0] = float(at)
        report(progress, done=done, horizons=read, phase=phase)
        seen.append(progress.fraction["a"])
    assert seen == sorted(seen) and seen[-1] == 0.99
    progress.event(0, {"event": "done", "cell": "a", "status": "complete", "reason": None, "seconds": 100.0})
    assert progress.fraction["a"] == 1.0


def test_a_worker_that_was_killed_is_said_and_no_longer_shown(progress):
    progress.event(0, {"event": "killed", "signal": 9})
    assert progress.running == {} and "killed by signal 9" in progress.console.file.getvalue()


def test_budgets_are_named_as_they_are():
    shown = {(0,): "untrained", (640,): "640", (0, 640): "640 + untrained", (320, 640): "2 up to 640",
             (0, 8000, 16_000, 64_000): "3 up to 64,000 + untrained"}  # fmt: skip
    assert {horizons: console._budgets(horizons) for horizons in shown} == shown


def test_recipes_of_a_sweep_are_not_called_seeds(progress):
    cell = Cell(model="ViT-mini/7", data="digits", horizons=(640,))
    recipes = [Recipe(lr=lr, clip=clip) for lr in (1e-3, 2e-3) for clip in (0.0, 1.0)]
    swept = [replace(cell, recipe=recipe, seed=seed) for recipe in recipes for seed in (0, 1, 2)]
    table = console.plan_table(replace(progress.plan, cells=tuple(replace(CELL, cell=c) for c in (CELL.cell, *swept))))
    shown = {column.header: list(column.cells) for column in table.columns}
    assert (shown["recipes"], shown["seeds"]) == (["1", "4"], ["1", "3"])
    assert "recipes" not in [column.header for column in console.plan_table(progress.plan).columns]
