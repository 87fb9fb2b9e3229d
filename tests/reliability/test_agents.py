"""Two machines, both of them this one: two agents, each with a single rank, so that rank 1 is the first of its machine.
Agents are plain torchrun, or the project's launcher, which says in a sentence what torchrun says in stacks."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.core.errors import EXIT_USAGE
from bench.execute import torchrun
from bench.store import lease
from bench.store.records import read_record
from bench.store.study import Study
from tests.conftest import PROJECT
from tests.reliability._attempt import attempt
from tests.reliability.storms import free_ports, trained_steps, until, worker_options
from tests.reliability.test_kill import CELL as ALONE

pytestmark = pytest.mark.gate
CELL = replace(ALONE, horizons=(0, 640, 2560))
LONG = replace(ALONE, horizons=(0, 640_000))
LAUNCHER = "bench.execute.torchrun"
PATIENCE = 300  # seconds until all has ended, on a busy machine too


def start(folder: Path, cell, launcher: str = "torch.distributed.run") -> list[subprocess.Popen]:
    """Both agents."""
    (port,), worker = free_ports(1), worker_options(folder / "test", [cell])
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "20"
    words = [
        "--nnodes=2",
        "--nproc-per-node=1",
        "--master-addr=127.0.0.1",
        f"--master-port={port}",
        "-m",
        "bench.worker",
    ]
    if launcher == LAUNCHER:
        words = ["--nodes=2", "--ranks=1", "--first=127.0.0.1", f"--job={folder}"]
    return [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                launcher,
                f"--node{'' if launcher == LAUNCHER else '-rank'}={node}",
                *words,
                *worker,
            ],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=(folder / f"node{node}.txt").open("w"),
            start_new_session=True,
        )
        for node in range(2)
    ]


def ranks_of(agent: subprocess.Popen) -> list[int]:
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    return [int(child) for child in children if b"--store" in Path(f"/proc/{child}/cmdline").read_bytes()]


def alive(pid: int) -> bool:
    return lease._alive(pid, None)


@pytest.fixture
def ended():
    """Agents and ranks, which end with the test."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The record of one rank."""
    store = tmp_path_factory.mktemp("alone") / "test"
    assert attempt(store, [CELL], suite="test") == 0
    return read_record(Study(store).cell(CELL).record)


def test_two_machines_find_what_one_process_finds(tmp_path, uninterrupted, ended):
    agents = start(tmp_path, CELL)
    ended += [agent.pid for agent in agents]
    assert [agent.wait(PATIENCE * 3) for agent in agents] == [0, 0], (tmp_path / "node1.txt").read_text()[-2000:]
    record = read_record(Study(tmp_path / "test").cell(CELL).record)
    assert record.execution.ranks == 2 and record.status == "complete"
    for mine, theirs in zip(record.horizons, uninterrupted.horizons, strict=True):
        if mine.images_seen:
            assert mine.final_train_loss == pytest.approx(theirs.final_train_loss, rel=1e-5)
        assert [(s.task, s.data, s.metric) for s in mine.scores] == [(s.task, s.data, s.metric) for s in theirs.scores]
        for a, b in zip(mine.scores, theirs.scores, strict=True):
            assert a.value == pytest.approx(b.value, abs=2 / a.num_test)  # an image at the edge of two classes


def test_two_machines_do_what_the_documentation_says_to_type(tmp_path, ended):
    """With other names for the study and the first machine, and one rank on each."""
    text = (PROJECT / "docs/clusters.md").read_text()
    typed = re.search(r"<!-- torchrun:begin -->\n```sh\n(.*?)```", text, re.DOTALL)[1]
    study = "--suite smoke --device cpu --models ViT-pico/14 --only *-100_s0"
    for old, new in (("scaling", "smoke"), ("--ranks 8", "--ranks 1"), ("node0", "127.0.0.1")):
        typed = typed.replace(old, new)
    plan, worker, report = typed.splitlines()
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}

    def begun(command: str) -> subprocess.Popen:
        words = shlex.split(command.replace("vit-bench ", "python -m bench ").replace("python ", f"{sys.executable} "))
        agent = subprocess.Popen(words, cwd=tmp_path, env=environment, start_new_session=True)
        ended.append(agent.pid)
        return agent

    assert begun(plan.replace("--suite smoke", study)).wait(PATIENCE * 3) == 0
    agents = [begun(worker.replace("--node 0", f"--node {node}") + f" --job {os.getpid()}") for node in range(2)]
    assert [agent.wait(PATIENCE * 5) for agent in agents] == [0, 0]
    (path,) = tmp_path.glob("results/smoke/cells/*/record.json")
    assert read_record(path).execution.ranks == 2
    assert begun(report.replace("--suite smoke", study)).wait(PATIENCE * 3) == 0
    assert (tmp_path / "results/smoke/report.md").exists()


@pytest.mark.parametrize("whom", ["agent", "both"])
def test_a_killed_machine_ends_the_other_and_the_same_command_continues(tmp_path, ended, whom):
    """An agent that is killed leaves its rank, which nobody would end."""
    agents = start(tmp_path, LONG)
    ended += [agent.pid for agent in agents]
    until(lambda: trained_steps(tmp_path / "test") > 10, PATIENCE * 3)
    ranks = [pid for agent in agents for pid in ranks_of(agent)]
    ended += ranks
    assert len(ranks) == 2
    agents[1].kill()
    if whom == "both":
        os.kill(ranks[1], signal.SIGKILL)
    until(lambda: agents[0].poll() is not None and not any(map(alive, ranks)), PATIENCE)
    assert agents[0].wait() != 0
    agents[1].kill()
    (directory,) = (tmp_path / "test" / "cells").iterdir()
    saved = sorted(directory.glob("checkpoints/step-*"))
    status = json.loads(next(directory.glob("attempts/*/status.json")).read_text())
    if whom == "agent":  # its rank noticed, and all of them saved
        assert saved and status["outcome"] == "interrupted"
    else:
        assert "Rank 1 of 2 ended without a report" in (tmp_path / "node0.txt").read_text()
        assert status["outcome"] == "failed"
    before = len(list(directory.glob("attempts/*")))
    again = start(tmp_path, LONG)
    ended += [agent.pid for agent in again]
    done = lambda: [json.loads(line)["done"] for line in newest(directory).read_text().splitlines()]  # noqa: E731
    until(lambda: len(list(directory.glob("attempts/*/metrics.jsonl"))) > before and len(done()) > 1, PATIENCE * 3)
    if saved:
        assert max(done()) > int(saved[-1].name.split("-")[1])
    for agent in again:
        agent.send_signal(signal.SIGTERM)
    until(lambda: all(agent.poll() is not None for agent in again), PATIENCE)


@pytest.mark.parametrize(
    "killed, said",
    [
        ((False, True), ("Rank 1 of 2 ended without a report", "Rank 1 of 2 was killed by SIGKILL")),
        ((True, False), ("", "127.0.0.1, the first of 2 machines, does not answer.")),
    ],
    ids=["a rank", "the first machine"],
)
def test_what_is_lost_is_said_in_one_sentence_by_every_machine_that_is_left(tmp_path, ended, killed, said):
    agents = start(tmp_path, LONG, LAUNCHER)
    ended += [agent.pid for agent in agents]
    until(lambda: trained_steps(tmp_path / "test") > 10, PATIENCE * 3)
    ranks = [pid for agent in agents for pid in ranks_of(agent)]
    ended += ranks
    for number in range(2):
        if killed[number]:
            (os.kill(ranks[1], signal.SIGKILL) if number else agents[0].kill())
    assert [agent.wait(PATIENCE) for agent in agents] == [-signal.SIGKILL if killed[0] else EXIT_USAGE, EXIT_USAGE]
    for number, words in enumerate(said):
        told = (tmp_path / f"node{number}.txt").read_text().splitlines()
        assert told == [] if not words else words in told[0] and "Run the same command" in told[1] and len(told) == 2, (
            told
        )


def test_a_machine_that_waits_for_others_in_vain_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torchrun, "JOIN_SECONDS", 1)
    for how, words in (
        (("--node", "1"), "does not listen at port"),
        (("--first", "no.such.invalid"), "not to be found"),
    ):
        assert torchrun.main(["--ranks", "1", "--nodes", "2", "--job", str(os.getpid()), *how]) == EXIT_USAGE
        assert words in capsys.readouterr().err


def newest(directory: Path) -> Path:
    return max(directory.glob("attempts/*/metrics.jsonl"))
