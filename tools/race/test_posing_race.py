"""The race on a CPU that poses as two GPUs: one contender at a time, and what runs out of memory is left out."""

import json
from unittest import mock

import pytest
import torch

from bench.store.study import Study
from bench.study.cell import Cell, Recipe
from tests.gpu.posing import posing
from tests.train.driving import job_context
from tools.race import contenders, job
from tools.race.contenders import Competitor

pytestmark = pytest.mark.gate


@pytest.fixture
def gpu():
    with posing():
        yield
    torch.set_num_threads(1)


def context(folder, cell, *, device="cuda"):
    directory = Study(folder).cell(cell)
    directory.prepare(cell)
    return job_context(folder, directory=directory, attempt=directory.new_attempt(), device=device)


CELL = Cell(
    model="ViT-b/14",
    model_options=(("gelu", "exact"), ("depth", 1)),
    data="fashion-mnist",
    num_images=64,
    image_size=28,
    channels=1,
    recipe=Recipe(batch=8, lr=1e-3),
    horizons=(64,),
    job="peers",
)


def test_peers_one_at_a_time(gpu, race, tmp_path, monkeypatch):
    """Their processes are never there together, each start begins them anew, and what runs out of memory later than in
    its first steps is left out and not an error."""
    entrants = (
        Competitor(name=contenders.OWN, package=None),
        Competitor(name=contenders.BASE, package="timm"),
    )
    monkeypatch.setattr(contenders, "contenders", lambda device, threads: entrants)
    monkeypatch.setitem(job.STARTS, "cuda", 2)
    monkeypatch.setitem(job.WINDOWS, "cuda", 1)
    monkeypatch.setitem(job.WINDOW_SECONDS, "cuda", 0.01)
    alive: list[int] = []
    monkeypatch.setattr(job.Entrant, "window", watched(job.Entrant.window, alive))
    result = job.run(CELL, context(tmp_path, CELL))
    ours, theirs = result.peers.contenders
    assert result.status == "complete", result.reason
    assert len(ours.windows) == len(theirs.windows) == 2 and max(alive) == 1
    assert ours.losses == pytest.approx(theirs.losses, rel=0.02)  # theirs are of float32


def watched(window, alive):
    running: set = set()

    def once(self, seconds):
        running.add(self)
        alive.append(sum(process.poll() is None for entrant in running for process in entrant.processes))
        return window(self, seconds)

    return once


def test_a_contender_that_runs_out_of_memory_in_a_window_is_left_out(race, tmp_path, monkeypatch):
    answers = iter([{"call_seconds": 0.1, "dtype": "bfloat16", "params": 1}, {"left_out": "out of memory"}])
    process = mock.Mock(**{"stdout.readline": lambda: json.dumps(next(answers)) + "\n", "wait.return_value": 0})
    monkeypatch.setattr(job.subprocess, "Popen", lambda *_, **__: process)
    contestant = job.Entrant(Competitor(name="x", package=None), CELL, context(tmp_path, CELL))
    contestant.start()
    contestant.window(1.0)
    contestant.window(1.0)
    assert contestant.left_out == "out of memory" and contestant.rates == []
    assert contestant.summary(1, 1.0).left_out == "out of memory"
