"""One runner per cell; a dead runner's lease is taken over at once on this machine, later on another."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time

import pytest

from bench.core import files
from bench.core.errors import UserError
from bench.store import lease


def test_two_claimants_one_wins(tmp_path):
    path = tmp_path / "lease.json"
    with lease.claim(path) as first, lease.claim(path) as second:
        assert (first, second) == (True, False)
    assert not path.exists()


def test_many_claimants_at_once_one_wins(tmp_path):
    script = (
        "import sys; from pathlib import Path; from bench.store.lease import claim\n"
        "with claim(Path(sys.argv[1])) as mine: print(int(mine), flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "lease.json")]
    claimants = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    won = [int(claimant.stdout.readline()) for claimant in claimants]  # each holds on until all have been told
    for claimant in claimants:
        claimant.communicate(timeout=60)
    assert sum(won) == 1
    assert [claimant.returncode for claimant in claimants] == [0] * 6


def test_a_killed_runner_loses_its_lease(tmp_path):
    path = tmp_path / "lease.json"
    script = (
        "import sys; from pathlib import Path; from bench.store import lease\nlease._acquire(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    assert path.exists()
    assert not lease.holder_is_alive(path)
    with lease.claim(path) as mine:
        assert mine


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_a_killed_runner_that_its_parent_has_not_asked_after_holds_nothing(tmp_path):
    """A run asks after its workers when all have ended: until then, one that was killed is still listed."""
    path = tmp_path / "lease.json"
    script = (
        "import os, signal, sys; from pathlib import Path; from bench.store import lease\n"
        "lease._acquire(Path(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE) as killed:
        assert killed.stdout.read() == b""  # ended, and not waited for
        os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
        os.kill(killed.pid, 0)  # there still, in name
        assert path.exists() and not lease.holder_is_alive(path)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_a_reused_process_number_is_not_the_holder(tmp_path):
    path = tmp_path / "lease.json"
    with lease.claim(path):
        content = files.read_sealed(path)
        files.write_sealed(path, content | {"started": "1"})
        assert not lease.holder_is_alive(path)


def test_a_lease_of_another_machine_lives_by_its_heartbeat(tmp_path):
    path = tmp_path / "lease.json"
    path.write_text(json.dumps({"machine": "elsewhere", "pid": 1, "started": None}))
    assert lease.holder_is_alive(path)
    old = time.time() - lease.EXPIRES_AFTER - 1
    os.utime(path, (old, old))
    assert not lease.holder_is_alive(path)


@pytest.mark.parametrize("claimed", [{"pid": 0}, {"pid": -1}, {"pid": 2**40}, {"pid": "1"}, {}], ids=str)
def test_what_is_no_process_holds_no_lease_for_ever(tmp_path, claimed):
    """Number -1 is every process, to the kernel: such a lease would never be free."""
    path = tmp_path / "lease.json"
    files.write_sealed(path, {"machine": lease._machine(), "started": None, **claimed})
    os.utime(path, (0, 0))
    assert not lease.holder_is_alive(path)


@pytest.mark.parametrize("text", [json.dumps({"machine": "elsewhere", "pid": 1, "started": None}), "torn"])
def test_a_heartbeat_of_next_week_is_none(tmp_path, text):
    """A clock that was wrong for a while: the cell would be held until that time comes."""
    path = tmp_path / "lease.json"
    path.write_text(text)
    for ahead, alive in ((0, True), (lease.AHEAD / 2, True), (7 * 86_400, False)):
        os.utime(path, (time.time() + ahead,) * 2)
        assert lease.holder_is_alive(path) == alive


ELSEWHERE = json.dumps({"machine": "elsewhere", "pid": 1, "started": None})


def expired(path):
    path.write_text(ELSEWHERE)
    os.utime(path, (0, 0))


def test_a_claimant_that_was_slow_does_not_take_the_lease_that_another_has_just_got(tmp_path, monkeypatch):
    path = tmp_path / "lease.json"
    expired(path)
    looked = lease.holder_is_alive

    def slow(path):
        """Finds the holder dead; and before it does anything about it, another claimant has its turn."""
        alive = looked(path)
        monkeypatch.setattr(lease, "holder_is_alive", looked)
        other.append(subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True).stdout)
        return alive

    other: list[str] = []
    script = (
        "import sys; from pathlib import Path; from bench.store import lease\nprint(lease._acquire(Path(sys.argv[1])))"
    )
    monkeypatch.setattr(lease, "holder_is_alive", slow)
    assert [lease._acquire(path), other[0].strip() == "True"].count(True) == 1
    assert os.listdir(tmp_path) == ["lease.json"]


def test_who_was_taken_for_dead_leaves_the_new_holder_alone(tmp_path):
    path = tmp_path / "lease.json"
    with lease.claim(path) as mine:
        assert mine
        path.write_text(ELSEWHERE)
    assert path.read_text() == ELSEWHERE


def test_a_lease_that_cannot_be_written_is_one_message(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(UserError, match="full"):
        lease._acquire(tmp_path / "lease.json")
    assert os.listdir(tmp_path) == []
