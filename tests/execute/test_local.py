"""Workers on this machine: which share it, stop, fail, and what they never overwrite."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from bench.core import environment, files
from bench.core.environment import now
from bench.core.errors import EXIT_FAILED, EXIT_OK, Interrupted, UserError
from bench.core.events import (
    CellDone,
    CellFailed,
    CellLost,
    CellStarted,
    Notice,
    ProcessFailed,
    from_line,
    last_failure,
    to_line,
)
from bench.execute import local, worker
from bench.execute.jobs import train
from bench.execute.jobs.job import Job
from bench.store import lease
from bench.store.study import WEIGHTS, CellDirectory, Study, state_of
from bench.study import registry
from bench.study.cell import Cell
from bench.suites._recipes import recipe_for
from bench.train.ranks import EXIT_RETRY
from tests.conftest import PROJECT
from tests.execute.naps import known, naps, run
from tests.plan.making import plan_of

# -- what cannot be run is tried once, said once, counted by cells and never passed over; what hangs can be ended ------


HOPELESS = [Cell(model="ViT-pico/14", data="glyphs", image_size=15, horizons=(0, 64), seed=seed) for seed in (0, 1)]
STARTED = CellStarted(cell="a", model="ViT-pico/14", data="digits", seed=0)


def work(store, *, run, cells=HOPELESS, stop=lambda: False):
    options = worker.WorkerOptions(device="cpu", run=run)
    return worker.Worker(Study(store), list(cells), suite="test", options=options, stop=stop).run()


@pytest.mark.parametrize("ahead", [False, True])
def test_another_worker_of_the_run_leaves_it_alone_and_the_next_run_tries_again(ahead, tmp_path, monkeypatch, capsys):
    """Also where the clock of the machine that failed is years ahead."""
    study = Study(tmp_path)
    study.create()
    if ahead:
        monkeypatch.setattr(worker, "now", lambda: "2999-01-01T00:00:00+00:00")
    assert work(tmp_path, run="first") == EXIT_FAILED
    monkeypatch.setattr(worker, "now", now)
    assert work(tmp_path, run="first") == EXIT_OK  # a second worker, at the end of its list
    assert [len(study.cell(cell).attempts()) for cell in HOPELESS] == [1, 1]
    events = [from_line(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(isinstance(event, CellFailed) for event in events) == 2
    state = state_of(study.cell(HOPELESS[0]))  # what vit-bench status shows
    assert state.name == "failed" and "15 px" in state.note and "14 or 28 px" in state.note
    assert work(tmp_path, run="second") == EXIT_FAILED  # a later run: the user may have mended it
    assert [len(study.cell(cell).attempts()) for cell in HOPELESS] == [2, 2]
    assert [attempt.outcome for attempt in study.cell(HOPELESS[0]).attempt_log()] == ["failed", "failed"]


@pytest.mark.parametrize(
    "error, raised",
    [
        (BrokenPipeError, Interrupted),
        (SystemExit, Interrupted),
        (RuntimeError, RuntimeError),
    ],
)
def test_workers_are_asked_to_save_when_the_display_fails(error, raised, tmp_path, monkeypatch):
    asked = []

    class Pool:
        def __init__(self, *_, **__):
            self.processes, self.interrupted, self.events, self.complaints = [None], False, local.queue.Queue(), []
            self.events.put((0, STARTED))

        def bound_logs(self):
            asked.clear()

        def stop(self):
            asked.append("stop")

        def finish(self, **_):
            asked.append("finish")
            return []

    def closed(*_):
        raise error

    monkeypatch.setattr(local, "Pool", Pool)
    with pytest.raises(raised):
        local.run(plan_of(HOPELESS, tmp_path), on_event=closed, tick=lambda: None)
    assert asked[:2] == ["stop", "finish"]


def run_cells(store, *, cells=HOPELESS[:1], tick=lambda: None, seen=lambda event: None):
    """(what `local.run` returned or raised, the notices that it gave)."""
    notices = []

    def on_event(_, event):
        notices.extend([event.message] if isinstance(event, Notice) else [])
        seen(event)

    try:
        return local.run(plan_of(cells, store), on_event=on_event, tick=tick), notices
    except (UserError, Interrupted) as error:
        return error, notices


def start_instead(monkeypatch, folder, script):
    """Have another program run in place of Python, with a worker's arguments."""
    (folder / "program").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "program").chmod(0o755)
    monkeypatch.setattr(local.sys, "executable", str(folder / "program"))


def test_a_worker_that_crashes_where_it_begins_is_told_of(tmp_path, monkeypatch):
    """Python's exit code for it is 1."""
    (tmp_path / "numpy.py").write_text("raise ImportError('libblas.so: cannot open shared object file')")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{PROJECT}"}
    monkeypatch.setattr(local, "child_environment", lambda _, **__: environment)
    error, notices = run_cells(tmp_path / "store")
    assert isinstance(error, UserError) and error.what == "ImportError: libblas.so: cannot open shared object file"
    assert "same command" in error.fix and notices == [error.what]


@pytest.mark.parametrize(
    "script, words",
    [
        ("exit 0", "no worker reported a reason"),
        ("exit 3", "no worker reported a reason"),
        ("exit 1", "exit code 1"),
        (f"echo '{to_line(ProcessFailed(what='The disk is full: /x'))}'; exit 2", "The disk is full: /x"),
        ("kill -9 $$", "killed by SIGKILL"),
    ],
)
def test_cells_that_were_not_done_are_never_passed_over(tmp_path, monkeypatch, script, words):
    start_instead(monkeypatch, tmp_path, script)
    error, _ = run_cells(tmp_path / "store")
    assert isinstance(error, UserError) and words in error.what


PRINTS = """
import os, sys
from bench.execute import worker
from tests.execute.test_local import STARTED

def run(_):
    print("half a line", end="")
    os.write(1, b"from C")
    worker.emit(STARTED)
    return 0

worker.Worker.run = run
sys.exit(worker.main(sys.argv[1:]))
"""


@pytest.mark.gate
def test_what_a_network_prints_hides_no_event(tmp_path):
    (tmp_path / "cells.json").write_text("[]")
    options = ["--store", str(tmp_path), "--cells", str(tmp_path / "cells.json"), "--suite", "test"]
    done = subprocess.run([sys.executable, "-c", PRINTS, *options], cwd=PROJECT, capture_output=True, text=True)
    assert done.stdout == f"{to_line(STARTED)}\n" and "half a line" in done.stderr and "from C" in done.stderr
    assert last_failure([f"half a line{to_line(ProcessFailed(what='x'))}"]).what == "x"  # in a log of both


def test_what_a_network_prints_for_ever_is_not_kept(tmp_path, monkeypatch):
    size = "$(stat -L -c %s /proc/$$/fd/2)"
    waits = f"n=0; while [ {size} -gt 900000 ] && [ $n -lt 6000 ]; do sleep 0.02; n=$((n + 1)); done"
    prints = f"for i in 1 2 3; do head -c 1000000 /dev/zero >&2; {waits}; done"
    start_instead(monkeypatch, tmp_path, f"{prints}; echo {size} > {tmp_path}/size; echo so it ended >&2; exit 9")
    monkeypatch.setattr(local, "MAX_LOG_BYTES", 900_000)
    error, _ = run_cells(tmp_path / "store")
    assert int((tmp_path / "size").read_text()) <= 900_000 and error.what.endswith("so it ended")


def test_a_worker_that_lost_its_device_starts_again_a_few_times(tmp_path, monkeypatch):
    start_instead(monkeypatch, tmp_path, f"echo started >> {tmp_path}/starts; exit {EXIT_RETRY}")
    error, notices = run_cells(tmp_path / "store")
    assert (tmp_path / "starts").read_text().split() == ["started"] * (1 + local.MAX_RESTARTS)
    assert isinstance(error, UserError) and "stopped answering" in error.what and notices == [error.what]


def test_a_worker_whose_device_is_lost_leaves_the_other_cells_to_the_next(tmp_path, monkeypatch):
    """And its own: it has done nothing wrong."""

    def lost(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(train, "_open_data", lost)
    monkeypatch.setattr(worker, "is_lost", lambda device: device == "cpu")
    study = Study(tmp_path)
    study.create()
    cells = [replace(cell, image_size=28) for cell in HOPELESS]
    for attempts in ([1, 0], [2, 0]):
        with pytest.raises(worker.DeviceLost):
            work(tmp_path, run="one", cells=cells)
        assert [len(study.cell(cell).attempts()) for cell in cells] == attempts


def test_a_worker_whose_device_a_run_has_damaged_and_survived_begins_no_other(tmp_path, monkeypatch):
    """That one would fail, and has done nothing wrong."""
    monkeypatch.setattr(worker, "DAMAGED", set())
    monkeypatch.setattr(worker.Worker, "_job", lambda *_: worker.DAMAGED.add("cpu"))
    monkeypatch.setattr(worker.Worker, "_publish", lambda *_: None)
    study = Study(tmp_path)
    study.create()
    cells = [replace(cell, image_size=28) for cell in HOPELESS]
    with pytest.raises(worker.DeviceLost):
        work(tmp_path, run="one", cells=cells)
    assert [len(study.cell(cell).attempts()) for cell in cells] == [1, 0]


def test_a_worker_that_dies_of_the_call_to_stop_is_no_complaint(tmp_path, monkeypatch):
    """Its interpreter may end before, or after, it listens to signals."""
    start_instead(monkeypatch, tmp_path, f"echo '{to_line(STARTED)}'; exec sleep 600")

    def stop(event):
        if isinstance(event, CellStarted):
            os.kill(os.getpid(), signal.SIGTERM)

    error, notices = run_cells(tmp_path / "store", seen=stop)
    assert isinstance(error, Interrupted) and not any("memory" in notice for notice in notices)


HANGS = f"""trap '' TERM
echo '{to_line(STARTED)}'
sleep 600 & wait; sleep 600"""


@pytest.mark.parametrize("patience, signals", [(0.5, 1), (600.0, 2)])
def test_a_worker_that_hangs_is_ended_and_nobody_claims_that_it_saved(tmp_path, monkeypatch, patience, signals):
    """After a deadline, or at once by a second signal."""
    monkeypatch.setattr(local, "STOP_PATIENCE", patience)
    monkeypatch.setattr(local, "KILL_SIGNAL_AFTER", 0.1)
    start_instead(monkeypatch, tmp_path, HANGS)
    sent = list[float]()  # when it began, and when each signal was: two in the same moment count as one

    def seen(event):
        sent.extend([time.monotonic()] if isinstance(event, CellStarted) else [])

    def tick():
        if 0 < len(sent) <= signals and time.monotonic() > sent[-1] + 0.5:
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGTERM)

    error, notices = run_cells(tmp_path / "store", tick=tick, seen=seen)
    assert isinstance(error, Interrupted) and "a ended without saving" in str(error)
    assert any("Another signal" in notice for notice in notices)
    assert not list((tmp_path / "store").glob(".*.tmp"))


def test_what_outlives_a_worker_keeps_no_run_waiting(tmp_path, monkeypatch):
    """It has the worker's standard output, and is neither in its session nor its child."""
    monkeypatch.setattr(local, "STOP_PATIENCE", 0.1)
    start_instead(
        monkeypatch,
        tmp_path,
        f"(setsid sh -c 'echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 600' &)\n{HANGS}",
    )

    def tick():
        if (tmp_path / "pid").exists() and not sent:
            sent.append(os.kill(os.getpid(), signal.SIGTERM))

    sent: list[None] = []
    error, _ = run_cells(tmp_path / "store", tick=tick)
    assert isinstance(error, Interrupted)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # it was there to the end


@pytest.mark.gate
def test_what_a_killed_run_left_for_its_workers_goes_with_the_next(tmp_path):
    store = tmp_path / "store"
    script = (
        "import os, sys; from pathlib import Path; from bench.core import files\n"
        "with files.temporary_file(Path(sys.argv[1]) / 'run.cells.json'): os.kill(os.getpid(), 9)"
    )
    store.mkdir()
    subprocess.run([sys.executable, "-c", script, str(store)], cwd=PROJECT)
    assert len(list(store.glob(".*.tmp"))) == 1
    Study(store).create()
    assert not list(store.glob(".*.tmp"))


def test_a_damaged_record_that_cannot_be_set_aside_is_a_failure(tmp_path, monkeypatch, capsys):
    study = Study(tmp_path)
    study.create()
    directory = study.cell(HOPELESS[0])
    directory.path.mkdir()
    directory.record.write_text("{")
    replace = os.replace

    def refuse(source, target):
        if str(source).endswith("record.json"):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    assert work(tmp_path, run="one", cells=HOPELESS[:1]) == EXIT_FAILED
    event = from_line(capsys.readouterr().out.splitlines()[-1])
    assert isinstance(event, CellFailed) and "cannot be set aside" in event.reason


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path, monkeypatch, capsys):
    attempt = worker.RunningAttempt(CellDirectory(tmp_path), lease=None)
    (attempt.path / "log.txt").mkdir()
    for _ in range(2):
        attempt.log("a line")
    assert capsys.readouterr().out.count("log.txt") == 1


def test_a_run_that_waits_says_who_holds_the_cell_and_since_when(tmp_path, monkeypatch, capsys):
    study = Study(tmp_path)
    study.create()
    directory = study.cell(HOPELESS[0])
    directory.path.mkdir()
    looks = iter(range(3 * worker.POLLS_BEFORE_NOTICE))
    monkeypatch.setattr(worker, "WAIT_FOR_OTHERS", 0.0)
    with lease.claim(directory.lease):
        work(tmp_path, run="one", cells=HOPELESS[:1], stop=lambda: next(looks, None) is None)
    (said,) = [json.loads(line)["message"] for line in capsys.readouterr().out.splitlines()]
    assert directory.path.name in said and f"process {os.getpid()} of this machine since 20" in said


VERB = """
import sys
from bench.core.errors import command
@command
def main(argv=None):
    print("said")
    return 0
sys.exit(main())
"""


@pytest.mark.gate
@pytest.mark.parametrize("buffering", ["-u", "-s"])
def test_a_verb_whose_output_is_closed_ends_quietly(buffering):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, buffering, "-c", VERB], stdout=writer, stderr=subprocess.PIPE, text=True, cwd=PROJECT
    )
    os.close(writer)
    assert done.returncode == EXIT_OK and not done.stderr


@pytest.mark.parametrize("written", [None, "{", "{}x", '[{"model": 3}]', '["a"]'])
def test_a_worker_that_is_given_no_cells_says_so(tmp_path, written):
    path = tmp_path / "cells.json"
    if written is not None:
        path.write_text(written)
    with pytest.raises(UserError, match="holds no list of cells"):
        worker.read_cells(path)


# -- who lost a cell to another runner writes nothing there: one record, which is never replaced, and its own weights --


CELL = Cell(
    model="ViT-pico/14",
    data="fashion-mnist",
    num_images=100,
    horizons=(0, 64),
    seed=1,
    recipe=recipe_for("ViT-pico/14", batch=32, warmup_images=32),
)
JOB = registry.load("job", "train")


def run_worker(store, *, stop=lambda: False):
    options = worker.WorkerOptions(device="cpu")
    return worker.Worker(Study(store), [CELL], suite="test", options=options, stop=stop).run()


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

        load, fake = registry.load, Job(run=job)
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
    contents = {}

    def another_finishes():
        directory.lease.unlink()  # it was taken for dead
        assert run_worker(study.path) == EXIT_OK
        contents.update({path: path.read_bytes() for path in (directory.record, directory.weights / WEIGHTS)})
        (directory.attempts()[0] / WEIGHTS).write_bytes(b"of the one that was late")
        if not checked:
            monkeypatch.setattr(worker.RunningAttempt, "check_lease", lambda _: None)

    meanwhile(another_finishes, at="end")
    assert run_worker(study.path) == EXIT_OK
    assert {path: path.read_bytes() for path in contents} == contents and len(contents) == 2
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
    assert run_worker(study.path) == EXIT_OK  # the other ended, and this one takes the cell again
    assert saved == [] and outcomes(directory) == ["lost", "unknown", "complete"]
    assert [attempt.outcome for attempt in directory.read_record().attempts] == ["lost", "unknown", "complete"]


def test_one_that_was_late_and_then_told_to_stop_leaves_no_folder_for_checkpoints(study, meanwhile):
    directory, stops = study.cell(CELL), []

    def another_finishes():
        directory.lease.unlink()
        stops.append(run_worker(study.path))

    meanwhile(another_finishes, at="begin")
    run_worker(study.path, stop=lambda: bool(stops))
    assert stops == [EXIT_OK] and outcomes(directory) == ["lost", "complete"] and not directory.checkpoints.exists()


@pytest.mark.parametrize("torn", [False, True])
def test_weights_take_their_place_after_a_kill_between_the_record_and_that(study, monkeypatch, torn):
    """The record alone tells which attempt's weights they are, also where its status cannot be read."""
    directory = study.cell(CELL)
    monkeypatch.setattr(type(directory), "settle", lambda _: None)
    assert run_worker(study.path) == EXIT_OK
    monkeypatch.undo()
    staged = (directory.attempts()[0] / WEIGHTS).read_bytes()
    assert directory.record.exists() and not directory.weights.exists()
    if torn:
        (directory.attempts()[0] / "status.json").write_text("{")
    assert run_worker(study.path) == EXIT_OK
    assert (directory.weights / WEIGHTS).read_bytes() == staged and len(directory.attempts()) == 1


def test_what_a_kill_after_the_record_left_goes_before_the_next_run(study):
    """The cell is done: no worker looks at it again."""
    assert run_worker(study.path) == EXIT_OK
    directory = study.cell(CELL)
    directory.lease.write_bytes(files.sealed({"machine": lease._machine(), "pid": 2**30, "started": None}))
    (directory.path / ".lease.json.0.tmp").write_text("{")
    (directory.attempts()[0] / ".status.json.0.tmp").write_text("{")
    directory.tidy()
    assert not [path for path in directory.path.rglob("*") if "lease" in path.name or path.suffix == ".tmp"]
    for age, left in (
        (60, True),
        (lease.MAX_SKEW + 2 * lease.EXPIRES_AFTER, False),
    ):  # or this one, before it restarted
        directory.lease.write_bytes(files.sealed({"machine": "another", "pid": 1, "started": None}))
        (directory.checkpoints / "step-000000001").mkdir(parents=True, exist_ok=True)
        os.utime(directory.lease, (time.time() - age,) * 2)
        directory.tidy()
        assert directory.checkpoints.exists() == directory.lease.exists() == left
    with lease.claim(directory.lease):
        directory.tidy()  # another is at it
        assert directory.lease.exists()


# -- workers keep to cores that are near the same memory, where there are several such groups --------------------------


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Two nodes of four cores, as Linux lays them out; this process may not use the last core."""
    for number, cores in enumerate(("0-1,4-5", "2-3,6-7")):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(f"{cores}\n")
    (tmp_path / "node2").mkdir()
    (tmp_path / "node2" / "cpulist").write_text("\n")  # memory without processors
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(7)))
    return tmp_path


def test_groups_are_read_and_only_of_what_is_allowed(machine):
    assert environment.core_groups(machine) == [{0, 1, 4, 5}, {2, 3, 6}]
    assert environment.core_groups(machine / "none") == []


@pytest.mark.parametrize(
    "fields, used",
    [
        ({"threads": 3}, True),
        ({"threads": 1, "ranks": 3}, True),
        ({"threads": 4}, False),
        ({"device": "cuda"}, False),
    ],
)
def test_a_worker_that_is_larger_than_a_group_is_not_squeezed(machine, monkeypatch, fields, used):
    groups = environment.core_groups(machine)
    monkeypatch.setattr(environment, "core_groups", lambda: groups)
    assert local.groups_for(plan_of(naps(2), **fields)) == (groups if used else [])
    monkeypatch.setattr(environment, "core_groups", lambda: groups[:1])
    assert local.groups_for(plan_of(naps(2), **fields)) == []


def test_workers_run_there(tmp_path, monkeypatch):
    own = sorted(os.sched_getaffinity(0))
    groups = [{own[0]}, {own[-1]}]
    monkeypatch.setattr(environment, "core_groups", lambda: groups)
    kept, put = [], os.sched_setaffinity
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: kept.append(set(cores)) or put(pid, cores))
    with known(monkeypatch):
        assert run(naps(2), tmp_path / "test", executor="local") == []
    assert kept == groups
