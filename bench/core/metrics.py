"""Metrics beside accuracy that tasks take on demand: their names, and what people call them."""

from __future__ import annotations

BALANCED, MACRO_F1 = "balanced-accuracy", "macro-f1"
METRICS = {
    "accuracy": "accuracy",
    BALANCED: "balanced accuracy",
    MACRO_F1: "macro-F1",
}
"""In [0, 1], larger is better; the first is the metric of every task."""
RESAMPLED = "resampled"  # of a score's detail: see `bench.store.resampled`
