"""The display while a study runs counts evaluation as work too."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from bench.core.events import Advanced, CellAdvanced, CellDone, CellFailed, CellStarted, Notice
from bench.execute import progress as module
from bench.execute.progress import LiveProgress
from bench.study.cell import Cell
from tests.plan.making import plan_of

CELL = Cell(model="ViT-pico/14", data="digits", horizons=(0, 640))
NAME = CELL.readable_name


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def progress(clock, tmp_path):
    plan = plan_of([CELL], tmp_path, seconds=100.0)
    plan = replace(plan, cells=tuple(replace(cell, evaluate_share=0.8) for cell in plan.cells))
    shown = LiveProgress(plan, Console(file=io.StringIO()))
    shown.event(0, CellStarted(cell=NAME, model="ViT-pico/14", data="digits", seed=0))
    return shown


def report(progress, *, done, horizons, phase):
    advanced = Advanced(done=done, total=10, phase=phase, seconds=1.0, horizons=horizons)
    progress.event(0, CellAdvanced(cell=NAME, progress=advanced))


def test_a_cell_that_only_has_to_be_read_is_not_nearly_done(progress, clock):
    clock[0] = 60.0  # 40 s for the untrained network, 20 s of training
    report(progress, done=10, horizons=1, phase="evaluating")
    assert progress.fraction[NAME] == pytest.approx(0.6)
    assert progress.seconds_left() == pytest.approx(40.0)
    clock[0] = 80.0  # half of the expected time for the last horizon
    progress.refresh()
    assert progress.fraction[NAME] == pytest.approx(0.8)
    assert progress.seconds_left() == pytest.approx(20.0)
    clock[0] = 400.0  # it takes far longer than expected: never "about 0 s"
    progress.refresh()
    assert progress.fraction[NAME] < 0.99 and progress.seconds_left() > 5
    assert "98%" in progress.console.file.getvalue() and "(evaluating)" in progress.console.file.getvalue()


def test_progress_never_goes_back_as_a_cell_advances(progress, clock):
    seen = []
    steps = (
        (1, 0, 0, "evaluating"),
        (45, 0, 1, "training"),
        (50, 5, 1, "training"),
        (60, 10, 1, "evaluating"),
        (61, 10, 1, "evaluating"),
        (100, 10, 2, "training"),
    )
    for at, done, read, phase in steps:
        clock[0] = float(at)
        report(progress, done=done, horizons=read, phase=phase)
        seen.append(progress.fraction[NAME])
    assert seen == sorted(seen) and seen[-1] == 0.99
    progress.event(0, CellDone(cell=NAME, status="complete", seconds=100.0))
    assert progress.fraction[NAME] == 1.0


def test_a_notice_is_shown_and_changes_nothing(progress):
    progress.event(0, Notice(message="A worker waits."))
    assert list(progress.running) == [0] and "A worker waits." in progress.console.file.getvalue()


def test_a_cell_that_two_workers_finish_is_one(progress):
    """As where the study's folder is moved away under the first of them."""
    for worker in (0, 1):
        progress.event(worker, CellDone(cell=NAME, status="complete", seconds=100.0))
    assert "1 of 1 runs" in progress.console.file.getvalue().splitlines()[-1]


def test_failed_cells_are_counted_once_and_are_not_waited_for(clock, tmp_path):
    cells = [replace(CELL, seed=seed) for seed in (0, 1)]
    shown = LiveProgress(plan_of(cells, tmp_path, seconds=1e9), Console(file=io.StringIO(), width=200))
    clock[0] = 1.0
    for worker in (0, 1):
        for cell in cells:
            shown.event(worker, CellFailed(cell=cell.readable_name, reason="No folder.\n  Create it."))
    said = shown.console.file.getvalue()
    assert said.count("No folder.") == 1 and "0 of 2 runs, 2 failed" in said and "3 failed" not in said
    assert shown.seconds_left() == 0.0


def test_a_run_that_takes_longer_than_its_plan_does_not_say_that_nothing_is_left(clock, tmp_path):
    shown = LiveProgress(plan_of([CELL], tmp_path, seconds=1.0), Console(file=io.StringIO(), width=200))
    clock[0] = 60.0
    shown.refresh()
    assert "0 of 1 runs, longer than planned" in shown.console.file.getvalue()


def test_what_others_wrote_is_neither_markup_nor_obeyed(progress):
    progress.console = Console(file=io.StringIO(), width=200, force_terminal=True, color_system=None)
    progress.event(0, CellFailed(cell=NAME, reason="\x1b[2J[/data/x] [enforce fail at alloc_cpu.cpp]"))
    said = progress.console.file.getvalue()
    assert "[/data/x] [enforce fail at alloc_cpu.cpp]" in said and "\x1b[2J" not in said


def test_at_the_end_nothing_is_left(clock, tmp_path):
    """This holds whatever rounding made of the sums."""
    cells = [Cell(model="ViT-pico/14", data="fashion-mnist", seed=seed) for seed in range(3)]
    shown = LiveProgress(plan_of(cells, tmp_path, seconds=0.1), Console(file=io.StringIO(), width=200))
    for cell in cells:
        for done in (1, 3, 7):
            advanced = Advanced(done=done, total=10, phase="training")
            shown.event(0, CellAdvanced(cell=cell.readable_name, progress=advanced))
        shown.event(0, CellDone(cell=cell.readable_name, status="complete"))
    clock[0] = 9.0
    assert shown.seconds_left() == 0.0
