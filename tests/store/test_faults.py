"""The point, the time and the signal at which a test stops its process."""

import os
import signal

import pytest

from bench.store import faults


@pytest.mark.parametrize(
    "wanted, calls",
    [
        ("after-evaluation", [(1, "SIGKILL")]),
        ("after-evaluation:3", [(3, "SIGKILL")]),
        ("after-evaluation:2:SIGTERM", [(2, "SIGTERM")]),
        ("after-evaluation::SIGTERM", [(1, "SIGTERM")]),
        ("during-report:1", []),
        ("", []),
    ],
)
def test_a_process_is_stopped_once_at_its_point(monkeypatch, wanted, calls):
    sent = []
    monkeypatch.setenv(faults.VARIABLE, wanted)
    monkeypatch.setattr(faults, "_passed", {})
    monkeypatch.setattr(os, "kill", lambda process, number: sent.append((process, number)))
    seen = []
    for time in range(1, 5):
        faults.reach("after-evaluation")
        seen += [(time, signal.Signals(number).name) for process, number in sent if process == os.getpid()]
        sent.clear()
    assert seen == calls
