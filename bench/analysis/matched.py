"""Published families of networks compared at equal error: how much more training compute one needs than another.

A comparison is controlled where both families were trained by the same authors with the same schedule on the same set.
Only such comparisons say something about the networks. The others say what recipes of their time cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bench.cost import public_models
from bench.stats.crossing import pareto

TEST_IMAGES = 50_000
"""Of ImageNet's validation set, on which every error was measured."""
LEVEL = 0.95
COSTS = {"checkpoints": "train_exaflops", "paper": "train_exaflops_paper"}
"""Columns of training compute. Table 6 is printed in the paper's convention."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two families of one published table: a line of `baselines/published/comparisons.csv`.

    Attributes:
        name: of the comparison.
        table: of `bench.cost.public_models`.
        first: label of the family whose networks are the points.
        first_pattern: regular expression that names of these networks match.
        second: label of the family whose best networks are the line.
        second_pattern: regular expression that names of these networks match.
        image_size: pixels per side of test images, for both; empty: at what size each is best.
        differs: what else than the networks differs; empty where nothing does, and the comparison is controlled.
    """

    name: str
    table: str
    first: str
    first_pattern: str
    second: str
    second_pattern: str
    image_size: str
    differs: str

    @property
    def controlled(self) -> bool:
        """Whether nothing but the networks differs."""
        return not self.differs


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The cost at which the second family is as good as one network of the first, or as all of them.

    Attributes:
        model: the network; "all": the geometric mean over those whose ratio is known.
        compute: of its training, in exaFLOPs; None for all.
        error: its error on ImageNet-1k, in percent; None for all.
        ratio: compute of the second family at that error over compute; None where no two of its networks have the error
            between them.
        low: lower end of a 95 % interval that contains chance in the test images, and not that in training.
        high: its upper end.
    """

    model: str
    compute: float | None
    error: float | None
    ratio: float | None
    low: float | None
    high: float | None


def comparisons() -> tuple[Comparison, ...]:
    """The claims of the ViT paper that public numbers can test, and one comparison with later networks."""
    return tuple(Comparison(**row) for row in public_models.read("comparisons"))


def matched(comparison: Comparison) -> tuple[Ratio, ...]:
    """Ratios of compute at equal error: one per network of the first family, by compute; the last is their mean."""
    table = public_models.table(comparison.table)
    cost = COSTS[comparison.table]
    if comparison.image_size:
        table = table[table["image_size"] == int(comparison.image_size)]
    first = _family(table, comparison.first_pattern, cost)
    second = _family(table, comparison.second_pattern, cost)
    numbers = estimate(first[cost], 100 - first["in1k_top1"], second[cost], 100 - second["in1k_top1"])
    columns = [*first["model"], "all"], [*first[cost], None], [*(100 - first["in1k_top1"]), None]
    return tuple(
        Ratio(model=model, compute=compute, error=error, ratio=ratio, low=low, high=high)
        for model, compute, error, found in zip(*columns, numbers.tolist(), strict=True)
        for ratio, low, high in [found if np.isfinite(found[0]) else (None, None, None)]
    )


def estimate(
    compute_N: ArrayLike,
    error_N: ArrayLike,
    line_compute_M: ArrayLike,
    line_error_M: ArrayLike,
    *,
    draws: int = 2_000,
    seed: int = 0,
) -> np.ndarray:
    """Ratios as `ratios` has them, with intervals from drawing all errors again on other test images.

    Returns:
        A row per point and one for the geometric mean of those that are known; columns: ratio, low, high.
    """
    compute, error, costs, line = (
        np.asarray(x, dtype=float) for x in (compute_N, error_N, line_compute_M, line_error_M)
    )
    best = ratios(compute, error, costs, line, extend=False)
    rng = np.random.default_rng(seed)
    again = [ratios(compute, _drawn(error, rng), costs, _drawn(line, rng), extend=True) for _ in range(draws)]
    logs = np.log([best, *again])
    known = np.isfinite(best)
    means = logs[:, known].mean(axis=1) if known.any() else np.full(len(logs), np.nan)
    all_of_them = np.exp(np.column_stack([logs, means]))
    low, high = np.quantile(all_of_them[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return np.column_stack([all_of_them[0], low, high])


def ratios(
    compute_N: np.ndarray,
    error_N: np.ndarray,
    line_compute_M: np.ndarray,
    line_error_M: np.ndarray,
    *,
    extend: bool,
) -> np.ndarray:
    """Compute of a line at each point's error, over the point's compute; NaN where the line does not reach the error.

    The line joins what is best at its compute, straight in log compute and log error.

    Args:
        extend: beyond its ends, the line goes on as its last stretch does.

    Returns:
        ratio_N.
    """
    kept = pareto(list(line_compute_M), list(line_error_M))[::-1]
    if len(kept) < 2:
        return np.full(len(error_N), np.nan)
    x, y, at = np.log(line_error_M[kept]), np.log(line_compute_M[kept]), np.log(error_N)
    right = np.clip(np.searchsorted(x, at), 1, len(x) - 1)
    share = (at - x[right - 1]) / (x[right] - x[right - 1])
    made = np.exp(y[right - 1] + share * (y[right] - y[right - 1])) / compute_N
    return made if extend else np.where((share >= 0) & (share <= 1), made, np.nan)


def _family(table: pd.DataFrame, pattern: str, cost: str) -> pd.DataFrame:
    """Networks by cost; of one that was tested at several sizes, the best of these."""
    rows = table[table["model"].str.fullmatch(pattern) & table[cost].notna()]
    return rows.sort_values("in1k_top1").drop_duplicates("model", keep="last").sort_values(cost, kind="stable")


def _drawn(error_N: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Errors on other test images of the same kind. Those of two networks are drawn apart, though they were measured on
    the same images: intervals are too wide rather than too narrow."""
    share = error_N / 100
    return np.asarray(error_N + 100 * np.sqrt(share * (1 - share) / TEST_IMAGES) * rng.standard_normal(len(error_N)))
