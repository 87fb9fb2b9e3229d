"""Traces: read back by the plug-in they are for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.cost import timing as speed
from bench.cost import trace
from bench.cost.trace import ACTIVE, LABELS
from bench.execute.jobs import speed as job
from tests.cost.test_speed import QUICK, cell, context

READER = Path(__file__).with_name("read_trace.py")


def read_back(folder: Path, *, steps: int) -> dict[str, Any]:
    pytest.importorskip("torch_tb_profiler", reason="TensorBoard's profiler plug-in is not installed")
    root = str(READER.parent.parent.parent)
    result = subprocess.run(
        [sys.executable, str(READER), str(folder), str(steps)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.slow
def test_the_plugin_reads_it_and_finds_every_label(tmp_path: Path) -> None:
    found = read_back(tmp_path / "trace", steps=8)
    assert found["workers"] == ["worker0"]
    assert {"overall", "operator", "trace", "memory"} <= {view.lower() for view in found["views"]}
    assert "aten::addmm" in found["operators"]
    assert set(LABELS) <= set(found["labels"])
    assert sum(name.startswith("ProfilerStep#") for name in found["labels"]) == ACTIVE
    assert "host_name" not in found["keys"] and "traceName" not in found["keys"]


def labels_in(folder: Path) -> set[str]:
    path = trace.newest(folder)
    assert path is not None
    events = json.loads(path.read_text())["traceEvents"]
    return {event["name"] for event in events if event.get("cat") == "user_annotation"}


def test_a_short_run_leaves_what_it_has(tmp_path: Path) -> None:
    with trace.profile(tmp_path / "trace") as recording:
        for _ in range(3):
            with trace.label("forward"):
                torch.ones(2) + 1
            recording.step()
    assert "forward" in labels_in(tmp_path / "trace")


def test_speed_job_leaves_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "CPU_PACE", QUICK)
    job.run(cell(), context(tmp_path, profile=True))
    assert set(LABELS) <= labels_in(tmp_path / "trace")


def test_off_means_off(tmp_path: Path) -> None:
    with trace.profile(tmp_path / "trace", enabled=False) as recording, trace.label("forward"):
        recording.step()
    assert not (tmp_path / "trace").exists()


def test_labels_are_known() -> None:
    with pytest.raises(ValueError, match="optimizer"):
        trace.label("optimiser")
