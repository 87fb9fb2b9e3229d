"""Intervals that state what they contain: training seeds, few-shot draws, test images.

Accuracies of one point form a table seeds × draws. Three sources of chance move its mean:

- training seeds: the spread of the seeds' means; Student's t with (seeds - 1) degrees of freedom. Two seeds alone give
  t = 12.7, so where several cells of a study were repeated their variances are pooled (more degrees of freedom), unless
  this cell's own variance contradicts the pooled one (F test, 0.1 %). A single run borrows the pooled variance when at
  least `BORROW_DF` repeats support it; otherwise its interval excludes training noise, and says so;
- few-shot draws: the spread of the draws' means; Student's t with (draws - 1);
- test images: the binomial error of a finite test set. Draws and seeds share the test images, so it does not shrink
  with their number.

Each source gets its own margin; margins add in quadrature. (Welch-Satterthwaite would shorten intervals whenever the
variance with one degree of freedom happens to come out small, and then cover too rarely.) Spread that both seeds and
draws share is counted twice. Both choices err on the wide side.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
from scipy import special  # not scipy.stats, which takes most of a second to import

from bench.core.formatting import plural

POINT_LEVEL = 0.95
BORROW_DF = 3
SEEDS, DRAWS, IMAGES = "training seeds", "few-shot draws", "test images"
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Accuracies (or differences of accuracies) of one point.

    Attributes:
        values_SD: one row per seed, one column per draw; no missing values.
        seeds: () where nothing was trained (raw pixels): there is no training noise to speak of.
        draws: () where the task draws nothing (upstream accuracy).
        image_error: standard error from the finite test set.
        num_test: images of the test set (the smallest, for an average).
        tasks: how many tasks were averaged.
        correct_SD: which test images were right (`bench.store.prediction_bits.Correct`) behind every value; None where
            the record does not say, or where values are no single scores.
    """

    values_SD: np.ndarray
    seeds: tuple[int, ...]
    draws: tuple[int, ...]
    image_error: float
    num_test: int
    tasks: int = 1
    correct_SD: np.ndarray | None = None

    @cached_property
    def mean(self) -> float:
        return float(np.add.reduce(self.values_SD, axis=None) / self.values_SD.size)

    @cached_property
    def seed_variance(self) -> float:
        """Variance of single seeds' means; NaN where there is one seed."""
        return _variance(np.add.reduce(self.values_SD, axis=1) / self.values_SD.shape[1])

    @cached_property
    def draw_variance(self) -> float:
        """Variance of single draws' means; NaN where there is one draw."""
        return _variance(np.add.reduce(self.values_SD, axis=0) / self.values_SD.shape[0])


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean with its interval.

    Attributes:
        value: in accuracy units (0..1), or a difference of them.
        margins: half-width that each source of chance contributes.
        excluded: sources that exist but that the data cannot show (one seed, one draw).
        pooled: the seeds' margin rests on the variance pooled over the study's repeated cells.
        num_seeds, num_draws, num_test: 0 where a source does not exist.
    """

    value: float
    margins: Mapping[str, float]
    excluded: tuple[str, ...]
    pooled: bool
    num_seeds: int
    num_draws: int
    num_test: int
    tasks: int = 1
    level: float = POINT_LEVEL

    @property
    def half(self) -> float:
        return math.sqrt(sum(margin**2 for margin in self.margins.values()))

    @property
    def low(self) -> float:
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half

    @property
    def runs(self) -> str:
        """Seeds and draws as they are printed: "2 seeds × 3 draws"; "" where there are neither."""
        return " × ".join(plural(n, noun) for n, noun in ((self.num_seeds, "seed"), (self.num_draws, "draw")) if n)

    @property
    def counts(self) -> str:
        """n as it is printed: "2 seeds × 3 draws, 2,000 test images"."""
        tests = f"{self.tasks} tasks of at least " if self.tasks > 1 else ""
        return ", ".join([*([self.runs] if self.runs else []), f"{tests}{self.num_test:,} test images"])


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Variance between seeds, pooled over the repeated cells of a study. `df` counts trunks, not their horizons."""

    variance: float
    df: int
    trunks: int


@lru_cache(maxsize=4096)
def t_quantile(df: int, level: float = POINT_LEVEL) -> float:
    """Two-sided quantile of Student's t."""
    return float(special.stdtrit(df, 0.5 + level / 2))


@lru_cache(maxsize=8)
def z_quantile(level: float = POINT_LEVEL) -> float:
    """Two-sided quantile of the normal distribution."""
    return float(special.ndtri(0.5 + level / 2))


@lru_cache(maxsize=4096)
def f_limit(df: int, pooled_df: int) -> float:
    """Ratio of variances that chance exceeds once in a thousand."""
    return float(special.fdtri(df, pooled_df, 0.999))


def _variance(x_N: np.ndarray) -> float:
    """Sample variance; numpy's own takes ten times as long for a handful of numbers, and studies have many handfuls."""
    if len(x_N) < 2:
        return math.nan
    centred_N = x_N - np.add.reduce(x_N) / len(x_N)
    return float(np.add.reduce(centred_N * centred_N) / (len(x_N) - 1))


def seed_variance(samples: Samples) -> tuple[float, int]:
    """Variance of single seeds' means, and its degrees of freedom (0 when there is one seed)."""
    if len(samples.seeds) < 2:
        return math.nan, 0
    return samples.seed_variance, len(samples.seeds) - 1


def pool(samples: Iterable[tuple[Hashable, Samples]]) -> Pool | None:
    """Pool variances between seeds over (trunk, samples) pairs. Horizons of one trunk are not independent: their
    variances are averaged and count once. None if nothing was repeated."""
    by_trunk: dict[Hashable, list[tuple[float, int]]] = {}
    for trunk, item in samples:
        variance, df = seed_variance(item)
        if df:
            by_trunk.setdefault(trunk, []).append((variance, df))
    if not by_trunk:
        return None
    variances = [sum(v for v, _ in found) / len(found) for found in by_trunk.values()]
    dfs = [max(df for _, df in found) for found in by_trunk.values()]
    total = sum(dfs)
    return Pool(
        variance=sum(v * df for v, df in zip(variances, dfs, strict=True)) / total, df=total, trunks=len(by_trunk)
    )


def estimate(samples: Samples, *, pooled: Pool | None = None, level: float = POINT_LEVEL) -> Estimate:
    """The mean of `samples` with its interval; see the module's text for what it contains."""
    margins: dict[str, float] = {}
    excluded: list[str] = []
    used_pool = False
    if samples.seeds:
        variance, df = _seed_variance_to_use(samples, pooled)
        used_pool = df > 0 and df != len(samples.seeds) - 1
        if df:
            margins[SEEDS] = t_quantile(df, level) * math.sqrt(variance / len(samples.seeds))
        else:
            excluded.append(SEEDS)
    if samples.draws:
        if len(samples.draws) > 1:
            spread = math.sqrt(samples.draw_variance)
            margins[DRAWS] = t_quantile(len(samples.draws) - 1, level) * spread / math.sqrt(len(samples.draws))
        else:
            excluded.append(DRAWS)
    margins[IMAGES] = z_quantile(level) * samples.image_error
    return Estimate(
        value=samples.mean,
        margins=margins,
        excluded=tuple(excluded),
        pooled=used_pool,
        num_seeds=len(samples.seeds),
        num_draws=len(samples.draws),
        num_test=samples.num_test,
        tasks=samples.tasks,
        level=level,
    )


def _seed_variance_to_use(samples: Samples, pooled: Pool | None) -> tuple[float, int]:
    own, df = seed_variance(samples)
    if pooled is None or pooled.df <= df:
        return own, df
    if df == 0:
        return (pooled.variance, pooled.df) if pooled.df >= BORROW_DF else (math.nan, 0)
    contradicted = own > pooled.variance * f_limit(df, pooled.df) > 0
    return (own, df) if contradicted else (pooled.variance, pooled.df)


def estimate_all(
    samples: Mapping[Key, Samples], *, trunk: Mapping[Key, Hashable], level: float = POINT_LEVEL
) -> dict[Key, Estimate]:
    """Estimates of like quantities (one measure over many points), pooling their variance between seeds."""
    pooled = pool((trunk[key], item) for key, item in samples.items())
    return {key: estimate(item, pooled=pooled, level=level) for key, item in samples.items()}


def average(parts: Sequence[Samples]) -> Samples | None:
    """The plain mean over tasks, seed by seed and draw by draw, so that seed noise shared by tasks is kept.

    None if the parts share no seed or no draw.
    """
    matched = _matched(parts)
    if matched is None:
        return None
    values, seeds, draws = matched
    return Samples(
        values_SD=np.mean(values, axis=0),
        seeds=seeds,
        draws=draws,
        num_test=min(p.num_test for p in parts),
        image_error=math.sqrt(sum(p.image_error**2 for p in parts)) / len(parts),
        tasks=len(parts),
    )


def difference(a: Samples, b: Samples) -> Samples | None:
    """a - b on the same seeds and draws. Side without seeds (raw pixels) is used for every seed.

    Both were scored on the same test images, but single answers are not always recorded: the error over test images is
    that of two independent sets, an upper bound for models that tend to err on the same images (`bench.stats.paired`
    has the error where they are). None if nothing matches.
    """
    matched = _matched((a, b))
    if matched is None:
        return None
    values, seeds, draws = matched
    error = math.hypot(a.image_error, b.image_error)
    return Samples(
        values_SD=values[0] - values[1],
        seeds=seeds,
        draws=draws,
        image_error=error,
        num_test=min(a.num_test, b.num_test),
        tasks=a.tasks,
    )


def mix(a: Samples, b: Samples, weight_b: float) -> Samples | None:
    """(1 - w) a + w b for two horizons of one trunk (interpolation). Their test errors are taken as fully shared."""
    matched = _matched((a, b))
    if matched is None:
        return None
    values, seeds, draws = matched
    return Samples(
        values_SD=(1 - weight_b) * values[0] + weight_b * values[1],
        seeds=seeds,
        draws=draws,
        image_error=(1 - weight_b) * a.image_error + weight_b * b.image_error,
        num_test=min(a.num_test, b.num_test),
        tasks=a.tasks,
    )


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of estimates of different models. Seeds are independent between models; draws and test images are
    shared, so their margins are averaged as if fully correlated."""
    number = len(estimates)
    margins: dict[str, float] = {}
    for source in (SEEDS, DRAWS, IMAGES):
        found = [e.margins.get(source, 0.0) for e in estimates]
        if any(source in e.margins for e in estimates):
            shared = sum(found) / number
            margins[source] = math.sqrt(sum(m**2 for m in found)) / number if source == SEEDS else shared
    excluded = tuple(s for s in (SEEDS, DRAWS) if any(s in e.excluded for e in estimates))
    return replace(
        estimates[0],
        value=sum(e.value for e in estimates) / number,
        margins=margins,
        excluded=excluded,
        pooled=any(e.pooled for e in estimates),
        num_seeds=min(e.num_seeds for e in estimates),
        num_draws=min(e.num_draws for e in estimates),
        num_test=min(e.num_test for e in estimates),
    )


def contents(estimates: Iterable[Estimate], *, trained_on: Iterable[tuple[str, int]] = ()) -> str:
    """One sentence on what the intervals contain and exclude, for captions.

    Args:
        trained_on: (data set, number of images) behind the estimates. Where sizes of a set are compared, every seed has
            trained on the same part of it: another part would have given other scores, by how much nobody measured.
    """
    found = list(estimates)
    if not found:
        return "No intervals."
    inside = [s for s in (SEEDS, DRAWS, IMAGES) if any(s in e.margins for e in found)]
    outside = [s for s in (SEEDS, DRAWS) if any(s in e.excluded for e in found)]
    text = f"{found[0].level:.0%} intervals contain the spread over {', '.join(inside)}"
    if any(e.pooled for e in found):
        text += " (training seeds: variance pooled over the repeated cells)"
    for source in outside:
        everywhere = all(source in e.excluded for e in found if e.num_seeds or source != SEEDS)
        what = "training noise (one seed)" if source == SEEDS else "the choice of the task's training images (one draw)"
        text += f"; they exclude {what}" + ("" if everywhere else " where there was no repeat")
    sizes = set(trained_on)
    if len(sizes) > len({data for data, _ in sizes}):
        text += "; they exclude the choice of the pre-training images (one part of each size, the same for every seed)"
    return text + "."


def _matched(parts: Sequence[Samples]) -> tuple[list[np.ndarray], tuple[int, ...], tuple[int, ...]] | None:
    """Values of all parts on their common seeds and draws. Parts without seeds or draws are repeated to fit."""
    seeds = common_labels([p.seeds for p in parts])
    draws = common_labels([p.draws for p in parts])
    if seeds is None or draws is None:
        return None
    if all(part.seeds == seeds and part.draws == draws for part in parts):  # the usual case, and there are many
        return [part.values_SD for part in parts], seeds, draws
    rows, columns = max(1, len(seeds)), max(1, len(draws))
    values = []
    for part in parts:
        row_indices = [part.seeds.index(s) for s in seeds] if part.seeds else [0] * rows
        column_indices = [part.draws.index(d) for d in draws] if part.draws else [0] * columns
        values.append(part.values_SD[np.ix_(row_indices, column_indices)])
    return values, seeds, draws


def common_labels(lists: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Labels in every non-empty list, in order; () if all are empty; None if they share nothing."""
    named = [labels for labels in lists if labels]
    if not named:
        return ()
    shared = tuple(label for label in named[0] if all(label in other for other in named[1:]))
    return shared or None
