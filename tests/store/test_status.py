"""bench.status: what a script may ask, and when watching ends."""

from __future__ import annotations

import json

import pytest

from bench import status
from bench.core import files
from bench.core.errors import EXIT_FAILED, EXIT_OK, EXIT_UNFINISHED
from bench.store import grid, lease
from bench.store.study import Study
from tests.analysis._records import World, write


@pytest.fixture
def study(tmp_path):
    """Two cells that are done."""
    world = World(seed=1)
    world.models = {"ViT-nano/7": world.models["ViT-nano/7"]}
    world.sizes, world.seeds, world.draws, world.shots = (30_000,), (0, 1), (0,), (1,)
    return Study(write(world.records(), tmp_path / "scaling"))


def tried(study, number, outcome, reason=None):
    """A cell without a result."""
    directory = study.cells_path / f"other-{number:010d}"
    attempt = directory / "attempts" / "001"
    attempt.mkdir(parents=True)
    status_of = {"started": "2026-01-01", "ended": "2026-01-02", "outcome": outcome}
    files.write_sealed(attempt / "status.json", status_of | ({"reason": reason} if reason else {}))
    return directory


def call(study, *words):
    return status.main(["--results", str(study.path.parent), *words])


def test_a_script_learns_whether_to_wait(study, monkeypatch):
    monkeypatch.setattr(status, "EVERY", 0.01)
    assert call(study, "--exit-code") == EXIT_OK
    assert call(study, "--exit-code", "--watch") == EXIT_OK
    tried(study, 1, "failed", "The disk is full.")
    assert call(study, "--exit-code") == EXIT_FAILED and call(study) == EXIT_OK
    assert call(study, "--exit-code", "--watch") == EXIT_FAILED  # it ends: nobody is at it
    tried(study, 2, "interrupted")
    assert call(study, "--exit-code") == EXIT_UNFINISHED


def test_cells_that_cannot_be_run_or_were_not_begun(study):
    names = tuple(directory.path.name for directory in study.directories())
    wanted = grid.WantedCells(suite="scaling", scale="cpu", names=(*names, "a-1"), refused={"a-1": "too small"})
    grid.write(study.path, wanted)
    assert call(study, "--exit-code") == EXIT_FAILED
    grid.write(study.path, grid.WantedCells(suite="scaling", scale="cpu", names=(*names, "a-1")))
    assert call(study, "--exit-code") == EXIT_UNFINISHED


def test_cells_that_are_done_without_a_result_are_counted(tmp_path, capsys):
    world = World(seed=1)
    world.sizes, world.seeds, world.draws, world.shots = (30_000,), (0,), (0,), (1,)
    write([*world.records(), world.diverged("ViT-nano/7")], tmp_path / "scaling")
    assert status.main(["--results", str(tmp_path)]) == EXIT_OK
    assert "done (1 diverged)" in capsys.readouterr().out


def test_who_holds_a_cell_is_named(study, monkeypatch, capsys):
    directory = tried(study, 1, "running")
    monkeypatch.setenv(lease.RUNNER, "slurm job 12_3")
    with lease.claim(directory / "lease.json"):
        assert call(study, "--json") == EXIT_OK
    (cell,) = [c for c in json.loads(capsys.readouterr().out)["scaling"] if c["state"] == "running"]
    assert "slurm job 12_3" in cell["note"]


def test_a_finished_cell_is_read_once_while_watching(study, monkeypatch):
    looked = []
    describe = status.describe
    monkeypatch.setattr(status, "describe", lambda directory: looked.append(1) or describe(directory))
    finished = {}
    first = status.cells_of(study, finished)
    assert status.cells_of(study, finished) == first and len(looked) == len(first)
    record = study.directories()[0].record
    record.write_bytes(record.read_bytes()[:-20])  # damaged since
    assert "damaged" in {cell["state"] for cell in status.cells_of(study, finished)}
