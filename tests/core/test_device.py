"""The machine: its devices, and time without pauses."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from bench.core import device
from bench.core.clock import POLL_SECONDS, STOPPED_AFTER, RunningClock
from bench.core.errors import UserError
from tests.conftest import PROJECT
from tests.gpu.posing import NAME, posing

# -- which device is chosen, and what is said of it --------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Has a driver of the kinds that are asked for."""

    def with_drivers(*kinds):
        there = {name: tmp_path / name.replace(" ", "-") for name in device.DRIVERS.values()}
        for kind in kinds:
            there[kind].touch()
        monkeypatch.setattr(device, "DRIVERS", {str(path): name for name, path in there.items()})

    assert {"/dev/nvidiactl", "/dev/dxg", "/dev/kfd"} == set(device.DRIVERS)
    return with_drivers


@pytest.mark.parametrize("driver", ["an NVIDIA driver", "a GPU under WSL", "an AMD driver"])
def test_any_driver_is_reason_enough_to_ask_torch(machine, driver):
    """Under WSL there is no /dev/nvidiactl."""
    machine(driver)
    with posing():
        assert device.find_device("auto") == ("cuda", f"2 × {NAME}")


def test_a_driver_that_torch_cannot_use_is_named(machine, monkeypatch):
    machine("a GPU under WSL")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = device.find_device("auto")
    assert found.device == "cpu" and found.reason.startswith("a GPU under WSL was found, but torch")
    with pytest.raises(UserError, match="torch"):
        device.find_device("cuda")


def test_without_a_driver_it_is_the_cpu_and_torch_is_not_asked(machine, monkeypatch):
    machine()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("asked"))
    assert device.find_device("auto").device == "cpu" and "no driver" in device.find_device("auto").reason


# -- a clock that stands still while its process does not run ----------------------------------------------------------


class Machine:
    """A wall clock and a process's processor time, set by hand."""

    def __init__(self):
        self.wall = self.used = 0.0
        self.clock = RunningClock(wall=lambda: self.wall, used=lambda: self.used)

    def run(self, seconds, *, share, looks=True):
        """Let time pass, of which the process uses a share; `looks`: whether any thread reads the clock meanwhile."""
        left = seconds
        while left > 1e-9:
            step = min(left, POLL_SECONDS) if looks else left
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
    assert machine.clock() == pytest.approx(20.0 + POLL_SECONDS)


@pytest.mark.gate
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
        time.sleep(2 * STOPPED_AFTER)
        it.send_signal(signal.SIGCONT)
        counted, passed = ask() - first, time.monotonic() - began
        it.kill()
    assert counted < passed - STOPPED_AFTER
