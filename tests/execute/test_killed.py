"""What ends a worker ends neither the study nor its other cells, and a store that is gone is never made again."""

import os
from dataclasses import replace

import pytest

from bench.core.errors import EXIT_USAGE
from bench.core.events import Notice
from bench.execute import worker
from bench.execute.jobs.job import Job
from bench.store.study import KILLED, MOST_KILLS, StoreGone, Study, state_of
from bench.study import registry
from bench.study.cell import Cell
from tests.execute.naps import known, naps, run
from tests.plan.making import plan_of


def deadly(number, *, seconds=0.0):
    """Cells whose job kills its own process, as the kernel does where memory is short."""
    options = (("kills", True), ("seconds", seconds))
    return [
        Cell(model="ViT-pico/14", data="fashion-mnist", seed=100 + seed, job="nap", model_options=options)
        for seed in range(number)
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_deadly_cells_end_neither_the_study_nor_the_next_run(tmp_path, monkeypatch, workers):
    """More deadly cells than workers, planned before the healthy ones."""
    bad, good, store, notices = deadly(3), naps(3), tmp_path / "store", []

    def on_event(_, event):
        notices.extend([event.message] if isinstance(event, Notice) else [])

    with known(monkeypatch):
        for kills in (MOST_KILLS, 2 * MOST_KILLS):  # the next run tries them again, as they may have been mended
            failures = run([*bad, *good], store, executor="local", workers=workers, on_event=on_event)
            assert sorted(failures) == sorted((Study(store).cell(cell).path.name, KILLED) for cell in bad)
            assert [state_of(Study(store).cell(cell)).name for cell in good] == ["done"] * 3
            assert [len(Study(store).cell(cell).attempts()) for cell in bad] == [kills] * 3
    assert any("was killed" in notice and "memory" in notice for notice in notices)
    state = state_of(Study(store).cell(bad[0]))
    assert state.name == "failed" and state.note == KILLED and state.deadly
    assert not state_of(Study(store).cell(good[0])).deadly


def test_deadly_cells_are_planned_last():
    cells = plan_of(naps(3)).cells
    bad = replace(cells[0], state="partial", deadly=True)
    assert plan_of(naps(3)).todo[0].cell == bad.cell  # where nothing was killed
    plan = replace(plan_of([]), cells=(bad, *cells[1:]))
    assert plan.todo[-1] == bad


# -- a store that is gone ----------------------------------------------------------------------------------------------


def other(store):
    store.mkdir()


def remade(store):
    Study(store).create()


@pytest.mark.parametrize("then", [None, other, remade], ids=["nothing", "an empty folder", "another study"])
def test_a_store_that_goes_away_is_not_made_again(tmp_path, monkeypatch, then):
    """As where its file system is unmounted: what lies below the mount point is another folder, or none."""
    store, away = tmp_path / "mount" / "store", tmp_path / "away"
    Study(store).create()
    real = registry.load
    with known(monkeypatch):
        job = registry.load("job", "nap")

        def goes(cell, context):
            store.parent.rename(away)
            if then is not None:
                store.parent.mkdir()
                then(store)
            return job.run(cell, context)

        fake = Job(run=goes)
        options = worker.WorkerOptions(device="cpu", run="one")
        with monkeypatch.context() as here, pytest.raises(StoreGone, match="nothing more is written"):
            here.setattr(registry, "load", lambda kind, name: fake if kind == "job" else real(kind, name))
            worker.Worker(Study(store), naps(2), suite="test", options=options, stop=lambda: False).run()
    left = {path.name for path in store.parent.rglob("*")} if store.parent.exists() else set()
    assert left == {None: set(), other: {"store"}, remade: {"store", "store.json", "cells"}}[then]


def test_a_worker_of_a_run_makes_no_study(tmp_path):
    arguments = ["--store", str(tmp_path / "store"), "--suite", "test", "--cells", os.devnull, "--device", "cpu"]
    assert worker.main([*arguments, "--study", "0" * 32]) == EXIT_USAGE
    Study(tmp_path / "store").create()
    assert worker.main([*arguments, "--study", "0" * 32]) == EXIT_USAGE  # it is another one


def test_each_study_has_its_own_token(tmp_path):
    for name in "ab":
        Study(tmp_path / name).create()
    first = Study(tmp_path / "a").identity()
    Study(tmp_path / "a").create()
    assert Study(tmp_path / "a").identity() == first
    assert len(first.token) == 32 and first.token != Study(tmp_path / "b").identity().token
    with pytest.raises(StoreGone):
        Study(tmp_path / "b").check_is(first)
