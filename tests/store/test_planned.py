"""planned.json: a cell keeps the plan that it was begun under, and is compared with all that it took."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from bench import run, status
from bench.analysis import evidence, study_data
from bench.core import files
from bench.core.errors import UserError
from bench.core.spec import Cell
from bench.execute.local import Failure
from bench.execute.worker import RunningAttempt
from bench.plan import view
from bench.plan.options import StudyOptions
from bench.plan.plan import START_SECONDS
from bench.report import tables
from bench.store import planned
from bench.store.lease import claim
from bench.store.planned import PlannedCost, PlannedRun
from bench.store.study import CellDirectory
from tests.analysis._records import World, write
from tests.plan.making import plan_of


def cost(seconds, **fields):
    return PlannedCost(seconds=seconds, **fields)


def test_a_cell_keeps_the_plan_that_it_was_begun_under(tmp_path):
    assert planned.read(tmp_path) == planned.NOTHING
    planned.note(tmp_path, [("a", "missing", cost(1.0)), ("b", "missing", cost(2.0)), ("c", "missing", cost(3.0))])
    planned.add_run(tmp_path, PlannedRun(ended="now", executor="local", workers=2, cells=3, planned=3.0, took=4.0))
    planned.note(tmp_path, [("a", "partial", cost(10.0)), ("b", "missing", cost(20.0)), ("d", "partial", cost(40.0))])
    plans = planned.read(tmp_path)
    assert {name: plan.seconds for name, plan in plans.cells.items()} == {"a": 1.0, "b": 20.0, "c": 3.0, "d": 40.0}
    assert [(run.cells, run.planned, run.took) for run in plans.runs] == [(3, 3.0, 4.0)]


@pytest.mark.parametrize("change", [{"cells": 7}, {"cells": {"a": {}}}, {"runs": [7]}, {"schema": "x"}])
def test_a_damaged_file_is_named(tmp_path, change):
    planned.note(tmp_path, [("a", "missing", cost(1.0))])
    path = tmp_path / planned.FILE
    for body in (json.loads(path.read_text()) | change, {}):
        path.write_text(json.dumps(body))
        with pytest.raises(UserError, match=r"planned\.json is damaged"):
            planned.read(tmp_path)
    files.write_sealed(path, {"schema": 1, "cells": {}, "runs": []} | change)
    with pytest.raises(UserError, match=r"planned\.json is damaged"):
        planned.read(tmp_path)


def test_only_what_has_both_is_compared():
    plans = planned.Plans(cells={"a": cost(2.0), "b": cost(3.0), "c": cost(5.0), "gpu": cost(1.0, device="cuda")})
    took = {"a": (4.0, 1.5), "b": (5.0, 2.5), "unplanned": (9.0, 9.0), "c": (None, None)}
    found = planned.compare(plans, took)
    assert (found.cells, found.planned, found.took, found.processor) == (2, 5.0, 9.0, 4.0)
    assert planned.compare(plans, took | {"gpu": (1.0, 1.0)}).processor is None
    assert planned.compare(plans, took | {"a": (4.0, None)}).processor is None
    assert planned.compare(plans, {"unplanned": (9.0, 9.0)}) is None


def test_the_report_and_status_compare_by_kind_of_cell(tmp_path, capsys):
    world = World(seed=1)
    world.sizes, world.seeds, world.draws, world.shots = (30_000,), (0, 1), (0,), (1,)
    records = world.records()
    study = write(records, tmp_path / "scaling")
    first, *others = [record.directory for record in records]
    planned.note(study, [(name, "missing", cost(10.0)) for name in others])
    found = study_data.load(study)
    table = tables.planned(evidence.build(found))
    assert sum(row["cells"] for row in table.rows) == len(others)
    total = sum(record.cost.seconds.total for record in records if record.directory != first)
    assert sum(row["cells"] * row["took"] for row in table.rows) == pytest.approx(total)
    assert all(row["more"] == pytest.approx(row["took"] / 10 - 1) for row in table.rows)
    assert tables.planned(evidence.build(study_data.load(write(records, tmp_path / "other")))) is None

    planned.note(study, [("never-begun", "missing", cost(600.0))])
    (study / "plan.json").unlink(missing_ok=True)
    assert status.main(["--suite", "scaling", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"{len(others)} cells planned" in said and f"{total / (10 * len(others)) - 1:+.0%}" in said


def test_the_rounds_of_a_search_are_one_run(tmp_path, monkeypatch):
    """Cells that an earlier run had done are no part of it."""
    first, second, third = (Cell(model="ViT-pico/14", data="glyphs", seed=seed, horizons=(64,)) for seed in range(3))
    start = plan_of([first, second], tmp_path, seconds=10.0, waiting=1)
    start = replace(start, cells=(replace(start.cells[0], state="done", seconds=None), start.cells[1]))
    rounds = iter([plan_of([third], tmp_path, seconds=20.0, waiting=1), plan_of([], tmp_path, waiting=1)])
    did = []
    monkeypatch.setattr(run, "execute", lambda plan, *_: did.append([cell.name for cell in plan.todo]) or [])
    monkeypatch.setattr(run, "make_plan", lambda *_, **__: next(rounds))
    monkeypatch.setattr(view, "show", lambda *_: None)
    out = Console(file=io.StringIO(), width=200)
    last, failures = run.work_off(start, StudyOptions.of(), out)
    assert did == [[second.readable_name], [third.readable_name], []] and failures == [] and not last.todo
    (kept,) = planned.read(tmp_path).runs
    assert (kept.cells, kept.planned) == (2, 10.0 + 20.0 + 2 * START_SECONDS) and "planned 38 s" in out.file.getvalue()
    monkeypatch.setattr(run, "execute", lambda *_: [Failure("a", "it was to fail")])
    assert len(run.work_off(plan_of([first], tmp_path), StudyOptions.of(), out)[1]) == 1
    assert len(planned.read(tmp_path).runs) == 1  # a run that did not do all is not compared


def test_processor_time_is_that_of_every_attempt(tmp_path):
    directory = CellDirectory(tmp_path / "cell")
    directory.path.mkdir()

    def attempt(outcome):
        with claim(directory.lease) as lease:
            running = RunningAttempt(directory, lease)
            sum(range(300_000))
            running.finish(outcome)
            return running.processor_seconds()

    first, second = attempt("interrupted"), attempt("complete")
    assert 0 < first < second
    with claim(directory.lease) as lease:
        RunningAttempt(directory, lease)  # killed: nobody knows what it used
    assert attempt("complete") is None
