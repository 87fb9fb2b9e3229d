"""Workers of a SLURM or Ray cluster do what local ones do: the same records, each cell once, whatever is killed.

Real clusters on this machine: Ray of two nodes, SLURM of three (`tests/execute/slurm_cluster.py`).
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.core import files
from bench.core.errors import EXIT_OK, Interrupted, UserError
from bench.core.events import CellStarted, Notice
from bench.execute import remote
from bench.execute.executors import slurm
from bench.execute.executors.executor import Resources, WorkerCommand
from bench.plan import preflight
from bench.plan.resources import Needs
from bench.store import faults, lease
from bench.store.study import CellDirectory, Study
from bench.study.cell import Cell
from bench.study.options import Machine, Pricing
from bench.suites._recipes import recipe_for
from tests.conftest import PROJECT
from tests.execute import naps
from tests.execute import slurm_cluster as slurm_cluster_of
from tests.execute.slurm_cluster import ask
from tests.plan.making import changed, plan_of
from tests.reliability.storms import leftovers, outcome, stopped, until

TRAININGS = [
    Cell(
        model="ViT-pico/14",
        data="fashion-mnist",
        num_images=100,
        horizons=(0, 4800),
        seed=seed,
        recipe=recipe_for("ViT-pico/14", batch=32, warmup_images=32),
    )
    for seed in (0, 1)
]
NOTICE_LOOKS = 60  # of a driver, in which it notices whatever happens to a job: half a second, or a slow answer, apart


@pytest.fixture(autouse=True)
def _naps(monkeypatch):
    with naps.known(monkeypatch):
        yield


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The outcome of the trainings under the local executor."""
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
                cluster.add_node(wait=False, num_cpus=1, **small)
            cluster.wait_for_nodes(timeout=600)
            patch.setenv("RAY_ADDRESS", cluster.address)
            yield cluster
        finally:
            cluster.shutdown()


@pytest.fixture(scope="module")
def slurm_cluster(tmp_path_factory):
    """Three nodes on the loopback interface."""
    if why := slurm_cluster_of.missing():
        pytest.skip(why)
    with slurm_cluster_of.running(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(params=["slurm", "ray"])
def executor(request):
    """The name of one whose cluster is there."""
    request.getfixturevalue(f"{request.param}_cluster")
    return request.param


def attempts(store: Path) -> Counter[int]:
    """How many cells have how many attempts."""
    return Counter(len(directory.attempts()) for directory in Study(store).directories())


def listening(store: Path) -> set[str]:
    """Addresses at which processes that name this folder listen, as `ss` of iproute2 says."""
    addresses = set()
    for line in ask("ss", "--listening", "--tcp", "--numeric", "--processes", "--no-header").splitlines():
        for pid in re.findall(r"pid=(\d+)", line):
            with contextlib.suppress(OSError):
                if str(store) in Path(f"/proc/{pid}/cmdline").read_text():
                    addresses.add(line.split()[3].rpartition(":")[0])
    return addresses


def heard(hold: Path | None = None) -> tuple[list[str], Callable[[int, dict], None]]:
    """Notices, and what collects them from events. The first ends `hold`, of naps."""
    notices: list[str] = []

    def on_event(_, event):
        if isinstance(event, Notice):
            notices.append(event.message)
            if hold:
                hold.unlink(missing_ok=True)

    return notices, on_event


def holder(store: Path, name: str) -> int:
    """The process that has begun an attempt of a cell: it holds the lease a moment before."""
    until(lambda: list((store / "cells" / name).glob("attempts/*/status.json")))
    return json.loads((store / "cells" / name / "lease.json").read_text())["pid"]


def leases(store: Path) -> dict[str, dict[str, Any]]:
    """Leases of cells, as they were a moment ago."""
    found = {}
    for path in store.glob("cells/*/lease.json"):
        with contextlib.suppress(OSError, ValueError):
            found[path.parent.name] = json.loads(path.read_text())
    return found


@pytest.mark.gate
def test_records_are_those_of_the_local_executor(executor, alone, tmp_path):
    store, open = tmp_path / "test", set[str]()
    assert naps.run(TRAININGS, store, executor=executor, tick=lambda: open.update(listening(store))) == []
    assert not open and outcome(store) == alone and len(alone) == len(TRAININGS)
    assert attempts(store) == {1: len(TRAININGS)} and not leftovers(store) and not (store / remote.RUNS_FOLDER).exists()


@pytest.mark.gate
def test_cells_that_fail_are_told_of_and_logged(executor, tmp_path):
    cells = naps.naps(2)
    cells[1] = type(cells[1])(**{**vars(cells[1]), "model_options": (("fails", True),)})
    (failure,) = naps.run(cells, tmp_path / "test", executor=executor)
    assert "it was to fail" in failure.reason and failure.cell == Study(tmp_path / "test").cell(cells[1]).path.name
    logs = list((tmp_path / "test" / remote.RUNS_FOLDER).glob("*/worker-*.log"))
    assert logs and any("it was to fail" in path.read_text() for path in logs)


@pytest.mark.gate
def test_a_signal_saves_and_leaves_nothing_half_done(executor, tmp_path):
    store, sent = tmp_path / "test", []

    def on_event(_, event):
        if isinstance(event, CellStarted) and not sent:
            sent.append(event.cell)
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="saved"):
        naps.run(naps.naps(2, seconds=120.0), store, on_event=on_event, executor=executor)
    assert {a.outcome for d in Study(store).directories() for a in d.attempt_log()} == {"interrupted"}
    assert not list(store.glob("cells/*/lease.json")) and not list(store.glob("cells/*/record.json"))


@pytest.mark.parametrize("during", ["make", "adopt"])
def test_a_signal_before_anything_is_submitted_submits_nothing(during, tmp_path):
    """A library may take long to begin, and to find the jobs of an earlier run."""
    store, called = tmp_path / "test", []

    class Slow:
        slots, queue, alive = 2, "", ()

        def __init__(self, needs, command):
            self.reach("make")

        def reach(self, what, result=None):
            called.append(what)
            if what == during:
                os.kill(os.getpid(), signal.SIGINT)
            return result

        def adopt(self, queue):
            return self.reach("adopt", 1)

        def __getattr__(self, name):
            return lambda *_, **__: self.reach(name, [])

    cells = naps.naps(1)
    earlier = store / remote.RUNS_FOLDER / "earlier" / remote.SUBMITTED_FILE.format(0)
    earlier.parent.mkdir(parents=True)
    name = Study(store).cell(cells[0]).path.name
    earlier.write_text(json.dumps({"cells": [name], "queue": "1"}))
    with pytest.raises(Interrupted, match="nothing was submitted"):
        naps.run(cells, store, executor="ray", run_cells=remote.runs_on(Slow))
    assert during in called and not {"submit", "stop", "close"} & set(called)
    assert [path.name for path in (store / remote.RUNS_FOLDER).iterdir()] == ["earlier"]


@pytest.mark.parametrize("during", ["submit", "ended"])
def test_a_terminal_that_is_closed_while_jobs_are_submitted_or_followed_leaves_them_alone(during, tmp_path):
    called = []

    class Queue:
        slots, queue, waits = 2, "its name", ""

        def __init__(self, needs, command):
            self.alive = set()

        def reach(self, what):
            called.append(what)
            if what == during and called.count(what) == 1:
                os.kill(os.getpid(), signal.SIGHUP)

        def submit(self, number):
            self.reach("submit")
            self.alive = set(range(number))

        def ended(self):
            self.reach("ended")
            return []

        def __getattr__(self, name):
            return lambda *_, **__: self.reach(name)

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored
    try:
        with pytest.raises(Interrupted, match="jobs go on"):
            naps.run(naps.naps(1), tmp_path / "test", executor="slurm", run_cells=remote.runs_on(Queue))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert during in called and not {"stop", "close", "call_off"} & set(called)


def test_the_folder_of_another_run_may_go_while_its_jobs_are_asked_for(tmp_path):
    """A run that has ended tidies up; an answer of the cluster takes seconds."""

    class Asked:
        queue = ""

        def adopt(self, queue):
            shutil.rmtree(tmp_path / "jobs" / "other")
            return 1

    (tmp_path / "jobs" / "other").mkdir(parents=True)
    for number in (0, 1):
        files.write_json(tmp_path / "jobs" / "other" / f"submitted-{number}.json", {"cells": ["a"], "queue": "q"})
    study = Study(tmp_path / "study")
    study.create()
    kind = SimpleNamespace(names={"a"}, executor=Asked())
    assert remote.adopt([kind], study, tmp_path / "jobs") == (1, [tmp_path / "jobs" / "other"])


@pytest.mark.gate
def test_workers_are_a_maximum_for_cells_of_several_kinds(slurm_cluster, tmp_path, monkeypatch):
    running, kinds, submit = [], set(), remote.WorkerKind.submit

    def counted(kind, number):
        submit(kind, number)
        kinds.add(kind)
        running.append(sum(len(each.executor.alive) for each in kinds))

    monkeypatch.setattr(remote.WorkerKind, "submit", counted)
    monkeypatch.setattr(remote, "_hours", lambda cell: 20.0 if cell.cell.seed else 1.0)
    assert naps.run(naps.naps(3), tmp_path / "test", workers=1, executor="slurm") == []
    assert len(kinds) == 2 and max(running) == 1 and attempts(tmp_path / "test") == {1: 3}


@pytest.mark.parametrize(
    "workers, cells, found",
    [(1, [1, 2], [0, 1]), (2, [1, 99], [1, 1]), (4, [1, 100], [1, 3]), (10, [30, 50, 20], [3, 5, 2])],
)
def test_workers_are_shared_over_kinds(workers, cells, found):
    assert remote.shared(workers, cells) == found and sum(found) == workers


def test_only_what_outlives_this_process_can_be_left(tmp_path):
    with pytest.raises(UserError, match="--detach"):
        preflight.check_options(Machine(executor="ray", detach=True), Pricing(), to_run=False)


def test_the_memory_of_a_gpu_is_not_asked_of_its_machine(tmp_path):
    plan = plan_of(naps.naps(1), tmp_path)
    needs = Needs(tier="resident", device=70 << 30, host=1 << 30, shared={}, kept=2 << 30, weights=0)
    cells = [replace(planned, needs=needs) for planned in plan.cells]
    of_gpu, of_cpu = (remote.resources(plan, cells, gpus=gpus) for gpus in (True, False))
    assert of_gpu.memory == (8 << 30) + 3 * (3 << 30) // 2 and of_cpu.memory > 71 << 30


def test_unlike_cells_are_jobs_of_unlike_size(tmp_path):
    short, long = naps.naps(2), naps.naps(2, seconds=1.0)
    plan = plan_of(short, tmp_path)
    plan = type(plan)(**{**vars(plan), "cells": plan.cells + plan_of(long, tmp_path, seconds=10 * 3600).cells})
    kinds = remote.kinds_of(plan, gpus=False)
    assert sorted(len(kind) for kind in kinds) == [2, 2]
    hours = [remote.resources(plan, kind, gpus=False).hours for kind in kinds]
    assert sorted(hours) == [remote.LEAST_HOURS, 20.0]


@pytest.mark.parametrize(
    "asked, cores, threads",
    [
        ((), 8, 4),
        ((("cpus_per_task", 16),), 16, 8),
        ((("cpus-per-gpu", 3),), 6, 3),
        ((("num_cpus", 0.5),), 1, 1),
        ((("cpus-per-task", "none"),), 8, 4),
    ],
)
def test_cores_that_are_asked_for_are_those_that_workers_use(tmp_path, asked, cores, threads):
    Study(tmp_path).create()
    made = []

    class Seen:
        queue = ""

        def __init__(self, needs, command):
            made.append((needs.cpus, command.arguments, command.environment["OMP_NUM_THREADS"]))

    plan = plan_of(naps.naps(1), tmp_path, ranks=2, accelerator="H100", job=asked)
    remote.WorkerKind(Seen, plan, plan.cells, gpus=True, folder=tmp_path, number=0)
    ((found, words, of_libraries),) = made
    assert found == cores and words[words.index("--threads") + 1] == of_libraries == str(threads)


@pytest.mark.gate
def test_any_mix_of_executors_works_on_one_folder(ray_cluster, slurm_cluster, tmp_path):
    """At once; each cell is done by one of them."""
    store = tmp_path / "test"
    hold = naps.held(store)
    command = [sys.executable, "-m", "tests.execute.naps", str(store), "--cells", "40", "--seconds", "0.2"]
    runs = [
        subprocess.Popen([*command, "--executor", name], cwd=PROJECT) for name in ("local", "slurm", "slurm", "ray")
    ]
    try:
        runners = lambda: {held.get("runner", "local").split()[0] for held in leases(store).values()}  # noqa: E731
        until(lambda: runners() == {"local", "slurm", "ray"})
        hold.unlink()
        assert [run.wait(timeout=600) for run in runs] == [EXIT_OK] * len(runs)
    finally:
        for run in runs:
            run.kill()
    assert attempts(store) == {1: 40} and not leftovers(store)


@pytest.mark.gate
def test_ray_loses_drivers_workers_and_nodes_and_gains_one(ray_cluster, tmp_path, monkeypatch):
    """One after the other, while 200 cells are done; workers that come back find what is left. Whoever does a cell goes
    on with it until what has happened is noticed."""
    store, cells, (notices, on_event) = tmp_path / "test", naps.naps(200, seconds=0.1), heard()
    command = [sys.executable, "-m", "tests.execute.naps", str(store), "--executor", "ray", "--cells", "200"]
    driver = subprocess.Popen([*command, "--seconds", "0.1"], cwd=PROJECT, stderr=subprocess.DEVNULL)
    done, hold = lambda: len(list(store.glob("cells/*/record.json"))), store / "hold"
    until(lambda: done() > 10)
    driver.kill()
    driver.wait()
    running, looks, submit = [0], [0], remote.WorkerKind.submit

    def counted(kind, number):
        submit(kind, number)
        running.append(len(kind.executor.alive))

    def kill_worker():
        os.kill(until(lambda: stopped_at_work(store)), signal.SIGKILL)

    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    nodes = list(ray_cluster.worker_nodes)
    steps = [
        (30, kill_worker, lambda: any("killed by SIGKILL" in notice for notice in notices)),
        (60, lambda: ray_cluster.add_node(wait=False, **small), lambda: max(running) == 3),
        (
            100,
            lambda: ray_cluster.remove_node(nodes[0], allow_graceful=False),
            lambda: any("A Ray task ended without a result" in notice for notice in notices),
        ),
    ]

    def tick():
        if hold.exists():
            looks[0] += 1
            assert looks[0] < NOTICE_LOOKS, (steps, notices)
            if steps[0][2]():
                hold.unlink()
                print(f"noticed at look {looks[0]}")
                steps.pop(0)
        elif steps and done() > steps[0][0]:
            naps.held(store)
            notices.clear()
            looks[0] = 0
            steps[0][1]()

    monkeypatch.setattr(remote.WorkerKind, "submit", counted)
    assert naps.run(cells, store, executor="ray", workers=None, on_event=on_event, tick=tick) == []
    for directory in Study(store).directories():
        directory.tidy()  # as the next run does: a worker may be killed just after its record
    assert done() == 200 and not steps and max(running) == 3 and not leftovers(store)
    again = attempts(store)
    assert again.pop(1) >= 195 and set(again) <= {2, 3}


def test_a_cluster_that_nobody_named_is_not_started(monkeypatch):
    """Ray would listen on every interface of this machine."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with pytest.raises(UserError, match="RAY_ADDRESS"):
        preflight.check_options(Machine(executor="ray"), Pricing(), to_run=True)


# -- what happens to the jobs of SLURM ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """The job that works on a cell, and its worker."""

    number: str
    worker: int

    @property
    def node(self) -> str:
        return ask("squeue", "--noheader", "--array", f"--jobs={self.number}", "--format=%N").strip()


def job_of(store: Path, name: str) -> Job:
    worker = holder(store, name)
    lease = json.loads((store / "cells" / name / "lease.json").read_text())
    return Job(lease["runner"].removeprefix("slurm job "), worker)


def jobs_of(store: Path) -> list[str]:
    """All that were ever submitted for a study, one of an array to a line, with their states."""
    queues = {str(json.loads(path.read_text())["queue"]) for path in store.glob(f"{remote.RUNS_FOLDER}/*/submitted-*")}
    return [f"{job} {state}" for job, (state, *_) in slurm.states(queues).items()]


def _kill_shell(job: Job) -> None:
    os.kill(int(Path(f"/proc/{job.worker}/stat").read_text().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)


HAPPENINGS: dict[str, tuple[Callable[[Job], Any], str, str]] = {
    "it is cancelled": (lambda job: ask("scancel", job.number), "interrupted", "cancelled job"),
    "its worker is killed": (lambda job: os.kill(job.worker, signal.SIGKILL), "running", "killed by SIGKILL"),
    "its shell is killed": (_kill_shell, "", "killed by SIGKILL"),
    "it is requeued": (lambda job: ask("scontrol", "requeue", job.number), "interrupted", ""),
}
"""Events in the life of a job: how each is brought about, how its cell's attempt ends ("": one way or the other), words
of the notice. Without a notice SLURM puts the job back into the queue, and no other is submitted in its place."""


@pytest.mark.gate
def test_whatever_happens_to_jobs_is_noticed_and_every_cell_is_done(slurm_cluster, tmp_path):
    """All of it at once, and no cell is done before the others are replaced."""
    store, started, done, said, queued, looks = tmp_path / "test", [], {}, [], [], [0]
    hold, wanted = naps.held(store), [words for *_, words in HAPPENINGS.values() if words]

    def on_event(_, event):
        if isinstance(event, Notice):
            said.append((looks[0], event.message))
        started.extend([event.cell] if isinstance(event, CellStarted) else [])
        if len(started) == len(cells) and not done:
            for what, name in zip(HAPPENINGS, started, strict=False):
                done[name] = what, job_of(store, name), looks[0]
                HAPPENINGS[what][0](done[name][1])
        queued[:] = jobs_of(store) or queued

    def tick():
        looks[0] += 1
        if attempts(store)[2] == 3 and all(any(words in message for _, message in said) for words in wanted):
            hold.unlink(missing_ok=True)
        assert not (done and hold.exists()) or looks[0] - max(when for *_, when in done.values()) < NOTICE_LOOKS, said

    cells = naps.naps(len(HAPPENINGS) + 1)
    assert naps.run(cells, store, executor="slurm", workers=len(cells), on_event=on_event, tick=tick) == []
    assert not leftovers(store) and not (store / remote.RUNS_FOLDER).exists() and len(done) == len(HAPPENINGS)
    for name, (what, job, when) in done.items():
        _, attempt, words = HAPPENINGS[what]
        first, *_, last = [a.outcome for a in CellDirectory(store / "cells" / name).attempt_log()]
        assert last == "complete" and first in ([attempt] if attempt else ["running", "interrupted"]), what
        if words:
            noticed = [at - when for at, message in said if words in message and at >= when]
            assert noticed and min(noticed) < NOTICE_LOOKS, (what, said)
            print(f"{what}: noticed at look {min(noticed)}")
        else:
            assert "Restarts=1" in ask("scontrol", "show", "job", job.number), what
    assert len(queued) == len(cells) + 2, queued  # for those that were killed


@pytest.mark.gate
def test_a_cluster_that_refuses_is_silent_or_loses_a_node_is_asked_again(slurm_cluster, tmp_path, monkeypatch):
    """One after the other, each to another cell, since one that is killed twice is given up."""
    monkeypatch.setattr(slurm, "LOOK_SECONDS", 1.0)
    monkeypatch.setattr(remote, "FIRST_DELAY_SECONDS", 3.0)
    store, (said, on_event) = tmp_path / "test", heard()
    cells, hold = naps.naps(3), naps.held(store)
    own = [Study(store).cell(cell).path for cell in cells]

    def refuse():
        ask("scontrol", "update", "PartitionName=low", "State=DRAIN")
        os.kill(job_of(store, own[0].name).worker, signal.SIGKILL)
        yield "sbatch refuses"
        ask("scontrol", "update", "PartitionName=low", "State=UP")

    def fall_silent():
        slurm_cluster.stop("slurmctld")
        os.kill(job_of(store, own[1].name).worker, signal.SIGKILL)
        yield "squeue refuses"
        slurm_cluster.start("slurmctld")

    def crash():
        node = job_of(store, own[2].name).node
        slurm_cluster.stop(node, signal.SIGKILL)
        for pid in pids_below(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        yield ""
        slurm_cluster.start(node)

    steps, under_way = [refuse, fall_silent, crash], []

    def begun() -> list[int]:
        """Attempts at each cell, when those that were lost have been begun again."""
        return [2 if index < 3 - len(steps) else 1 for index in range(3)]

    def tick():
        if under_way and any(under_way[0][1] in notice for notice in said):
            next(under_way.pop()[0], None)
        elif not under_way and steps and [len(list(path.glob("attempts/*/status.json"))) for path in own] == begun():
            step = steps.pop(0)()
            under_way.append((step, next(step)))
        elif not under_way and not steps:
            hold.unlink(missing_ok=True)

    assert naps.run(cells, store, executor="slurm", workers=3, on_event=on_event, tick=tick) == []
    assert not steps and not under_way
    assert all([a.outcome for a in CellDirectory(path).attempt_log()][-1] == "complete" for path in own)
    assert attempts(store) == {2: 3} and not leftovers(store) and not (store / remote.RUNS_FOLDER).exists()


def pids_below(node: str) -> list[int]:
    """Processes that a node's slurmd has started for jobs, and their children."""
    below = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"SLURMD_NODENAME={node}".encode() in path.read_bytes().split(b"\0"):
                below.append(int(path.parent.name))
        except OSError:
            continue
    return below


def preempt(job: Job) -> None:
    urgent = ("--partition=high", "--exclusive", f"--nodelist={job.node}", "--output=/dev/null")
    assert ask("sbatch", *urgent, "--wrap=sleep 1")


def shorten(job: Job) -> None:
    """SLURM looks at limits twice a minute, and finds that this one is as near as `--signal` says."""
    ask("scontrol", "update", f"JobId={job.number}", f"TimeLimit={slurm.SIGNAL_SECONDS // 60}")


@pytest.mark.gate
def test_preempted_jobs_and_jobs_whose_time_is_up_save_and_end_with_the_same_bits(
    slurm_cluster, alone, tmp_path, monkeypatch
):
    """Workers stop themselves near the end until SLURM has told them, for however long the training may take."""
    store, left, jobs = tmp_path / "test", [preempt, shorten], dict[str, Job]()
    monkeypatch.setenv(faults.VARIABLE, "training-step:120:SIGSTOP")  # a later worker has fewer steps left

    def tick():
        for name, held in leases(store).items():
            if left and name not in jobs and stopped(held["pid"]):
                jobs[name] = job = job_of(store, name)
                left.pop(0)(job)
        for job in jobs.values():
            with contextlib.suppress(FileNotFoundError):
                told = next(
                    line for line in Path(f"/proc/{job.worker}/status").read_text().splitlines() if "ShdPnd" in line
                )
                if int(told.split()[1], 16):
                    os.kill(job.worker, signal.SIGCONT)

    limits = [("time", slurm.SIGNAL_SECONDS // 60 + 60)]
    assert naps.run(TRAININGS, store, executor="slurm", tick=tick, job=limits) == []
    assert outcome(store) == alone and len(jobs) == 2 and not leftovers(store)
    for name, job in jobs.items():
        assert "Restarts=1" in ask("scontrol", "show", "job", job.number)
        assert [a.outcome for a in CellDirectory(store / "cells" / name).attempt_log()] == ["interrupted", "complete"]


def stopped_at_work(store: Path) -> int | None:
    """A worker, stopped with an attempt at a cell that is begun and not done; None where that one was between two."""
    for name, held in leases(store).items():
        pid, cell = held["pid"], CellDirectory(store / "cells" / name)
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(pid, signal.SIGSTOP)
            until(lambda pid=pid: stopped(pid) or not lease._alive(pid, None))
            begun = cell.lease.exists() and list(cell.path.glob("attempts/*/status.json"))
            if stopped(pid) and begun and not cell.record.exists():
                return pid
            os.kill(pid, signal.SIGCONT)
    return None


@pytest.mark.gate
def test_many_cells_over_three_nodes_survive_their_driver_and_a_worker(slurm_cluster, tmp_path):
    """Both are killed at once; the same command finishes, and each other cell is done once."""
    store, cells = tmp_path / "test", naps.naps(50, seconds=1.0)
    command = [sys.executable, "-m", "tests.execute.naps", str(store), "--executor", "slurm"]
    command += ["--cells", "50", "--seconds", "1", "--workers", "6", "--job", "cpus-per-task=2"]
    driver = subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.DEVNULL)
    until(lambda: len(list(store.glob("cells/*/record.json"))) > 6)
    hold = naps.held(store)
    until(lambda: sum("RUNNING" in job for job in jobs_of(store)) == 6)
    victim = until(lambda: stopped_at_work(store))
    driver.kill()
    driver.wait()
    nodes = {Job(job.split()[0], 0).node for job in jobs_of(store)}
    os.kill(victim, signal.SIGKILL)
    until(lambda: sum("RUNNING" in job for job in jobs_of(store)) == 5)
    notices, on_event = heard(hold)
    assert naps.run(cells, store, executor="slurm", workers=6, job=[("cpus-per-task", 2)], on_event=on_event) == []
    assert any("5 jobs of an earlier run" in notice for notice in notices), notices
    assert nodes == set(slurm_cluster_of.NODES)
    assert attempts(store) == {1: 49, 2: 1} and not leftovers(store) and not (store / remote.RUNS_FOLDER).exists()


@pytest.mark.gate
def test_why_jobs_stay_pending_is_said_once(slurm_cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "LOOK_SECONDS", 0.5)
    monkeypatch.setattr(slurm, "LONG_SECONDS", 1)
    store, (notices, on_event), held = tmp_path / "test", heard(), list[float]()

    def tick():
        held.extend([time.monotonic()] if "JobHeldUser" in " ".join(notices) else [])
        if held and time.monotonic() - held[0] > 2:  # in which it could be said again
            for job in jobs_of(store):
                ask("scontrol", "release", job.split()[0])

    how = {"on_event": on_event, "tick": tick, "job": [("hold", "true")]}
    assert naps.run(naps.naps(2), store, executor="slurm", **how) == []
    assert sum("JobHeldUser" in notice for notice in notices) == 1, notices


def heed_terminals() -> None:
    """In a driver that is begun: below nohup it would ignore a closed terminal, as it should."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def follows(driver: int) -> bool:
    """Whether it handles the signal of a closed terminal, as it does while it follows its jobs."""
    words = Path(f"/proc/{driver}/status").read_text().split()
    return bool(int(words[words.index("SigCgt:") + 1], 16) & 1 << (signal.SIGHUP - 1))


@pytest.mark.gate
def test_jobs_outlive_their_driver_and_are_followed_by_the_next(slurm_cluster, tmp_path):
    """Left on purpose, by a closed terminal, and by a kill; then followed to the end, and never submitted twice."""
    store = tmp_path / "test"
    hold = naps.held(store)
    notices, on_event = heard(hold)
    command = [sys.executable, "-m", "tests.execute.naps", str(store), "--executor", "slurm", "--cells", "2"]
    assert subprocess.run([*command, "--detach"], cwd=PROJECT).returncode == EXIT_OK
    for how in (signal.SIGHUP, signal.SIGKILL):
        driver = subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.PIPE, text=True, preexec_fn=heed_terminals)
        until(lambda driver=driver: driver.poll() is not None or (len(leases(store)) == 2 and follows(driver.pid)))
        assert driver.poll() is None, driver.communicate()
        driver.send_signal(how)
        assert driver.wait(timeout=600) != EXIT_OK
    jobs = jobs_of(store)
    assert len(jobs) == 2 and all("RUNNING" in job for job in jobs)
    assert naps.run(naps.naps(2), store, executor="slurm", on_event=on_event) == []
    assert any("2 jobs of an earlier run" in notice for notice in notices)
    assert attempts(store) == {1: 2} and not leftovers(store) and not (store / remote.RUNS_FOLDER).exists()


@pytest.mark.gate
def test_a_cell_that_is_trained_on_two_nodes_is_as_on_one(slurm_cluster, tmp_path):
    here, there, cells = tmp_path / "here", tmp_path / "there", [replace(TRAININGS[0], horizons=(0, 160))]
    open = set[str]()
    assert naps.run(cells, here, executor="local", ranks=2, tick=lambda: open.update(listening(here))) == []
    assert open == {"127.0.0.1"}
    nodes = [("exclude", slurm_cluster_of.NODES[-1])]
    assert naps.run(cells, there, executor="slurm", nodes=2, job=nodes) == []
    assert outcome(there) == outcome(here) and len(outcome(here)) == 1


@pytest.mark.gate
def test_what_a_plan_and_the_user_say_is_what_slurm_is_asked_for(slurm_cluster, tmp_path):
    plan = plan_of(naps.naps(3), tmp_path / "test", threads=2, ranks=4, accelerator="H100", seconds=4 * 3600)
    asked = {"hold": "true", "time": 90, "gres": "gpu:1", "mem": "none", "partition": "high"}
    for given, expected in (
        ({}, {"TimeLimit": "08:00:00", "Partition": "low", "MinMemoryNode": "16G", "TresPerNode": "gres:gpu:2"}),
        (asked, {"TimeLimit": "01:30:00", "Partition": "high", "MinMemoryNode": "0", "TresPerNode": "gres:gpu:1"}),
    ):
        asked_for = changed(plan, nodes=2, job=tuple(({"hold": "true"} | given).items()))
        needs = remote.resources(asked_for, plan.cells, gpus=True)
        made = slurm.Slurm(needs, WorkerCommand(arguments=("true",), environment={"A": "b"}, folder=tmp_path))
        made.submit(3)
        shown = ask("scontrol", "show", "job", "--oneliner")
        jobs = [line for line in shown.splitlines() if made.queue in line and "JobState=PENDING" in line]
        job = dict(word.partition("=")[::2] for word in jobs[0].split())
        expected |= {"ArrayTaskId": "0-2", "NumNodes": "2-2", "CPUs/Task": "8", "Requeue": "1"}
        assert {name: job.get(name) for name in expected} == expected
        made.close()


@pytest.mark.gate
def test_jobs_are_called_off_though_the_run_that_submitted_them_has_ended_and_tidied_up(slurm_cluster, tmp_path):
    """Two runs at once: the first found everything done, the second follows its jobs."""
    needs = Resources(memory=1 << 30, hours=1.0, options={"hold": "true"})
    first, second = (
        slurm.Slurm(needs, WorkerCommand(arguments=("true",), environment={}, folder=tmp_path / name))
        for name in ("first", "second")
    )
    (tmp_path / "first").mkdir()
    first.submit(1)
    assert second.adopt(first.queue) == 1
    (tmp_path / "first").rmdir()
    second.stop(running=False)
    until(lambda: [ended.code for ended in second.ended()] == [None])
    assert not second.alive


@pytest.mark.parametrize(
    "limit, short", [("4", 1), ("0:04:59", 1), ("4:30", 1), ("5", 0), ("1:00:00", 0), ("1-0", 0), ("0", 0)]
)
def test_a_time_limit_in_which_nothing_could_be_done_is_refused(limit, short):
    needs = Resources(memory=1 << 30, hours=1.0, options={"time": limit})
    with pytest.raises(UserError, match="under 5 minutes") if short else contextlib.nullcontext():
        assert slurm.options(needs)["time"] == limit


def test_a_name_that_slurm_would_take_for_two_is_refused():
    with pytest.raises(UserError, match="a name with a comma"):
        slurm.options(Resources(memory=1 << 30, hours=1.0, options={"job_name": "mine,yours"}))
