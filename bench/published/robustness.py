"""Accuracies of published checkpoints on test sets other than ImageNet's own validation set."""

from __future__ import annotations

import pandas as pd

from bench.published import public_evidence

BAND = 13.3, 14.3  # percent: a range of ImageNet error in which every group has checkpoints
TESTS = {
    "real_top1": "ReaL labels",
    "v2_top1": "ImageNet-V2",
    "a_top1": "ImageNet-A",
    "r_top1": "ImageNet-R",
    "sketch_top1": "ImageNet-Sketch",
}
"""Column of the table `checkpoints` -> name of the test set."""


def checkpoints() -> pd.DataFrame:
    """Return the checkpoints with a known recipe, each at the test size at which its ImageNet accuracy is highest."""
    return public_evidence.checkpoints().sort_values("in1k_top1").drop_duplicates("model", keep="last")


def in_band(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of checkpoints whose ImageNet error lies in `BAND`."""
    return table[table["error"].between(*BAND)]
