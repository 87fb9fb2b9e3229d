"""Published CLIP networks by the data set that they were trained on, and how their zero-shot error falls with
compute."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from bench.published import public_models
from bench.published.matched import LEVEL
from bench.stats.intervals import t_quantile

NEAR_CHANCE = 90.0  # percent: errors above this are near chance, and follow no power law
SETS = {
    "CommonPool": r"ViT-\w-\d+\.commonpool_(s|m|l|xl)_s\d+[mb]_b\d+k",
    "DataComp": r"ViT-(B-32|B-16|L-14)\.datacomp_\w+_s\d+[mb]_b\d+k",
    "LAION-400M": r"ViT-(B-32|B-16|B-16-plus-240|L-14)\.laion400m_e32",
    "LAION-2B": r"ViT-\w+-\d+\.laion2b_s\d+b_b\d+k",
    "WIT-400M": r"ViT-(B-32|B-16|L-14)\.openai",
}
"""Data set on which networks of several sizes were trained -> regular expression of their names. DataComp is the best
part of CommonPool."""


def networks() -> pd.DataFrame:
    """Return CLIP's plain ViTs that were trained on the data sets of SETS, one per row, by compute. Columns: `compute`
    (exaFLOPs of training), `error` (zero-shot on ImageNet, percent, below `NEAR_CHANCE`), `upstream` (the data set) and
    those of the table `clip`."""
    table = public_models.table("clip")
    table = table.assign(compute=table["train_exaflops"], error=100 - table["in1k_zeroshot"])
    parts = [table[table["model"].str.fullmatch(pattern)].assign(upstream=name) for name, pattern in SETS.items()]
    made = pd.concat(parts).sort_values("compute", kind="stable")
    return made[made["error"] < NEAR_CHANCE]


def power_law(compute_N: np.ndarray, error_N: np.ndarray) -> tuple[float, float, float, float]:
    """Fit error = a x compute^-b by least squares in logarithms. Return (a, b, lower and upper end of the 95 % interval
    of b)."""
    fit = stats.linregress(np.log(compute_N), np.log(error_N))
    half = t_quantile(len(compute_N) - 2, LEVEL) * fit.stderr
    return float(np.exp(fit.intercept)), -fit.slope, -fit.slope - half, -fit.slope + half
