"""The names of the metrics: accuracy, and those that tasks compute on request."""

from __future__ import annotations

from collections.abc import Sequence

from bench.core.errors import UserError

ACCURACY = "accuracy"  # fraction of the test images that are classified correctly
BALANCED, MACRO_F1, MEAN_AP = "balanced-accuracy", "macro-f1", "map"
BESIDE = (BALANCED, MACRO_F1)  # metrics that a user can add for images of one label; of several: mAP and macro-F1
METRICS = {
    ACCURACY: "accuracy",
    BALANCED: "balanced accuracy",
    MACRO_F1: "macro-F1",
    MEAN_AP: "mAP",
}
"""Name of a metric -> the same in words for people. Every metric lies in [0, 1], and larger is better. Every task has
the first."""
RESAMPLED = "resampled"  # key of a metric's values on resamples in a score's detail: see `bench.store.resampled`


def check_several(asked: Sequence[str], *, name: str) -> None:
    """Refuse metrics that are not defined for images with several labels each.

    Args:
        asked: the metrics that the user asked for.
        name: the data set, for the message.

    Raises:
        UserError: such a metric was asked for; the message names it and the metrics that are computed instead.
    """
    if strange := [METRICS.get(metric, metric) for metric in asked if metric in BESIDE and metric != MACRO_F1]:
        what = f"{name} has images of several labels, of which there is no {strange[0]}."
        raise UserError(what, "They are judged by mAP and macro-F1 without asking: leave it out of --metrics.")
