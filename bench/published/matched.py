"""Compare published families of networks at equal error: how much more training compute does one need than another?

A comparison is controlled if both families were trained by the same authors with the same schedule on the same set.
Only such comparisons say something about the networks. Other comparisons say what the recipes of their time cost.

Everything that the project says about two families of the ViT paper's Table 6 comes from `matched`, so that there is
one answer. The answer depends on which error is measured; `by_metric` gives it for every metric that the table prints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from baselines.published import table as printed
from bench.analysis import published
from bench.analysis.comparisons import UNREPLICATED
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Item
from bench.published import public_evidence, public_models
from bench.stats.intervals import z_quantile
from bench.stats.pareto import pareto

TEST_IMAGES = 50_000
"""Images of ImageNet's validation set, on which every error was measured."""
IMAGENET, MEAN = "ImageNet", "mean of five sets"
METRICS = (*published.TESTS, MEAN)
"""Columns of accuracy in Table 6, and the mean of all of them but ReaL, which the ViT paper's Figure 5 draws."""
LEVEL = 0.95
Z = z_quantile(LEVEL)
COLUMNS = {
    "checkpoints": ("train_exaflops", "in1k_top1"),
    "paper": ("train_exaflops_paper", "in1k_top1"),
    "clip": ("train_exaflops", "in1k_zeroshot"),
}
"""Table -> its columns of training compute and of accuracy on ImageNet-1k. Table 6 counts FLOPs by the ViT paper's
convention."""


LEAST_ERROR = 0.01  # percent: least value of a simulated error, because its logarithm is taken
MAX_LOG = 300.0  # limit of logarithms, since a flat line, continued, would exceed what a float can hold


@dataclass(frozen=True, kw_only=True)
class Comparison(Item):
    """A comparison of two families of one published table: a line of `baselines/published/comparisons.csv`.

    Attributes:
        name: name of the comparison.
        table: name of a table of `bench.published.public_models`.
        first: label of the family each of whose networks is compared with the second family.
        first_pattern: regular expression that the names of the first family's networks match.
        second: label of the family whose best networks are joined by a line of compute against error.
        second_pattern: regular expression that the names of the second family's networks match.
        image_size: pixels per side of test images, for both families; "": each network at the size at which it is best.
        differs: what differs besides the networks; "" if nothing does, and the comparison is controlled.
        stated: the ratio that the authors of the networks state, and where; "" if they state none.
        compares: what differs between the families on purpose: "networks", or "images" of pre-training (of the same
            networks).
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
    compares: str

    @property
    def controlled(self) -> bool:
        """Whether only what is compared (the networks, or the pre-training images) differs."""
        return not self.differs

    @property
    def is_of_table_6(self) -> bool:
        """Whether the networks are from the ViT paper's Table 6, so that its other metrics are known besides
        ImageNet."""
        return self.table == "paper"

    @cached_property
    def families(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The networks of the first and of the second family, each sorted by training compute, with columns `model`,
        `compute` (exaFLOPs) and `error` (percent). Of a network that was tested at several image sizes, the best result
        is kept."""
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
    """The training compute of the second family divided by that of a network of the first family, at equal error.

    Attributes:
        model: name of the network of the first family; "all": the geometric mean over its networks with a known ratio.
        compute: training compute of the network, in exaFLOPs; None for "all".
        error: error of the network on ImageNet-1k, in percent; None for "all".
        ratio: compute of the second family at the network's error, divided by `compute`; None if no two networks of the
            second family have this error between them.
        low, high: ends of an interval of the ratio. It contains chance in the test images (95 %) and, added in
            quadrature, `margin`. None where the ratio is unknown.
        margin: the factor by which chance between single trainings may change the ratio, computed from
            `bench.analysis.comparisons.UNREPLICATED`; None where the ratio is unknown.
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
        """Whether one family needs less compute, beyond chance in the test images and between single trainings."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


@dataclass(frozen=True, kw_only=True)
class ByMetric(Item):
    """The mean ratio of a comparison if errors are measured by one metric.

    Attributes:
        metric: one of `METRICS`.
        ratio, low, high: the mean ratio over the networks of the first family and the ends of its interval, as in
            `Ratio`; None if the error of no network lies within the range of the second family.
        shrinks: the ratio of the network with the least compute divided by that of the network with the most, of those
            whose ratio is known; None if these are fewer than two.
        networks: number of networks of the first family whose ratio is known.
    """

    metric: str
    ratio: float | None
    low: float | None
    high: float | None
    shrinks: float | None
    networks: int


@cache
def comparisons() -> tuple[Comparison, ...]:
    """Return the comparisons of families of published networks that comparisons.csv lists, controlled comparisons
    first."""
    return tuple(Comparison(**row) for row in public_models.read("comparisons"))


def compared(evidence: Evidence) -> tuple[Comparison, ...]:
    """Return the comparisons of published families that belong to a study's evidence: all of them for the evidence of
    the published tables, those of the ViT paper's Table 6 for the evidence of that table, none for any other."""
    if public_evidence.is_public(evidence):
        return comparisons()
    return tuple(c for c in comparisons() if c.is_of_table_6) if evidence.suite == published.SUITE else ()


@cache
def matched(comparison: Comparison, metric: str = IMAGENET) -> tuple[Ratio, ...]:
    """Return ratios of compute at equal error: one per network of the first family, sorted by compute, then their
    geometric mean.

    Args:
        metric: the metric by which errors are equal, one of `METRICS`. Only for networks of Table 6 are other metrics
            than ImageNet known.
    """
    first, second = (_measured(comparison, rows, metric) for rows in comparison.families)
    numbers = estimate(
        first["compute"],
        first["error"],
        second["compute"],
        second["error"],
        test_images=first["tests"],
        line_test_images=second["tests"],
    )
    columns = [*first["model"], "all"], [*first["compute"], None], [*first["error"], None]
    return tuple(
        Ratio(model=model, compute=compute, error=error, ratio=ratio, low=low, high=high, margin=margin)
        for model, compute, error, interval in zip(*columns, numbers.tolist(), strict=True)
        for ratio, low, high, margin in [_with_chance(*interval) if np.isfinite(interval[0]) else (None,) * 4]
    )


@cache
def by_metric(comparison: Comparison) -> tuple[ByMetric, ...]:
    """Return the mean ratio of a comparison for each metric that is known for its networks, ImageNet first."""
    made = []
    for metric in METRICS if comparison.is_of_table_6 else (IMAGENET,):
        *networks, mean = matched(comparison, metric)
        known = [r.ratio for r in networks if r.ratio is not None]
        numbers = {"ratio": mean.ratio, "low": mean.low, "high": mean.high}
        shrinks = known[0] / known[-1] if len(known) > 1 else None
        made.append(ByMetric(metric=metric, shrinks=shrinks, networks=len(known), **numbers))
    return tuple(made)


def _measured(comparison: Comparison, rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the networks of one family (`rows`) with two columns: `error` by a metric, in percent, and `tests`, the
    number of test images by which a single test set would give this error the same variance. (A metric may be a mean
    over several test sets.)"""
    if metric == IMAGENET:
        return rows.assign(tests=TEST_IMAGES)
    lines = {f"{row['name']} {row['epochs']} epochs (Table 6)": row for row in printed("table6")}
    of = published.FIVE if metric == MEAN else (metric,)
    error = np.array([[100 - float(lines[model][column]) for column in of] for model in rows["model"]])
    images = np.array([published.TESTS[column][1] for column in of])
    mean, share = error.mean(axis=1), error / 100
    variance = (share * (1 - share) / images).sum(axis=1) / len(of) ** 2
    return rows.assign(error=mean, tests=mean / 100 * (1 - mean / 100) / variance)


def _with_chance(ratio: float, low: float, high: float, margin: float) -> tuple[float, float, float, float]:
    """Widen the interval of a ratio, from `low` to `high`, which contains only chance in the test images, by `margin`,
    the factor of chance between single trainings. Return (ratio, low, high, margin)."""
    below, above = (math.hypot(math.log(end / ratio), math.log(margin)) for end in (low, high))
    return ratio, ratio * math.exp(-below), ratio * math.exp(above), margin


def estimate(
    compute_N: ArrayLike,
    error_N: ArrayLike,
    line_compute_M: ArrayLike,
    line_error_M: ArrayLike,
    *,
    test_images: ArrayLike = TEST_IMAGES,
    line_test_images: ArrayLike = TEST_IMAGES,
    draws: int = 2_000,
    seed: int = 0,
) -> np.ndarray:
    """Return the ratios that `ratios` computes, with intervals. For the intervals, all errors are simulated `draws`
    times as if measured on other test images.

    Args:
        compute_N, error_N: compute and error (percent) of the points, i.e. the networks of the first family.
        line_compute_M, line_error_M: compute and error (percent) of the networks of the second family, which the line
            joins.
        test_images, line_test_images: number of test images behind each error, of points and line.
        seed: seed of the simulation.

    Returns:
        (N + 1, 4): a row per point, and one for the geometric mean of the known ratios; columns: ratio, low, high,
        margin. The interval from low to high contains only chance in the test images, the margin (a factor) only chance
        between single trainings.
    """
    compute, error, costs, line = (
        np.asarray(x, dtype=float) for x in (compute_N, error_N, line_compute_M, line_error_M)
    )
    best = ratios(compute, error, costs, line, extend=False)
    rng = np.random.default_rng(seed)
    tests, line_tests = np.asarray(test_images, dtype=float), np.asarray(line_test_images, dtype=float)
    again = [
        ratios(compute, _drawn(error, tests, rng), costs, _drawn(line, line_tests, rng), extend=True)
        for _ in range(draws)
    ]
    logs = np.log([best, *again])
    known = np.isfinite(best)
    means = logs[:, known].mean(axis=1) if known.any() else np.full(len(logs), np.nan)
    all_of_them = np.exp(np.column_stack([logs, means]))
    low, high = np.quantile(all_of_them[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    shift = np.exp(UNREPLICATED * (1 - error / 100))  # factor on an error for that change of its log-odds
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
    """Return the compute of a line at each point's error, divided by the point's compute: ratio_N. It is NaN where the
    line does not reach the error.

    The line joins those of its networks that have the lowest error at their compute, by straight segments in log
    compute and log error.

    Args:
        compute_N, error_N: compute and error of the points.
        line_compute_M, line_error_M: compute and error of the line's networks.
        extend: whether the outermost segments continue beyond the ends of the line.
    """
    kept = pareto(list(line_compute_M), list(line_error_M))[::-1]
    if len(kept) < 2:
        return np.full(len(error_N), np.nan)
    x, y, at = np.log(line_error_M[kept]), np.log(line_compute_M[kept]), np.log(error_N)
    right = np.clip(np.searchsorted(x, at), 1, len(x) - 1)
    share = (at - x[right - 1]) / (x[right] - x[right - 1])
    continued = y[right - 1] + share * (y[right] - y[right - 1])
    made = np.exp(np.clip(continued, -MAX_LOG, MAX_LOG)) / compute_N
    return made if extend else np.where((share >= 0) & (share <= 1), made, np.nan)


def _drawn(error_N: np.ndarray, tests: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return simulated errors in percent, as if measured on other test images of the same kind. `tests` is the number
    of test images behind each error.

    Errors of two networks are simulated independently, although they were measured on the same images, so intervals are
    rather too wide than too narrow.
    """
    share = error_N / 100
    drawn = error_N + 100 * np.sqrt(share * (1 - share) / tests) * rng.standard_normal(len(error_N))
    return np.maximum(drawn, LEAST_ERROR)


@dataclass(frozen=True, kw_only=True)
class Gain(Item):
    """A network that the same authors pre-trained on ImageNet-1k and on ImageNet-21k: a line of
    `baselines/published/gains.csv`, with both accuracies.

    Attributes:
        network: name of the network, and whose recipe it was trained with.
        family: label of the network's family.
        differs: what differs besides the pre-training images; "" if nothing does.
        fewer: accuracy on ImageNet-1k, in [0, 1], after pre-training on the fewer images of ImageNet-1k.
        more: accuracy on ImageNet-1k, in [0, 1], after pre-training on ImageNet-21k.
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
        """Half-width of a 95 % interval of the gain, in [0, 1]. It is rather too wide than too narrow, because it is
        computed as if the two accuracies were measured on different test images."""
        return Z * math.hypot(*(math.sqrt(share * (1 - share) / TEST_IMAGES) for share in (self.fewer, self.more)))


@cache
def gains() -> tuple[Gain, ...]:
    """Return the networks that were published after pre-training on either set, those first whose recipes do not
    differ."""
    made = []
    for row in public_models.read("gains"):
        table = public_models.table(row["table"])
        at = table[table["image_size"] == int(row["image_size"])].set_index("model")["in1k_top1"] / 100
        sides = {side: float(at[row[side]]) for side in ("fewer", "more")}
        made.append(Gain(network=row["network"], family=row["family"], differs=row["differs"], **sides))
    return tuple(made)
