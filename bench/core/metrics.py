"""Metrics beside accuracy that tasks take on demand: their names, and what people call them."""

from __future__ import annotations

ACCURACY = "accuracy"  # the metric that is a share of the test images
BALANCED, MACRO_F1, MEAN_AP = "balanced-accuracy", "macro-f1", "map"
BESIDE = (BALANCED, MACRO_F1)  # accuracy, of images of one label each; mAP and macro-F1 are of several
METRICS = {
    ACCURACY: "accuracy",
    BALANCED: "balanced accuracy",
    MACRO_F1: "macro-F1",
    MEAN_AP: "mAP",
}
"""In [0, 1], larger is better; the first is the metric of every task."""
RESAMPLED = "resampled"  # A score's detail holds it under this key: see `bench.store.resampled`.
