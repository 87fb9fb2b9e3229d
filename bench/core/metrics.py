"""The names of the metrics: accuracy, and those that tasks compute on request."""

from __future__ import annotations

from collections.abc import Sequence

from bench.core.errors import UserError

ACCURACY = "accuracy"  # fraction of the test images that are classified correctly
BALANCED, MACRO_F1, MEAN_AP = "balanced-accuracy", "macro-f1", "map"
BESIDE = (BALANCED, MACRO_F1)  # offered beside accuracy for single-label images; multi-label: mAP and macro-F1
METRICS = {
    ACCURACY: "accuracy",
    BALANCED: "balanced accuracy",
    MACRO_F1: "macro-F1",
    MEAN_AP: "mAP",
}
"""Name -> words for people. Every metric lies in [0, 1], and larger is better; the first is the metric of every
task."""
RESAMPLED = "resampled"  # the key of resampled metrics in a score's detail: see `bench.store.resampled`


def check_several(asked: Sequence[str], *, name: str) -> None:
    """Refuse metrics that are not defined for images with several labels each.

    Raises:
        UserError: such a metric was asked for; the message names it and the metrics that are computed instead.
    """
    if strange := [METRICS.get(metric, metric) for metric in asked if metric in BESIDE and metric != MACRO_F1]:
        what = f"{name} has images of several labels, of which there is no {strange[0]}."
        raise UserError(what, "They are judged by mAP and macro-F1 without asking: leave it out of --metrics.")
