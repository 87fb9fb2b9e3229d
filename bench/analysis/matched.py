"""Published families of networks compared at equal error: how much more training compute one needs than another.

A comparison is controlled where both families were trained by the same authors with the same schedule on the same set.
Only such comparisons say something about the networks. The others say what recipes of their time cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bench.cost import public_models
from bench.stats.crossing import pareto

TEST_IMAGES = 50_000
"""Of ImageNet's validation set, on which every error was measured."""
LEVEL = 0.95
DRAWS = 2_000


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two families of one published table.

    Attributes:
        name: of the comparison.
        table: of `bench.cost.public_models`.
        cost: its column of training exaFLOPs.
        first: label of the family whose networks are the points.
        first_pattern: regular expression that names of these networks match.
        second: label of the family whose best networks are the line.
        second_pattern: regular expression that names of these networks match.
        image_size: pixels per side of test images, for both; None: as each was published.
        controlled: whether nothing but the networks differs.
        differs: what else differs, if not.
    """

    name: str
    table: str
    cost: str
    first: str
    first_pattern: str
    second: str
    second_pattern: str
    image_size: int | None = None
    controlled: bool = True
    differs: str = ""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """What the second family needs to be as good as one network of the first.

    Attributes:
        model: the network. error: its error on ImageNet-1k, in percent. compute: of its training, in exaFLOPs.
        ratio: compute of the second family at that error over compute; None where no two of its networks have the error
            between them.
        low, high: an interval that contains chance in the test images, and not that in training.
    """

    model: str
    error: float
    compute: float
    ratio: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Matched:
    """A comparison and its answers.

    Attributes:
        ratios: one per network of the first family, by compute.
        mean, low, high: geometric mean of those that are known, with its interval; None where none is.
    """

    comparison: Comparison
    ratios: tuple[Ratio, ...]
    mean: float | None
    low: float | None
    high: float | None


TABLE_6 = {"table": "paper", "cost": "train_exaflops_paper"}
AUGREG = {"table": "checkpoints", "cost": "train_exaflops", "first": "hybrid", "second": "ViT"}
AUGREG |= {"first_pattern": r"vit_[a-z]+_r\d*_s\d+\w+\.augreg_in21k_ft_in1k"}
AUGREG |= {"second_pattern": r"vit_[a-z]+_patch\d+_\d+\.augreg_in21k_ft_in1k"}
IN21K = {"table": "checkpoints", "cost": "train_exaflops"}
DEIT_3 = {"second": "ViT (DeiT III)", "second_pattern": r"deit3_\w+\.fb_in22k_ft_in1k"}
SCHEDULES = "240 epochs and 50 of fine-tuning for ViTs, 90 and 30 for ConvNeXt; authors, augmentation"
COMPARISONS = (
    Comparison(
        name="BiT and ViT, JFT-300M (Table 6)",
        first="ViT",
        first_pattern=r"ViT\S+ \d+ epochs",
        second="ResNet (BiT)",
        second_pattern=r"ResNet\S+ \d+ epochs",
        **TABLE_6,
    ),
    Comparison(
        name="ViT and hybrid, JFT-300M (Table 6)",
        first="hybrid",
        first_pattern=r"R50x1\+ViT\S+ \d+ epochs",
        second="ViT",
        second_pattern=r"ViT\S+ \d+ epochs",
        **TABLE_6,
    ),
    Comparison(name="ViT and hybrid, ImageNet-21k (AugReg), 224 px", image_size=224, **AUGREG),
    Comparison(name="ViT and hybrid, ImageNet-21k (AugReg), 384 px", image_size=384, **AUGREG),
    Comparison(
        name="BiT and ViT, ImageNet-21k, 90 epochs",
        first="ViT",
        first_pattern=r"vit_[a-z]+_patch\d+_384\.orig_in21k_ft_in1k",
        second="ResNet (BiT)",
        second_pattern=r"resnetv2_\w+_bit\.goog_in21k_ft_in1k",
        **IN21K,
    ),
    Comparison(
        name="ViT (DeiT III) and ConvNeXt, ImageNet-22k",
        first="ConvNeXt",
        first_pattern=r"convnext_(small|base|large|xlarge)\.fb_in22k_ft_in1k(_384)?",
        controlled=False,
        differs=SCHEDULES,
        **DEIT_3,
        **IN21K,
    ),
)
"""The claims of the ViT paper that public numbers can test, and one comparison with later networks."""


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Ratios and intervals as arrays.

    Attributes:
        ratio_N: NaN where the line does not reach the point's error.
        low_N, high_N: intervals of these.
        mean_3: geometric mean of those that are known, low, high.
    """

    ratio_N: np.ndarray
    low_N: np.ndarray
    high_N: np.ndarray
    mean_3: np.ndarray


def matched(comparison: Comparison) -> Matched:
    """A comparison's ratios of compute at equal error."""
    table = public_models.table(comparison.table)
    if comparison.table == "paper":
        table = table[table["table"] == "table6"]
    if comparison.image_size is not None:
        table = table[table["image_size"] == comparison.image_size]
    first = _family(table, comparison.first_pattern, comparison.cost)
    second = _family(table, comparison.second_pattern, comparison.cost)
    points, line = (100 - side["in1k_top1"].to_numpy() for side in (first, second))
    compute, costs = (side[comparison.cost].to_numpy() for side in (first, second))
    made = estimate(compute, points, costs, line)
    columns = zip(first["model"], points, compute, made.ratio_N, made.low_N, made.high_N, strict=True)
    found = tuple(
        Ratio(model=model, error=float(error), compute=float(cost), ratio=ratio, low=low, high=high)
        for model, error, cost, *numbers in columns
        for ratio, low, high in [numbers if np.isfinite(numbers[0]) else (None, None, None)]
    )
    mean, low, high = (float(value) if np.isfinite(value) else None for value in made.mean_3)
    return Matched(comparison=comparison, ratios=found, mean=mean, low=low, high=high)


def estimate(
    compute_N: np.ndarray,
    error_N: np.ndarray,
    line_compute_M: np.ndarray,
    line_error_M: np.ndarray,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Estimates:
    """Ratios as `ratios` has them, with intervals from drawing all errors again on other test images."""
    best = ratios(compute_N, error_N, line_compute_M, line_error_M, extend=False)
    rng = np.random.default_rng(seed)
    drawn = [
        ratios(compute_N, _drawn(error_N, rng), line_compute_M, _drawn(line_error_M, rng), extend=True)
        for _ in range(draws)
    ]
    known = np.isfinite(best)
    edges = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.quantile(drawn, edges, axis=0)
    if not known.any():
        return Estimates(ratio_N=best, low_N=low, high_N=high, mean_3=np.full(3, np.nan))
    means = np.exp(np.log(np.array(drawn)[:, known]).mean(axis=1))
    mean = np.exp(np.log(best[known]).mean())
    return Estimates(ratio_N=best, low_N=low, high_N=high, mean_3=np.array([mean, *np.quantile(means, edges)]))


def ratios(
    compute_N: np.ndarray,
    error_N: np.ndarray,
    line_compute_M: Sequence[float] | np.ndarray,
    line_error_M: Sequence[float] | np.ndarray,
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
    costs, errors = np.asarray(line_compute_M, dtype=float), np.asarray(line_error_M, dtype=float)
    kept = pareto(list(costs), list(errors))
    x, y = np.log(errors[kept]), np.log(costs[kept])
    order = np.argsort(x)
    x, y = x[order], y[order]
    at = np.log(np.asarray(error_N, dtype=float))
    if len(x) < 2:
        return np.full(len(at), np.nan)
    right = np.clip(np.searchsorted(x, at), 1, len(x) - 1)
    share = (at - x[right - 1]) / (x[right] - x[right - 1])
    log_cost = y[right - 1] + share * (y[right] - y[right - 1])
    made = np.exp(log_cost) / np.asarray(compute_N, dtype=float)
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
