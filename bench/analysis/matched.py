"""Published families of networks compared at equal error: how much more training compute one needs than another.

A comparison is controlled where both families were trained by the same authors with the same schedule on the same set.
Only such comparisons say something about the networks. The others say what recipes of their time cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bench.analysis.comparisons import UNREPLICATED
from bench.analysis.finding import Item
from bench.cost import public_models
from bench.stats.intervals import z_quantile
from bench.stats.pareto import pareto

TEST_IMAGES = 50_000
"""Images of ImageNet's validation set, on which every error was measured."""
LEVEL = 0.95
Z = z_quantile(LEVEL)
COLUMNS = {
    "checkpoints": ("train_exaflops", "in1k_top1"),
    "paper": ("train_exaflops_paper", "in1k_top1"),
    "clip": ("train_exaflops", "in1k_zeroshot"),
}
"""Columns of training compute and of accuracy on ImageNet-1k. Table 6 is printed in the paper's convention."""


@dataclass(frozen=True, kw_only=True)
class Comparison(Item):
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
        stated: the ratio that its authors state, and where; empty where they state none.
    """

    name: str
    table: str
    first: str
    first_pattern: str
    second: str
    second_pattern: str
    image_size: str
    differs: str
    stated: str

    @property
    def controlled(self) -> bool:
        """Whether nothing but the networks, or nothing but the images, differs."""
        return not self.differs

    @cached_property
    def families(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Networks of both by cost, with columns `model`, `compute` and `error`; of one that was tested at several
        sizes, the best of these."""
        table, (cost, accuracy) = public_models.table(self.table), COLUMNS[self.table]
        if self.image_size:
            table = table[table["image_size"] == int(self.image_size)]
        table = table.assign(compute=table[cost], error=100 - table[accuracy]).dropna(subset=["compute", "error"])
        both = (table[table["model"].str.fullmatch(pattern)] for pattern in (self.first_pattern, self.second_pattern))
        first, second = (
            rows.sort_values("error").drop_duplicates("model").sort_values("compute", kind="stable") for rows in both
        )
        return first, second


@dataclass(frozen=True, kw_only=True)
class Ratio(Item):
    """The cost at which the second family is as good as one network of the first, or as all of them.

    Attributes:
        model: the network; "all": the geometric mean over those whose ratio is known.
        compute: of its training, in exaFLOPs; None for all.
        error: its error on ImageNet-1k, in percent; None for all.
        ratio: compute of the second family at that error over compute; None where no two of its networks have the error
            between them.
        low: lower end of a 95 % interval that contains chance in the test images, and not that in training.
        high: its upper end.
        margin: the factor that chance between single trainings may cause at most, as
            `bench.analysis.comparisons.UNREPLICATED` has it; None where the ratio is unknown.
    """

    model: str
    compute: float | None
    error: float | None
    ratio: float | None
    low: float | None
    high: float | None
    margin: float | None

    @property
    def decided(self) -> bool:
        """Whether one family needs less, beyond the interval and what single trainings may owe to chance."""
        if self.ratio is None or self.low is None or self.high is None or self.margin is None:
            return False
        return abs(math.log(self.ratio)) > math.hypot(math.log(self.high / self.low) / 2, math.log(self.margin))


@cache
def comparisons() -> tuple[Comparison, ...]:
    """Those that the published tables allow, controlled ones first."""
    return tuple(Comparison(**row) for row in public_models.read("comparisons"))


@cache
def matched(comparison: Comparison) -> tuple[Ratio, ...]:
    """Ratios of compute at equal error: one per network of the first family, by compute; the last is their mean."""
    first, second = comparison.families
    numbers = estimate(first["compute"], first["error"], second["compute"], second["error"])
    columns = [*first["model"], "all"], [*first["compute"], None], [*first["error"], None]
    return tuple(
        Ratio(model=model, compute=compute, error=error, ratio=ratio, low=low, high=high, margin=margin)
        for model, compute, error, interval in zip(*columns, numbers.tolist(), strict=True)
        for ratio, low, high, margin in [interval if np.isfinite(interval[0]) else (None,) * 4]
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
        A row per point and one for the geometric mean of those that are known; columns: ratio, low, high, margin.
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
    shift = np.exp(UNREPLICATED * (1 - error / 100))  # log-odds of an error to its logarithm
    better, worse = (ratios(compute, moved, costs, line, extend=True) for moved in (error / shift, error * shift))
    chance = np.abs(np.log(better / worse)) / 2
    mean = chance[known].mean() / math.sqrt(known.sum()) if known.any() else np.nan
    return np.column_stack([all_of_them[0], low, high, np.exp([*chance, mean])])


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


def _drawn(error_N: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Errors on other test images of the same kind. Those of two networks are drawn apart, though they were measured on
    the same images: intervals are too wide rather than too narrow."""
    share = error_N / 100
    return np.asarray(error_N + 100 * np.sqrt(share * (1 - share) / TEST_IMAGES) * rng.standard_normal(len(error_N)))


@dataclass(frozen=True, kw_only=True)
class Gain(Item):
    """One network pre-trained on ImageNet-1k and on ImageNet-21k by the same authors: a line of
    `baselines/published/gains.csv`, with its accuracies.

    Attributes:
        network: its name and whose recipe it is.
        family: of networks.
        differs: what else than the images differs; empty where nothing does.
        fewer: accuracy after ImageNet-1k, in 0..1.
        more: accuracy after ImageNet-21k, in 0..1.
    """

    network: str
    family: str
    differs: str
    fewer: float
    more: float

    @property
    def gain(self) -> float:
        return self.more - self.fewer

    @property
    def half(self) -> float:
        """Half of a 95 % interval, as if both were measured on test images of their own: too wide, not too narrow."""
        return Z * math.hypot(*(math.sqrt(share * (1 - share) / TEST_IMAGES) for share in (self.fewer, self.more)))


@cache
def gains() -> tuple[Gain, ...]:
    """Networks that were published with both sets, the controlled ones first."""
    made = []
    for row in public_models.read("gains"):
        table = public_models.table(row["table"])
        at = table[table["image_size"] == int(row["image_size"])].set_index("model")["in1k_top1"] / 100
        sides = {side: float(at[row[side]]) for side in ("fewer", "more")}
        made.append(Gain(network=row["network"], family=row["family"], differs=row["differs"], **sides))
    return tuple(made)
