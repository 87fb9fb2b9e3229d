"""What only the user can mend is tried once, said once, counted by cells, shown afterwards; a closed output stops."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from bench.core.environment import now
from bench.core.errors import EXIT_FAILED, EXIT_OK, Interrupted
from bench.core.spec import Cell
from bench.execute import local, worker
from bench.plan import console
from bench.plan.plan import Plan, PlannedCell
from bench.store.study import Study, state_of
from tests.conftest import PROJECT

HOPELESS = [Cell(model="ViT-pico/14", data="glyphs", image_size=14, horizons=(0, 64), seed=seed) for seed in (0, 1)]


def plan_of(cells, store, *, seconds=1.0):
    planned = tuple(
        PlannedCell(cell=cell, name=cell.readable_name, state="missing", fraction=0.0, images=64, seconds=seconds)
        for cell in cells
    )
    return Plan(suite="test", scale="cpu", store=store, cells=planned, device="cpu", workers=1, threads=1, ranks=1,
                rates={}, sizes={})  # fmt: skip


def work(store, *, since):
    options = SimpleNamespace(device="cpu", threads=1, data_root=None, profile=False, since=since)
    return worker.Worker(Study(store), HOPELESS, suite="test", options=options, stop=lambda: False).run()


def test_another_worker_of_the_run_leaves_it_alone_and_the_next_run_tries_again(tmp_path, capsys):
    study = Study(tmp_path)
    study.create()
    began = now()
    assert work(tmp_path, since=began) == EXIT_FAILED
    assert work(tmp_path, since=began) == EXIT_OK  # a second worker, at the end of its list
    assert [len(study.cell(cell).attempts()) for cell in HOPELESS] == [1, 1]
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events].count("failed") == 2
    state, _, note = state_of(study.cell(HOPELESS[0]))  # what bench.status shows
    assert state == "failed" and "28x28" in note and "14x14" in note
    assert work(tmp_path, since="9999") == EXIT_FAILED  # a later run: the user may have mended it
    assert [len(study.cell(cell).attempts()) for cell in HOPELESS] == [2, 2]
    assert all(set(a) <= {"started", "ended", "outcome"} for a in study.cell(HOPELESS[0]).attempt_log())


def test_failed_cells_are_counted_once_and_are_not_waited_for(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: clock[0])
    plan = plan_of(HOPELESS, tmp_path, seconds=1e9)
    shown = console.Progress(plan, Console(file=io.StringIO(), width=200))
    clock[0] = 1.0
    reason = "No such folder.\n  Create it."
    for number in (0, 1):
        for cell in plan.cells:
            shown.event(number, {"event": "failed", "cell": cell.name, "reason": reason})
    said = shown.console.file.getvalue()
    assert said.count("No such folder.") == 1 and "0 of 2 cells, 2 failed" in said and "3 failed" not in said
    assert shown.left() == 0.0 and "years left" not in said.splitlines()[-1]


def test_equal_reasons_are_said_once_with_the_number_of_cells():
    failures = [local.Failure(f"cell-{number}", "No such folder.\n  Create it.") for number in range(4)]
    lines = console.by_reason([*failures, local.Failure("other", "Too large.")])
    assert lines == ["4 cells (cell-0, cell-1, …): No such folder.\n  Create it.", "other: Too large."]
    notes = tuple(replace(cell, note="same") for cell in plan_of(HOPELESS, "").cells)
    assert sum("same" in line for line in console.plan_summary(replace(plan_of(HOPELESS, ""), cells=notes))) == 1


@pytest.mark.parametrize("error, raised", [
    (BrokenPipeError, Interrupted), (SystemExit, Interrupted), (RuntimeError, RuntimeError),
])
def test_workers_are_asked_to_save_when_the_display_fails(error, raised, tmp_path, monkeypatch):
    asked = []

    class Pool:
        def __init__(self, *_, **__):
            self.processes, self.interrupted, self.events = [None], False, local.queue.Queue()
            self.events.put((0, {"event": "start", "cell": "a"}))

        def stop(self):
            asked.append("stop")

        def finish(self):
            asked.append("finish")
            return []

    def closed(*_):
        raise error

    monkeypatch.setattr(local, "Pool", Pool)
    with pytest.raises(raised):
        local.run(plan_of(HOPELESS, tmp_path), on_event=closed, tick=lambda: None)
    assert asked == ["stop", "finish"]


VERB = """
import sys
from bench.core.errors import command
@command
def main(argv=None):
    print("said")
    return 0
sys.exit(main())
"""


@pytest.mark.parametrize("buffering", ["-u", "-s"])
def test_a_verb_whose_output_is_closed_ends_quietly(buffering):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, buffering, "-c", VERB], stdout=writer, stderr=subprocess.PIPE, text=True,
                          cwd=PROJECT)  # fmt: skip
    os.close(writer)
    assert done.returncode == EXIT_OK and not done.stderr
