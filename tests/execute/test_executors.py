"""Workers of a SLURM or Ray cluster do what local ones do: the same records, each cell once, whatever is killed.

Real processes: two Ray nodes, submitit's jobs on this machine, and its SLURM jobs under stand-ins for SLURM's commands.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.core.errors import EXIT_OK, Interrupted, UserError
from bench.core.events import CellStarted, Notice
from bench.core.spec import Cell
from bench.execute import remote
from bench.execute.executors import executor, ray, slurm
from bench.plan import preflight
from bench.plan.options import StudyOptions
from bench.plan.resources import Needs
from bench.store.study import Study
from bench.suites._recipes import recipe_for
from tests.conftest import PROJECT
from tests.execute import naps, slurm_standin
from tests.plan.making import plan_of
from tests.reliability.storms import leftovers, outcome

TRAININGS = [
    Cell(
        model="ViT-pico/14",
        data="fashion-mnist",
        num_images=100,
        horizons=(0, 64),
        seed=seed,
        recipe=recipe_for("ViT-pico/14", batch=32, warmup_images=32),
    )
    for seed in (0, 1)
]
SUBMITIT = {"executor": "slurm", "options": [("cluster", "local")]}


@pytest.fixture(autouse=True)
def _naps(monkeypatch):
    with naps.known(monkeypatch):
        yield


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What the local executor makes of the trainings."""
    store = tmp_path_factory.mktemp("local") / "test"
    assert naps.run(TRAININGS, store, executor="local") == []
    return outcome(store)


@pytest.fixture(scope="module")
def ray_cluster():
    """Two nodes of one core each, with processes of their own, beside a head that runs nothing."""
    pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 80 * 2**20}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small})
        try:
            for _ in range(2):
                cluster.add_node(num_cpus=1, **small)
            cluster.wait_for_nodes()
            patch.setenv("RAY_ADDRESS", cluster.address)
            yield cluster
        finally:
            cluster.shutdown()


@pytest.fixture
def standin(tmp_path, monkeypatch):
    """SLURM, for this process and its children."""
    pytest.importorskip("submitit", reason="submitit is not installed: pip install -e '.[slurm]'")
    for name, value in slurm_standin.install(tmp_path / "slurm").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "slurm"


@pytest.fixture(params=["submitit", "slurm", pytest.param("ray", marks=pytest.mark.slow)])
def cluster(request):
    """How to reach one."""
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
        return {"executor": "ray"}
    pytest.importorskip("submitit", reason="submitit is not installed: pip install -e '.[slurm]'")
    if request.param == "slurm":
        request.getfixturevalue("standin")
        return {"executor": "slurm"}
    return SUBMITIT


def attempts(store: Path) -> Counter[int]:
    """How many cells have how many attempts."""
    return Counter(len(directory.attempts()) for directory in Study(store).directories())


def heard() -> tuple[list[str], Callable[[int, dict], None]]:
    """Notices, and what collects them from events."""
    notices: list[str] = []
    return notices, lambda _, event: notices.extend([event.message] if isinstance(event, Notice) else [])


def holder(store: Path, name: str) -> int:
    """The process that has begun an attempt of a cell: it holds the lease a moment before."""
    for _ in range(1000):
        if list((store / "cells" / name).glob("attempts/*/status.json")):
            break
        time.sleep(0.01)
    return json.loads((store / "cells" / name / "lease.json").read_text())["pid"]


@pytest.mark.slow
def test_records_are_those_of_the_local_executor(cluster, alone, tmp_path):
    store = tmp_path / "test"
    assert naps.run(TRAININGS, store, **cluster) == []
    assert outcome(store) == alone and len(alone) == len(TRAININGS)
    assert attempts(store) == {1: len(TRAININGS)} and not leftovers(store) and not (store / remote.RUNS_FOLDER).exists()


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_its_cell_one_attempt(cluster, tmp_path):
    store, killed, notices = tmp_path / "test", [], []

    def on_event(_, event):
        if isinstance(event, CellStarted) and not killed:
            killed.append(event.cell)
            os.kill(holder(store, event.cell), signal.SIGKILL)
        notices.extend([event.message] if isinstance(event, Notice) else [])

    cells = naps.naps(4, seconds=2.0)
    assert naps.run(cells, store, on_event=on_event, **cluster) == []
    records = {directory.path.name: directory.read_record() for directory in Study(store).directories()}
    assert [a.outcome for a in records.pop(killed[0]).attempts] == ["running", "complete"]
    assert len(records) == 3 and all([a.outcome for a in r.attempts] == ["complete"] for r in records.values())
    assert any("killed by SIGKILL" in notice for notice in notices) and not leftovers(store)


def test_cells_that_fail_are_told_of_and_logged(cluster, tmp_path):
    cells = naps.naps(2)
    cells[1] = type(cells[1])(**{**vars(cells[1]), "model_options": (("fails", True),)})
    (failure,) = naps.run(cells, tmp_path / "test", **cluster)
    assert "it was to fail" in failure.reason and failure.cell == Study(tmp_path / "test").cell(cells[1]).path.name
    logs = list((tmp_path / "test" / remote.RUNS_FOLDER).glob("*/worker-*.log"))
    assert logs and any("it was to fail" in path.read_text() for path in logs)


def test_a_signal_saves_and_leaves_nothing_half_done(cluster, tmp_path):
    store, sent = tmp_path / "test", []

    def on_event(_, event):
        if isinstance(event, CellStarted) and not sent:
            sent.append(event.cell)
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="saved"):
        naps.run(naps.naps(2, seconds=120.0), store, on_event=on_event, **cluster)
    assert {a.outcome for d in Study(store).directories() for a in d.attempt_log()} == {"interrupted"}
    assert not list(store.glob("cells/*/lease.json")) and not list(store.glob("cells/*/record.json"))


@pytest.mark.slow
def test_a_call_to_stop_that_a_library_loses_is_repeated(tmp_path, monkeypatch):
    calls, real = [], slurm.Slurm.stop

    def stop(self):
        calls.append("stop")
        if len(calls) > 1:
            real(self)

    def close(self):
        calls.append("close")
        real(self)

    def on_event(_, event):
        if isinstance(event, CellStarted):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(slurm.Slurm, "stop", stop)
    monkeypatch.setattr(slurm.Slurm, "close", close)
    monkeypatch.setattr(remote, "SAVE_SECONDS", 5.0)
    with pytest.raises(Interrupted, match="saved"):
        naps.run(
            naps.naps(1, seconds=120.0),
            tmp_path / "test",
            on_event=on_event,
            executor="slurm",
            options=[("cluster", "local")],
        )
    assert calls == ["stop", "stop", "close"]
    assert [a.outcome for d in Study(tmp_path / "test").directories() for a in d.attempt_log()] == ["interrupted"]


@pytest.mark.parametrize("during", ["make", "adopt"])
def test_a_signal_before_anything_is_submitted_submits_nothing(during, tmp_path, monkeypatch):
    """A library may take long to begin, and to find the jobs of an earlier run."""
    store, called = tmp_path / "test", []

    class Slow:
        slots = 2

        def __init__(self, folder, needs):
            self.reach("make")

        def reach(self, what, result=None):
            called.append(what)
            if what == during:
                os.kill(os.getpid(), signal.SIGINT)
            return result

        def adopt(self, names, folder):
            return self.reach("adopt", 1)

        def __getattr__(self, name):
            return lambda *_: self.reach(name, [])

    monkeypatch.setattr(ray, "Ray", Slow)
    cells = naps.naps(1)
    earlier = store / remote.RUNS_FOLDER / "earlier" / remote.SUBMITTED_FILE.format(0)
    earlier.parent.mkdir(parents=True)
    name = Study(store).cell(cells[0]).path.name
    earlier.write_text(json.dumps({"cells": [name], "jobs": ["1"]}))
    with pytest.raises(Interrupted, match="nothing was submitted"):
        naps.run(cells, store, executor="ray")
    assert during in called and "leave" in called and not {"submit", "stop"} & set(called)
    assert [path.name for path in (store / remote.RUNS_FOLDER).iterdir()] == ["earlier"]


@pytest.mark.slow
def test_preempted_and_timed_out_jobs_save_and_are_requeued(standin, tmp_path):
    """SLURM's signal comes to every process of the job."""
    store, sent = tmp_path / "test", []

    def on_event(_, event):
        if isinstance(event, CellStarted) and not sent:
            sent.append(event.cell)
            runner = json.loads((store / "cells" / event.cell / "lease.json").read_text())["runner"]
            assert slurm_standin.send(standin, runner.removeprefix("slurm job "), signal.SIGUSR2)

    assert naps.run(naps.naps(2, seconds=3.0), store, executor="slurm", on_event=on_event) == []
    found = {d.path.name: [a.outcome for a in d.attempt_log()] for d in Study(store).directories()}
    assert found.pop(sent[0])[0] == "interrupted"
    assert "scontrol requeue" in (standin / "calls.txt").read_text()


@pytest.mark.slow
def test_jobs_that_were_left_are_followed_and_not_submitted_again(standin, tmp_path):
    store, (notices, on_event) = tmp_path / "test", heard()
    cells = naps.naps(3, seconds=4.0)
    assert naps.run(cells, store, executor="slurm", detach=True, on_event=on_event) == []
    assert "2 jobs submitted: 1000_0, 1000_1." in notices and not list(store.glob("cells/*/record.json"))
    assert naps.run(cells, store, executor="slurm", on_event=on_event) == []
    assert any("2 jobs of an earlier run" in message for message in notices)
    assert (standin / "calls.txt").read_text().count("sbatch ") == 1
    assert attempts(store) == {1: 3} and len(list(store.glob("cells/*/record.json"))) == 3
    assert not leftovers(store) and not (store / remote.RUNS_FOLDER).exists()


@pytest.mark.slow
def test_jobs_of_other_cells_are_left_alone(standin, tmp_path):
    store, (notices, on_event) = tmp_path / "test", heard()
    first, second, third = naps.naps(3, seconds=2.0)
    assert naps.run([first, second], store, executor="slurm", workers=1, detach=True) == []
    (folder,) = (store / remote.RUNS_FOLDER).iterdir()
    assert naps.run([third], store, executor="slurm", on_event=on_event) == []
    assert list((store / remote.RUNS_FOLDER).iterdir()) == [folder] and not notices
    assert "scancel" not in (standin / "calls.txt").read_text()
    assert naps.run([first, second, third], store, executor="slurm", workers=1, on_event=on_event) == []
    assert any("1 job of an earlier run" in message for message in notices)
    assert (standin / "calls.txt").read_text().count("sbatch ") == 2
    assert attempts(store) == {1: 3} and not leftovers(store) and not (store / remote.RUNS_FOLDER).exists()


@pytest.mark.slow
def test_jobs_are_adopted_once_however_often_they_are_left(standin, tmp_path):
    store, (notices, on_event) = tmp_path / "test", heard()
    cells = naps.naps(2, seconds=6.0)
    for _ in range(3):
        assert naps.run(cells, store, executor="slurm", detach=True, on_event=on_event) == []
    assert len(notices) == 3 and "submitted" in notices[0]
    assert all("2 jobs of an earlier run" in notice for notice in notices[1:])
    assert len(list((store / remote.RUNS_FOLDER).iterdir())) == 1
    assert naps.run(cells, store, executor="slurm", on_event=on_event) == []
    assert (standin / "calls.txt").read_text().count("sbatch ") == 1
    assert attempts(store) == {1: 2} and not (store / remote.RUNS_FOLDER).exists()


@pytest.mark.slow
def test_workers_are_a_maximum_for_cells_of_several_kinds(tmp_path, monkeypatch):
    pytest.importorskip("submitit", reason="submitit is not installed: pip install -e '.[slurm]'")
    running, submit = [], remote.WorkerKind.submit

    def counted(kind, number):
        submit(kind, number)
        kinds[kind._number] = kind
        running.append(sum(each.running for each in kinds.values()))

    kinds: dict[int, remote.WorkerKind] = {}
    monkeypatch.setattr(remote.WorkerKind, "submit", counted)
    monkeypatch.setattr(remote, "_hours", lambda cell: 20.0 if cell.cell.seed else 1.0)
    assert naps.run(naps.naps(3), tmp_path / "test", workers=1, **SUBMITIT) == []
    assert len(kinds) == 2 and max(running) == 1 and attempts(tmp_path / "test") == {1: 3}


@pytest.mark.parametrize(
    "workers, cells, found",
    [(1, [1, 2], [0, 1]), (2, [1, 99], [1, 1]), (4, [1, 100], [1, 3]), (10, [30, 50, 20], [3, 5, 2])],
)
def test_workers_are_shared_over_kinds(workers, cells, found):
    assert remote.shared(workers, cells) == found and sum(found) == workers


@pytest.fixture
def in_a_terminal():
    """Under nohup a closed terminal is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_jobs_go_on_when_the_terminal_is_closed(standin, in_a_terminal, tmp_path):
    store, sent, notices = tmp_path / "test", [], []

    def on_event(_, event):
        notices.extend([event.message] if isinstance(event, Notice) else [])
        if isinstance(event, CellStarted) and not sent:
            sent.append(event.cell)
            os.kill(os.getpid(), signal.SIGHUP)

    with pytest.raises(Interrupted, match="go on"):
        naps.run(naps.naps(2, seconds=4.0), store, executor="slurm", on_event=on_event)
    assert naps.run(naps.naps(2, seconds=4.0), store, executor="slurm", on_event=on_event) == []
    assert any("2 jobs of an earlier run" in message for message in notices)
    assert attempts(store) == {1: 2} and not leftovers(store) and not (store / remote.RUNS_FOLDER).exists()


def test_only_what_outlives_this_process_can_be_left(tmp_path):
    asked = replace(StudyOptions.of(), executor="ray", detach=True)
    with pytest.raises(UserError, match="--detach"):
        preflight.processes(asked, naps.naps(1), device="cpu", exclusive=False)


def test_what_a_plan_says_is_what_slurm_is_asked_for(standin, tmp_path):
    plan = plan_of(naps.naps(3), tmp_path / "test", threads=2, ranks=4, accelerator="H100", seconds=4 * 3600)
    (cells,) = remote.kinds_of(plan, gpus=plan.on_gpu)
    needs = remote.resources(plan, cells, nodes=2, gpus=plan.on_gpu, options={"partition": "gpu", "time": 90})
    assert (needs.nodes, needs.gpus, needs.cpus, needs.hours) == (2, 2, 4, 8.0)
    made = slurm.Slurm(tmp_path / "library", needs)
    made.submit([executor.WorkerCommand(["true"], environment={}, log=tmp_path / "log") for _ in range(3)])
    made.close()
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)", (standin / "sbatch.txt").read_text(), re.MULTILINE))
    expected = {
        "array": "0-2%3",
        "nodes": "2",
        "gpus-per-node": "2",
        "cpus-per-task": "4",
        "ntasks-per-node": "1",
        "mem": "4GB",
        "time": "90",
        "partition": "gpu",
        "signal": "USR2@120",
    }
    assert {name: asked[name].strip("'") for name in expected} == expected
    assert "#SBATCH --requeue" in (standin / "sbatch.txt").read_text()


def test_the_memory_of_a_gpu_is_not_asked_of_its_machine(tmp_path):
    plan = plan_of(naps.naps(1), tmp_path)
    needs = Needs(tier="resident", device=70 << 30, host=1 << 30, shared={}, kept=2 << 30, weights=0)
    cells = [replace(planned, needs=needs) for planned in plan.cells]
    of_gpu, of_cpu = (remote.resources(plan, cells, nodes=1, gpus=gpus, options={}) for gpus in (True, False))
    assert of_gpu.memory == (2 << 30) + 3 * (3 << 30) // 2 and of_cpu.memory > 71 << 30


def test_unlike_cells_are_jobs_of_unlike_size(tmp_path):
    short, long = naps.naps(2), naps.naps(2, seconds=1.0)
    plan = plan_of(short, tmp_path)
    plan = type(plan)(**{**vars(plan), "cells": plan.cells + plan_of(long, tmp_path, seconds=10 * 3600).cells})
    kinds = remote.kinds_of(plan, gpus=False)
    assert sorted(len(kind) for kind in kinds) == [2, 2]
    hours = [remote.resources(plan, kind, nodes=1, gpus=False, options={}).hours for kind in kinds]
    assert sorted(hours) == [remote.LEAST_HOURS, 20.0]


@pytest.mark.slow
def test_any_mix_of_executors_works_on_one_folder(ray_cluster, tmp_path):
    """At once; each cell is done by one of them."""
    pytest.importorskip("submitit", reason="submitit is not installed: pip install -e '.[slurm]'")
    store = tmp_path / "test"
    command = [sys.executable, "-m", "tests.execute.naps", str(store), "--cells", "40", "--seconds", "2"]
    runs = [subprocess.Popen([*command, "--executor", name], cwd=PROJECT) for name in ("local", "submitit", "ray")]
    runners = set()
    stop = threading.Event()

    def watch():
        while not stop.wait(0.1):
            for path in store.glob("cells/*/lease.json"):
                try:
                    runners.add(json.loads(path.read_text()).get("runner", "local").split()[0])
                except (OSError, ValueError):
                    continue

    looking = threading.Thread(target=watch)
    looking.start()
    try:
        assert [run.wait(timeout=200) for run in runs] == [EXIT_OK] * 3
    finally:
        stop.set()
        looking.join()
        for run in runs:
            run.kill()
    assert attempts(store) == {1: 40} and not leftovers(store)
    assert len(runners) >= 2, runners


def test_a_library_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match="needs the package ray"):
        naps.run(naps.naps(1), tmp_path / "test", executor="ray")


def test_a_job_option_that_submitit_does_not_know_is_refused(standin, tmp_path):
    with pytest.raises(UserError, match="partitoin"):
        naps.run(naps.naps(1), tmp_path / "test", executor="slurm", options=[("partitoin", "gpu")])
