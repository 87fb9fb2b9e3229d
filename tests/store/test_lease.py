"""One runner per cell; a dead one's lease is taken over at once on this machine, later on another, and then fenced."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from bench.core import files
from bench.core.errors import UserError
from bench.execute.watching import Watched
from bench.store import lease
from bench.store.study import Study
from bench.study.cell import Cell

needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
ELSEWHERE = json.dumps({"machine": "elsewhere", "pid": 1, "started": None})


@pytest.fixture
def clock(monkeypatch):
    """The watcher's own clock, to be set forward."""
    now = [0.0]
    monkeypatch.setattr(lease, "running", lambda: now[0])
    monkeypatch.setattr(lease, "_watched", {})
    return now


def test_two_claimants_one_wins(tmp_path):
    path = tmp_path / "lease.json"
    with lease.claim(path) as first, lease.claim(path) as second:
        assert first is not None and second is None
    assert not path.exists()


@pytest.mark.gate
def test_many_claimants_at_once_one_wins(tmp_path):
    script = (
        "import sys; from pathlib import Path; from bench.store.lease import claim\n"
        "with claim(Path(sys.argv[1])) as mine: print(int(mine is not None), flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "lease.json")]
    claimants = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    won = [int(claimant.stdout.readline()) for claimant in claimants]  # each holds on until all have been told
    for claimant in claimants:
        claimant.communicate(timeout=60)
    assert sum(won) == 1
    assert [claimant.returncode for claimant in claimants] == [0] * 6


@pytest.mark.gate
def test_a_killed_runner_loses_its_lease(tmp_path):
    path = tmp_path / "lease.json"
    script = "import sys; from pathlib import Path; from bench.store import lease\nlease._acquire(Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    assert path.exists()
    assert lease.holder(path) is None
    with lease.claim(path) as mine:
        assert mine


@pytest.mark.gate
@needs_proc
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
        assert path.exists() and lease.holder(path) is None and lease._is_dead(path, lease._look(path))


@needs_proc
def test_a_reused_process_number_is_not_the_holder(tmp_path):
    path = tmp_path / "lease.json"
    with lease.claim(path):
        files.write_sealed(path, files.read_sealed(path) | {"started": "1"})
        assert lease.holder(path) is None and lease._is_dead(path, lease._look(path))


@pytest.mark.gate
@needs_proc
def test_a_stopped_holder_keeps_its_lease_and_is_shown_as_stopped(tmp_path):
    path = tmp_path / "lease.json"
    script = (
        "import sys; from pathlib import Path; from bench.store import lease\n"
        "lease._acquire(Path(sys.argv[1])); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as it:
        it.stdout.readline()
        assert lease.holder(path).pid == it.pid and not lease.holder(path).stopped
        it.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, it.pid, os.WSTOPPED | os.WNOWAIT)
        assert lease.holder(path).stopped and "stopped" in str(lease.holder(path))
        assert not lease._is_dead(path, lease._look(path)) and lease._acquire(path) is None
        it.kill()


@pytest.mark.parametrize("text", [ELSEWHERE, "torn"])
@pytest.mark.parametrize("ahead", [0, -3700, -95, 95, 3000, 7 * 86_400])
def test_a_lease_of_another_machine_expires_by_the_watchers_clock_alone(tmp_path, clock, text, ahead):
    """The time of its heartbeats does not matter: the clocks of two machines differ, and are set."""
    path = tmp_path / "lease.json"
    path.write_text(text)
    for beat in range(3):
        os.utime(path, (time.time() + ahead + beat,) * 2)
        assert lease._acquire(path) is None
        clock[0] += lease.EXPIRES_AFTER  # it has not been unchanged for longer
        assert lease._acquire(path) is None
    clock[0] += 1
    assert lease._acquire(path) is not None


@pytest.mark.parametrize("ahead", [0, -3700, 3700])
def test_a_driver_sees_that_a_cell_is_worked_on_whatever_the_workers_clock_says(tmp_path, clock, ahead):
    """Otherwise it would end before the last cells, or start a worker that has nothing to do."""
    directory = Study(tmp_path).cell(Cell(model="ViT-pico/14", data="digits"))
    directory.lease.parent.mkdir(parents=True)
    watched = Watched(Study(tmp_path), [Cell(model="ViT-pico/14", data="digits")])
    for beat in range(3):
        directory.lease.write_text(ELSEWHERE)
        os.utime(directory.lease, (time.time() + ahead + beat,) * 2)
        watched.news()
        assert watched.held()
        clock[0] += lease.EXPIRES_AFTER
    clock[0] += 1
    watched.news()
    assert not watched.held()


@pytest.mark.parametrize("claimed", [{"pid": 0}, {"pid": -1}, {"pid": 2**40}, {"pid": "1"}, {}], ids=str)
def test_what_is_no_process_holds_no_lease_for_ever(tmp_path, clock, claimed):
    """Number -1 is every process, to the kernel: such a lease would never be free."""
    path = tmp_path / "lease.json"
    files.write_sealed(path, {"machine": lease._machine(), "started": None, **claimed})
    lease._acquire(path)
    clock[0] += lease.EXPIRES_AFTER + 1
    assert lease._acquire(path) is not None or lease.holder(path).pid == os.getpid()


def test_a_claimant_that_was_slow_does_not_take_the_lease_that_another_has_just_got(tmp_path, monkeypatch):
    """With locks, nobody else comes near; without, what was moved by mistake is put back."""
    path = tmp_path / "lease.json"
    monkeypatch.setattr(lease, "_locked", lambda *_: True)
    path.write_text(ELSEWHERE)
    monkeypatch.setattr(lease, "EXPIRES_AFTER", -1.0)
    monkeypatch.setattr(lease, "_watched", {path: (lease._look(path), 0.0)})
    remove, other = lease._remove, []

    def slow(path, seen):
        """Finds the holder dead; and before it does anything about it, another claimant has its turn."""
        monkeypatch.setattr(lease, "_remove", remove)
        other.append(lease._acquire(path))
        return remove(path, seen)

    monkeypatch.setattr(lease, "_remove", slow)
    assert lease._acquire(path) is None and other[0] is not None
    assert path.read_bytes() == other[0] and os.listdir(tmp_path) == ["lease.json"]


@pytest.mark.parametrize("locks", [True, False])
def test_a_holder_that_lost_its_lease_notices_before_it_writes(tmp_path, monkeypatch, locks):
    path = tmp_path / "lease.json"
    if not locks:
        monkeypatch.setattr(lease, "_locked", lambda *_: True)
    with lease.claim(path) as mine:
        mine.check()
        path.write_text(ELSEWHERE)
        with pytest.raises(lease.LeaseLost, match="another runner"):
            mine.check()
        path.unlink()
        with pytest.raises(lease.LeaseLost):
            mine.check()


def test_a_release_that_is_slow_does_not_remove_the_next_holders_lease(tmp_path, monkeypatch):
    path = tmp_path / "lease.json"
    with lease.claim(path):
        look, looks = lease._look, []

        def paused(seen_path):
            seen = look(seen_path)
            if seen_path == path and not looks:  # between the look and the removal
                looks.append(seen)
                path.unlink()
                path.write_text(ELSEWHERE)
            return seen

        monkeypatch.setattr(lease, "_look", paused)
    assert path.read_text() == ELSEWHERE


def test_a_heartbeat_moves_a_lease_of_ones_own_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "HEARTBEAT", 0.01)
    path = tmp_path / "lease.json"
    with lease.claim(path):
        os.utime(path, (0, 0))
        deadline = time.monotonic() + 30
        while path.stat().st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert path.stat().st_mtime > 0
        path.unlink()
        path.write_text(ELSEWHERE)
        os.utime(path, (0, 0))
        time.sleep(0.1)
        assert path.stat().st_mtime == 0
    assert path.read_text() == ELSEWHERE  # nor is it released


def test_a_lease_that_cannot_be_written_is_one_message(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(UserError, match="full"):
        lease._acquire(tmp_path / "lease.json")
    assert os.listdir(tmp_path) == []
