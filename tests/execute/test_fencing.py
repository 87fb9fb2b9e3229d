"""Who lost a cell to another runner writes nothing there: one record, which is never replaced, and its own weights."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bench.core import files, registry
from bench.core.errors import EXIT_OK
from bench.core.events import CellDone, CellFailed, CellLost, from_line
from bench.core.spec import Cell
from bench.execute import worker
from bench.store import lease
from bench.store.study import WEIGHTS, Study
from bench.suites._recipes import recipe_for

CELL = Cell(
    model="ViT-pico/14",
    data="fashion-mnist",
    num_images=100,
    horizons=(0, 64),
    seed=1,
    recipe=recipe_for("ViT-pico/14", batch=32, warmup_images=32),
)
UNUSED = {"patience": None, "co2": None}
JOB = registry.load("job", "train")


def run(store):
    options = SimpleNamespace(device="cpu", threads=1, data_root=None, profile=False, since=None, **UNUSED)
    return worker.Worker(Study(store), [CELL], suite="test", options=options, stop=lambda: False).run()


@pytest.fixture
def meanwhile(monkeypatch):
    """Have something happen, once, when a job is done (`at` "end") or at its first report of progress ("begin")."""

    def plan(act, *, at):
        left = [act]

        def now():
            if left:
                left.pop()()

        def job(cell, context):
            def progress(values, report=context.progress):
                report(values)
                if at == "begin":
                    now()

            object.__setattr__(context, "progress", progress)
            result = JOB.run(cell, context)
            now()
            return result

        load, fake = registry.load, SimpleNamespace(run=job)
        monkeypatch.setattr(registry, "load", lambda kind, name: fake if kind == "job" else load(kind, name))

    return plan


@pytest.fixture
def study(tmp_path):
    Study(tmp_path).create()
    return Study(tmp_path)


def outcomes(directory):
    return [attempt.outcome for attempt in directory.attempt_log()]


@pytest.mark.parametrize("checked", [True, False], ids=["checked in time", "paused between the check and the record"])
def test_a_finished_record_is_never_replaced(study, meanwhile, monkeypatch, capsys, checked):
    directory = study.cell(CELL)
    found = {}

    def another_finishes():
        directory.lease.unlink()  # it was taken for dead
        assert run(study.path) == EXIT_OK
        found.update({path: path.read_bytes() for path in (directory.record, directory.weights / WEIGHTS)})
        (directory.attempts()[0] / WEIGHTS).write_bytes(b"of the one that was late")
        if not checked:
            monkeypatch.setattr(worker.RunningAttempt, "check_lease", lambda _: None)

    meanwhile(another_finishes, at="end")
    assert run(study.path) == EXIT_OK
    assert {path: path.read_bytes() for path in found} == found and len(found) == 2
    assert outcomes(directory) == ["lost", "complete"]
    events = [type(from_line(line)) for line in capsys.readouterr().out.splitlines()]
    assert events.count(CellDone) == 1 and events.count(CellLost) == 1 and CellFailed not in events
    assert not list(directory.path.rglob("attempts/*/*.safetensors")) and not directory.lease.exists()


def test_a_cell_that_another_has_begun_anew_gets_no_checkpoint_from_the_first(study, meanwhile):
    directory = study.cell(CELL)
    saved = []

    def another_begins():
        directory.new_attempt()
        saved.extend(directory.checkpoints.glob("step-*"))

    meanwhile(another_begins, at="begin")
    assert run(study.path) == EXIT_OK  # the other ended, and this one takes the cell again
    assert saved == [] and outcomes(directory) == ["lost", "unknown", "complete"]
    assert [attempt.outcome for attempt in directory.read_record().attempts] == ["lost", "unknown", "complete"]


def test_weights_take_their_place_after_a_kill_between_the_record_and_that(study, monkeypatch):
    directory = study.cell(CELL)
    monkeypatch.setattr(type(directory), "settle", lambda _: None)
    assert run(study.path) == EXIT_OK
    monkeypatch.undo()
    staged = (directory.attempts()[0] / WEIGHTS).read_bytes()
    assert directory.record.exists() and not directory.weights.exists()
    assert run(study.path) == EXIT_OK
    assert (directory.weights / WEIGHTS).read_bytes() == staged and len(directory.attempts()) == 1


def test_weights_survive_a_status_that_cannot_be_read(study, monkeypatch):
    """The record alone tells which attempt's weights they are."""
    directory = study.cell(CELL)
    monkeypatch.setattr(type(directory), "settle", lambda _: None)
    assert run(study.path) == EXIT_OK
    monkeypatch.undo()
    staged = (directory.attempts()[0] / WEIGHTS).read_bytes()
    (directory.attempts()[0] / "status.json").write_text("{")
    directory.settle()
    assert (directory.weights / WEIGHTS).read_bytes() == staged


def test_what_a_kill_after_the_record_left_goes_before_the_next_run(study):
    """The cell is done: no worker looks at it again."""
    assert run(study.path) == EXIT_OK
    directory = study.cell(CELL)
    directory.lease.write_bytes(files.sealed({"machine": lease._machine(), "pid": 2**30, "started": None}))
    (directory.path / ".lease.json.0.tmp").write_text("{")
    directory.tidy()
    assert not [path for path in directory.path.iterdir() if "lease" in path.name]
    with lease.claim(directory.lease):
        directory.tidy()  # another is at it
        assert directory.lease.exists()
