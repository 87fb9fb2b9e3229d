"""A clock that stands still while its process does not run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from bench.core.clock import GAP, LOOK, RunningClock
from tests.conftest import PROJECT


class Machine:
    """A wall clock and a process's processor time, set by hand."""

    def __init__(self):
        self.wall = self.used = 0.0
        self.clock = RunningClock(wall=lambda: self.wall, used=lambda: self.used)

    def run(self, seconds, *, share, looks=True):
        """Let time pass, of which the process uses a share; `looks`: whether any thread reads the clock meanwhile."""
        left = seconds
        while left > 1e-9:
            step = min(left, LOOK) if looks else left
            self.wall, self.used, left = self.wall + step, self.used + share * step, left - step
            self.clock()


@pytest.mark.parametrize("share, looks", [(1.0, True), (0.0, True), (1.0, False), (0.1, False)])
def test_computing_and_waiting_are_time(share, looks):
    """Waiting for a device lets the other thread look; a long computation that does not lets the process use time."""
    machine = Machine()
    machine.run(600.0, share=share, looks=looks)
    assert machine.clock() == pytest.approx(600.0) and machine.clock.stopped == 0.0


def test_a_pause_is_not():
    machine = Machine()
    machine.run(10.0, share=0.9)
    machine.run(471.0, share=0.0, looks=False)
    machine.run(10.0, share=0.9)
    assert machine.clock() == pytest.approx(20.0 + LOOK)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
def test_a_stopped_process_is_paused():
    script = "from bench.core.clock import running\nwhile input(): print(running(), flush=True)"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], cwd=PROJECT, **pipes) as it:

        def ask():
            it.stdin.write(b"?\n")
            it.stdin.flush()
            return float(it.stdout.readline())

        first, began = ask(), time.monotonic()
        it.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, it.pid, os.WSTOPPED | os.WNOWAIT)
        time.sleep(2 * GAP)
        it.send_signal(signal.SIGCONT)
        counted, passed = ask() - first, time.monotonic() - began
        it.kill()
    assert counted < passed - GAP
