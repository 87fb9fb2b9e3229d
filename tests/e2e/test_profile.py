"""`--profile` on a training run leaves a trace in which every part of a step is labelled."""

from __future__ import annotations

import json


def test_a_training_run_can_be_profiled(verb, tmp_path):
    done = verb("run", "--suite", "smoke", "--models", "ViT-pico/14", "--only", "vit*-100_s0", "--profile",
                "--workers", "1")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (trace,) = (tmp_path / "results/smoke/cells").glob("*/attempts/001/trace/*.pt.trace.json")
    names = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"data", "forward", "backward", "optimizer", "evaluate"} <= names
