"""Hosts that share nothing but the results folder: processes in namespaces of their own (Linux, as root).

One that is cut off for longer than its lease loses its cell to another, and writes nothing when it is back. Ranks of a
cell on two of them find each other over the network.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.core.errors import EXIT_OK
from bench.execute import local
from bench.store.study import Study
from bench.study.cell import Cell
from bench.suites._recipes import recipe_for
from tests.conftest import PROJECT
from tests.execute.naps import held, known, naps
from tests.plan.making import calibrated, plan_of
from tests.reliability.storms import outcome, stopped, until, worker_options

pytestmark = pytest.mark.gate

ALONE = ("unshare", "--net", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child")
QUICK = (  # as a worker, but a host counts as dead after seconds
    "import sys; from bench.store import lease; lease.EXPIRES_AFTER, lease.HEARTBEAT = 4.0, 0.2\n"
    "from bench.worker import main; sys.exit(main(sys.argv[1:]))"
)


def possible(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


needs_namespaces = pytest.mark.skipif(not possible(*ALONE, "true"), reason="namespaces need Linux, root and unshare")
TRAINED = Cell(
    model="ViT-pico/14",
    data="fashion-mnist",
    num_images=100,
    horizons=(0, 64),
    seed=1,
    recipe=recipe_for("ViT-pico/14", batch=32, warmup_images=32),
)


def start(*command: str, **variables: str) -> subprocess.Popen:
    return subprocess.Popen(
        command,
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | variables,
    )


def only_child(process: subprocess.Popen) -> int:
    """The first process of a namespace, by its number out here."""
    return int(until(lambda: Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())[0])


def events(said: str) -> list[str]:
    return [json.loads(line)["event"] for line in said.splitlines()]


@pytest.fixture
def naps_known(monkeypatch):
    """The job's revision is part of a cell's identity: who names its folder must know it."""
    with known(monkeypatch):
        yield


@needs_namespaces
def test_a_host_that_was_cut_off_loses_its_cell_and_does_not_overwrite(tmp_path, naps_known):
    store = tmp_path / "test"
    cells, hold = naps(3), held(store)
    command = (*ALONE, sys.executable, "-c", QUICK, *worker_options(store, cells))
    directories = [Study(store).cell(cell) for cell in cells]
    hosts = [start(*command)]
    try:
        until(lambda: directories[0].lease.exists() and directories[0].attempts())
        cut_off = only_child(hosts[0])
        os.kill(cut_off, signal.SIGSTOP)
        until(lambda: stopped(cut_off))
        hold.unlink()
        hosts.append(start(*command))
        other = only_child(hosts[1])
        for kind in ("net", "pid", "uts"):
            assert len({os.readlink(f"/proc/{pid}/ns/{kind}") for pid in ("self", cut_off, other)}) == 3
        said, errors = hosts[1].communicate(timeout=600)
        assert hosts[1].returncode == EXIT_OK, errors
        assert events(said) == ["CellStarted", "CellAdvanced", "CellDone"] * 3, said
        written = {path: path.read_bytes() for path in store.rglob("record.json")}
        assert len(written) == 3 and [len(directory.attempts()) for directory in directories] == [2, 1, 1]
        os.kill(cut_off, signal.SIGCONT)
        said, errors = hosts[0].communicate(timeout=600)
        assert hosts[0].returncode == EXIT_OK, errors
        assert events(said).count("CellLost") == 1 and "CellDone" not in events(said)
        assert {path: path.read_bytes() for path in store.rglob("record.json")} == written
        assert [a.outcome for a in directories[0].attempt_log()] == ["lost", "complete"]
        assert not list(store.rglob("lease.json"))
    finally:
        for host in hosts:
            host.kill()  # and with it all of its namespace


@pytest.fixture
def network():
    """Names and addresses of two hosts that are joined by a cable."""
    if not shutil.which("ip") or not possible("ip", "netns", "add", f"bench-{os.getpid()}-probe"):
        pytest.skip("hosts with a network need Linux, root and the program ip (iproute2)")
    subprocess.run(["ip", "netns", "delete", f"bench-{os.getpid()}-probe"], check=True)
    names = [f"bench-{os.getpid()}-{number}" for number in (0, 1)]
    ends = [f"b{os.getpid()}e{number}" for number in (0, 1)]
    hosts = [(names[number], f"10.77.0.{number + 1}") for number in (0, 1)]
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        subprocess.run(["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]], check=True)
        for (name, address), end in zip(hosts, ends, strict=True):
            subprocess.run(["ip", "link", "set", end, "netns", name], check=True)
            for words in (
                ["addr", "add", f"{address}/24", "dev", end],
                ["link", "set", end, "up"],
                ["link", "set", "lo", "up"],
            ):
                subprocess.run(["ip", "-n", name, *words], check=True)
        yield hosts
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name])


def test_ranks_on_two_hosts_train_a_cell_as_ranks_of_one_do(network, tmp_path):
    store = tmp_path / "test"
    shared = ("--nodes", "2", "--first", network[0][1], "--job", "1000_1", *worker_options(store, [TRAINED]))
    hosts = [
        start(
            "ip",
            "netns",
            "exec",
            name,
            sys.executable,
            "-m",
            "bench.execute.torchrun",
            "--ranks",
            "1",
            "--node",
            str(number),
            *shared,
        )
        for number, (name, _) in enumerate(network)
    ]
    try:
        said = [host.communicate(timeout=600) for host in hosts]
    finally:
        for host in hosts:
            host.kill()
    assert [host.returncode for host in hosts] == [EXIT_OK, EXIT_OK], said
    plan = calibrated(plan_of([TRAINED], tmp_path / "one", ranks=2))
    assert local.run(plan, on_event=lambda *_: None, tick=lambda: None) == []
    assert outcome(store) == outcome(tmp_path / "one") and len(outcome(store)) == 1
    assert Study(store).cell(TRAINED).read_record().execution.ranks == 2
