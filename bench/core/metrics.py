"""Metrics beside accuracy that tasks take on demand: their names, and what people call them."""

from __future__ import annotations

from collections.abc import Sequence

from bench.core.errors import UserError

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


def check_several(asked: Sequence[str], *, name: str) -> None:
    """Refuse metrics that images of several labels do not have.

    Raises:
        UserError: which, and what is taken of such images without asking.
    """
    if strange := [METRICS.get(metric, metric) for metric in asked if metric in BESIDE and metric != MACRO_F1]:
        what = f"{name} has images of several labels, of which there is no {strange[0]}."
        raise UserError(what, "They are judged by mAP and macro-F1 without asking: leave it out of --metrics.")
