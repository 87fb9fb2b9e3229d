"""`--profile` on a training run leaves a trace in which every part of a step is labelled, and the report links it."""

from __future__ import annotations

import json

import pytest

from bench.plan import estimate
from bench.plan.cost_model import NOTHING_MEASURED


@pytest.mark.slow
def test_a_training_run_can_be_profiled(verb, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "calibrate", lambda *_, **__: NOTHING_MEASURED)  # other processes
    monkeypatch.setattr(estimate, "cell_cost", lambda *_, **__: estimate.CellCost(seconds=1.0))
    done = verb("run", "--suite", "smoke", "--models", "ViT-pico/14", "--only", "vit*-100_s0", "--profile")
    assert done.returncode == 0, done.stdout + done.stderr
    (trace,) = (tmp_path / "results/smoke/cells").glob("*/attempts/001/trace/*.pt.trace.json")
    names = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"data", "forward", "backward", "optimizer", "evaluate"} <= names
    for page in ("report.html", "report.md"):
        assert (
            trace.relative_to(tmp_path / "results/smoke").as_posix() in (tmp_path / "results/smoke" / page).read_text()
        )
