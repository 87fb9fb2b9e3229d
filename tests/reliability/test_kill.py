"""Killed anywhere, the same command finishes the job, with the same numbers to the last bit."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.core.errors import EXIT_FAILED
from bench.plan import estimate
from bench.store import lease
from bench.store.records import read_record
from bench.store.study import Study, attempt_status
from bench.study.cell import Cell, TaskSpec, to_json
from bench.suites._recipes import recipe_for
from tests.conftest import PROJECT
from tests.data import photographs
from tests.data.test_stream import as_tar
from tests.reliability._attempt import attempt, begin, ended
from tests.reliability.storms import leftovers, outcome, stopped, trained_steps, until

pytestmark = pytest.mark.gate

TASK = TaskSpec(task="fewshot", data="digits", options=(("shots", (5,)), ("draws", 2), ("test_limit", 200)))
CELL = Cell(
    model="ViT-pico/14",
    data="fashion-mnist",
    num_images=200,
    horizons=(0, 640, 1280, 2560),
    seed=1,
    tasks=(TASK,),
    recipe=recipe_for("ViT-pico/14", warmup_images=128),
)


def paused(store, cell, where):
    """A worker that has stopped itself there, and goes on when it is told to."""
    process = begin(store, [cell], f"{where}:SIGSTOP", suite="test")
    until(lambda: stopped(process.pid))
    return process


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    store = tmp_path_factory.mktemp("whole") / "test"
    assert attempt(store, [CELL], suite="test") == 0
    return outcome(store)


@pytest.mark.parametrize("point", ["training-step:37", pytest.param("after-evaluation:3")])
def test_sigkill_between_checkpoints(tmp_path, uninterrupted, point):
    """Every other named point: tests/reliability/test_many_kills.py."""
    store = tmp_path / "test"
    assert attempt(store, [CELL], point, suite="test") == -signal.SIGKILL
    assert attempt(store, [CELL], suite="test") == 0
    assert outcome(store) == uninterrupted
    assert leftovers(store) == []


@pytest.mark.parametrize("end", ["training-step:3", "after-evaluation:1", "the first goes on"])
def test_a_paused_worker_goes_on_after_another_has_done_a_part(tmp_path, uninterrupted, end):
    """As when its lease expires on another machine. The other is killed there, or still at it and ends it."""
    store = tmp_path / "test"
    first = paused(store, CELL, "training-step:25")
    assert any(store.glob("cells/*/checkpoints/step-*/*"))
    next(store.glob("cells/*/lease.json")).unlink()
    at_it = trained_steps(store)
    second = begin(store, [CELL], end, suite="test")
    if end == "the first goes on":
        until(lambda: trained_steps(store) > at_it)
    else:
        assert ended(second) == -signal.SIGKILL
    os.kill(first.pid, signal.SIGCONT)
    ended(second)
    ended(first)
    assert attempt(store, [CELL], suite="test") == 0
    assert outcome(store) == uninterrupted and leftovers(store) == []


def test_a_copy_that_was_made_while_it_ran_is_as_good_as_the_original(tmp_path, uninterrupted):
    store, copy = tmp_path / "test", tmp_path / "copied" / "test"
    first = paused(store, CELL, "training-step:25")
    assert any(store.glob("cells/*/checkpoints/step-*/*"))
    copy.parent.mkdir()
    os.kill(first.pid, signal.SIGCONT)
    subprocess.run(["cp", "-r", str(store), str(copy)], capture_output=True)  # files that vanish meanwhile are left out
    assert ended(first) == 0
    assert attempt(copy, [CELL], suite="test") == 0
    assert outcome(store) == outcome(copy) == uninterrupted
    assert leftovers(store) == leftovers(copy) == []


FRAGILE = """
import torch
from torch import nn

class Odd(BaseException):
    pass


class Net(nn.Module):
    num_features, steps = 49, 0

    def __init__(self, num_classes, broken=""):
        super().__init__()
        self.broken, self.head = broken, nn.Linear(49, num_classes)

    def features(self, x):
        if self.broken == "features" and not x.is_meta:
            raise RuntimeError("no features")
        return nn.functional.avg_pool2d(x.mean(1), 4).flatten(1)

    def forward(self, x):
        if not x.is_meta and self.training:
            self.steps += 1
        if self.broken == f"odd {self.steps}":
            raise Odd("broken here")
        if self.broken == str(self.steps) or (self.broken == "evaluation" and not x.is_meta and not self.training):
            raise RuntimeError("broken here")
        return self.head(nn.functional.avg_pool2d(x.mean(1), 4).flatten(1))
"""


@pytest.mark.parametrize("where", ["1", "30", "evaluation", "features", "odd 30"])
def test_a_network_that_raises_fails_its_cell_in_a_sentence_and_spares_the_others(tmp_path, where, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(FRAGILE)
    recipe = recipe_for("ViT-pico/14", warmup_images=128)
    wanted = {"model": "own.py:Net", "tasks": (TASK,), "recipe": recipe, "horizons": (0, 2560), "num_images": 200}
    broken = Cell(data="fashion-mnist", model_options=(("broken", where),), **wanted)
    whole = Cell(data="fashion-mnist", **wanted)
    store = tmp_path / "test"
    assert attempt(store, [broken, whole], suite="test") == EXIT_FAILED
    states = {directory.path.name: directory for directory in Study(store).directories()}
    done = [directory for directory in states.values() if directory.is_done()]
    assert len(states) == 2 and len(done) == 1
    lost = next(directory for directory in states.values() if not directory.is_done())
    said = attempt_status(lost.attempts()[-1])
    assert said["outcome"] == "failed" and "own.py" in json.dumps(said)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2], ids=lambda n: n.name)
def test_a_signal_saves_at_the_next_step_and_says_so(tmp_path, uninterrupted, number):
    store = tmp_path / "test"
    process = paused(store, CELL, "training-step:11")
    os.kill(process.pid, number)
    os.kill(process.pid, signal.SIGCONT)
    assert ended(process) == 130
    (stopped,) = Study(store).cell(CELL).attempts()
    assert json.loads((stopped / "status.json").read_text())["outcome"] == "interrupted"
    assert attempt(store, [CELL], suite="test") == 0
    assert outcome(store) == uninterrupted
    assert [a.outcome for a in read_record(Study(store).cell(CELL).record).attempts] == ["interrupted", "complete"]


def test_a_signal_to_the_command_saves_every_cell_and_says_how_to_go_on(tmp_path):
    """As a cluster sends it before a job's time is up."""
    command = [
        sys.executable,
        "-m",
        "bench.run",
        "--suite",
        "smoke",
        "--models",
        "ViT-pico/14",
        "--horizons",
        "100000",
        "--results",
        str(tmp_path),
    ]
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: list(tmp_path.glob("smoke/cells/*/attempts/*/metrics.jsonl")))
    process.send_signal(signal.SIGUSR2)
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 130, output + errors
    assert "Run the same command to continue" in errors
    statuses = [json.loads(path.read_text()) for path in tmp_path.glob("smoke/cells/*/attempts/*/status.json")]
    assert "interrupted" in {status["outcome"] for status in statuses}
    assert list(tmp_path.glob("smoke/cells/*/checkpoints/step-*/manifest.json"))


CALIBRATES = """
import os, sys, time
from bench.plan import calibrate
calibrate.answer = lambda *_, **__: [os.write(2, b"measuring\\n"), time.sleep(600)]
calibrate.main(["--parent", str(os.getppid())])
"""
STARTS = """
import json, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
child.communicate(sys.argv[2].encode())
"""


def test_what_measures_speeds_does_not_outlive_who_asked():
    asked = json.dumps({"key": {"cell": to_json(CELL), "classes": 10, "measure": True}})
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTS, CALIBRATES, asked], cwd=PROJECT, stderr=subprocess.PIPE, text=True
    )
    assert parent.stderr.readline() == "measuring\n"
    parent.kill()
    assert parent.communicate(timeout=300)[1] == ""  # the end of all that hold it


MEASURES = """
import signal, subprocess, sys
from bench.core.events import ProcessFailed
from bench.plan import estimate
start = subprocess.Popen
slow = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever a shell starts in the background ignores it
estimate.from_line = lambda _: print("waiting", file=sys.stderr, flush=True) or ProcessFailed(what="")
subprocess.Popen = lambda _, **given: start(slow, **given)
estimate._measure({"one": {}, "other": {}}, device="cpu", threads=1, processes=2, report=None)
"""


def test_a_signal_to_who_measures_alone_is_not_kept_waiting_for_the_answers():
    parent = subprocess.Popen([sys.executable, "-c", MEASURES], cwd=PROJECT, stderr=subprocess.PIPE, text=True)
    assert [parent.stderr.readline() for _ in range(2)] == ["waiting\n"] * 2
    begun = children(parent.pid)
    parent.send_signal(signal.SIGINT)
    try:
        assert parent.communicate(timeout=300)[1].endswith("KeyboardInterrupt\n")
        assert not any(map(runs, begun))
    finally:
        parent.kill()
        for number in filter(runs, begun):
            os.kill(number, signal.SIGKILL)


def test_a_signal_while_processes_that_measure_are_started_ends_those_that_were(monkeypatch):
    start, started = subprocess.Popen, list[subprocess.Popen]()

    def begin(_, **given):
        if started:
            raise KeyboardInterrupt
        started.append(start([sys.executable, "-c", "import time; time.sleep(600)"], **given))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", begin)
    with pytest.raises(KeyboardInterrupt):
        estimate._measure({"one": {}, "other": {}}, device="cpu", threads=1, processes=2, report=None)
    assert started[0].wait(timeout=600) == -signal.SIGKILL


THREE = [replace(CELL, seed=seed, horizons=(0, 640)) for seed in range(3)]


@pytest.mark.parametrize("fault, code", [("", 0), ("training-step:3", -signal.SIGKILL)])
def test_two_runs_where_no_lock_works_do_each_cell_once(tmp_path, fault, code):
    """To the end, which is the report; one of them may be killed on its way."""
    alone, store = tmp_path / "alone" / "study", tmp_path / "both" / "study"
    for folder in (alone, store):
        folder.parent.mkdir()
    assert attempt(alone, THREE) == 0
    first = begin(store, THREE, fault, locks=False)
    until(lambda: any(store.glob("cells/*/attempts/*")))
    second = begin(store, THREE, locks=False)
    assert [ended(first), ended(second)] == [code, 0]
    assert outcome(store) == outcome(alone) and len(outcome(store)) == 3
    assert (store / "tables/scores.csv").read_bytes() == (alone / "tables/scores.csv").read_bytes()
    assert sum(len(directory.attempts()) for directory in Study(store).directories()) == 3 + (code != 0)
    assert leftovers(store) == []


def children(process):
    """Children of any thread of a process."""
    found = list[int]()
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has ended
            found += map(int, task.read_text().split())
    return found


def readers(worker):
    """Processes that read images for a worker: those of a server that it has started."""
    return [reader for server in children(worker) for reader in children(server)]


def runs(process):
    return lease._alive(process, None)


@pytest.fixture
def streamed(tmp_path):
    """A cell whose images are read by other processes."""
    as_tar(tmp_path / "shards", [(photographs.jpeg(at % 12), at % 4) for at in range(48)])
    small = recipe_for("ViT-pico/14", warmup_images=128)
    return Cell(model="ViT-pico/14", data="folder:shards:28px:rgb:stream", horizons=(0, 6400), recipe=small)


def test_a_killed_worker_takes_its_readers_and_their_server_with_it(tmp_path, streamed):
    """A fork server lives as long as one of its children does, and it is their parent."""
    worker = paused(tmp_path / "test", streamed, "training-step:2")
    begun = [*children(worker.pid), *readers(worker.pid)]
    assert len(begun) > len(children(worker.pid))
    os.kill(worker.pid, signal.SIGKILL)
    ended(worker)
    until(lambda: not any(map(runs, begun)))


def test_processes_that_draw_images_end_with_the_one_that_asked(tmp_path):
    """They wait for work in a queue of which they hold both ends."""
    place = tmp_path / "drawing.py"
    place.write_text(DRAWING)
    drawing = subprocess.Popen(
        [sys.executable, str(place)], cwd=PROJECT, env=os.environ | {"PYTHONPATH": str(PROJECT)}, stdout=subprocess.PIPE
    )
    assert drawing.stdout is not None and drawing.stdout.readline() == b"drawn\n"
    begun = children(drawing.pid)
    assert len(begun) > 1
    drawing.kill()
    drawing.wait()
    until(lambda: not any(map(runs, begun)))


DRAWING = """
import time

import numpy as np

from bench.data.generated import drawn

def draw(numbers_N, *, classes, split, size):
    return np.zeros((len(numbers_N), 1, 1, 1), np.uint8)

if __name__ == "__main__":
    drawn.MAX_IMAGES_OF_ONE_PROCESS, drawn.IMAGES_PER_PIECE = 1, 10
    for _ in drawn._pieces(draw, 3, 1000, "train", 1, "test"):
        print("drawn", flush=True)
        time.sleep(600)
"""


def test_a_killed_reader_of_images_is_told_of_and_the_same_command_goes_on(tmp_path, streamed):
    cell, store, alone = streamed, tmp_path / "test", tmp_path / "alone"
    first = paused(store, cell, "training-step:11")
    os.kill(readers(first.pid)[0], signal.SIGKILL)
    os.kill(first.pid, signal.SIGCONT)
    assert ended(first) == EXIT_FAILED
    said = attempt_status(Study(store).cell(cell).attempts()[-1])
    assert said["reason"].startswith("A process that reads images was killed; is memory short?"), said
    assert attempt(store, [cell], suite="test") == attempt(alone, [cell], suite="test") == 0
    assert outcome(store) == outcome(alone) != {} and leftovers(store) == []


def test_two_workers_share_a_store_and_do_each_cell_once(tmp_path, uninterrupted):
    store = tmp_path / "test"
    pair = [begin(store, [CELL], suite="test") for _ in range(2)]
    assert [ended(process) for process in pair] == [0, 0]
    assert outcome(store) == uninterrupted
    assert len(Study(store).cell(CELL).attempts()) == 1
