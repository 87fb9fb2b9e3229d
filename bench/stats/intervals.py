"""Intervals that state what they contain: training seeds, few-shot draws, test images.

A few-shot draw is one random choice of a few-shot task's training images. The accuracies of one point form a table
seeds × draws. Three sources of chance move its mean:

- training seeds: the variance of the seeds' means is moderated by that of the study's other models
  (`bench.stats.moderated`); the margin is Student's t with the moderated variance's degrees of freedom. A single run
  takes its variance from its model's other runs, or from the study's other models, if at least `BORROW_DF` repeats
  support it; otherwise its interval excludes training noise, and says so;
- few-shot draws: the spread of the draws' means, with Student's t (draws - 1);
- test images: the binomial error of a finite test set; where images belong together, the error over their groups, with
  Student's t (groups - 1). Draws and seeds share the test images, so this margin does not shrink with their number.

Each source has its own margin, and margins are added in quadrature. (Welch-Satterthwaite over sources would shorten
intervals whenever a variance with one degree of freedom happens to be small; they would then hold the truth too
rarely.) Spread that seeds and draws share is counted twice. Both choices make intervals wider rather than narrower.

Margins are in units of accuracy. The interval of an accuracy p is symmetric in log-odds, where its half-width is the
margin over p (1 - p) (delta method): it stays inside [0, 1], and is wider towards 50 %. The interval of a difference is
symmetric, and cut at the limits of a difference of two accuracies, [-1, 1], which costs no coverage.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from typing import TypeVar

import numpy as np
from scipy import special  # not scipy.stats, which takes most of a second to import

from bench.core.by_key import by_key
from bench.core.formatting import plural
from bench.stats.moderated import Moderated, Repeated, inverse_gamma, moderate

POINT_LEVEL = 0.95
BORROW_DF = 3  # degrees of freedom that other runs need in all, so that a single run takes its variance from them
PLACES, SHARES = np.polynomial.hermite_e.hermegauss(16)
"""Gauss-Hermite nodes and weights for the sum of two uncertain variances: the normal quantiles at which each is
evaluated. Sums of six variances with 2.5 degrees of freedom each have Student's quantiles to 1 %."""
SEEDS, DRAWS, IMAGES = "training seeds", "few-shot draws", "test images"
IN_WORDS = {DRAWS: "few-shot samples"}  # the usual name of a source of chance, where its key is not that
LEFT_OUT = {
    SEEDS: "training noise (one seed)",
    DRAWS: "the choice of the task's training images (one few-shot sample)",
    IMAGES: "the choice of the test images (its error was not recorded)",
}
Key = TypeVar("Key", bound=Hashable)
Bounds = tuple[float, float]
SHARE: Bounds = (0.0, 1.0)
CHANGE: Bounds = (-1.0, 1.0)
UNBOUNDED: Bounds = (-math.inf, math.inf)
"""Ranges of values: of accuracies (SHARE), differences of accuracies (CHANGE), and other metrics (UNBOUNDED)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Accuracies (or differences of accuracies) of one point: one model, budget and task.

    Attributes:
        values_SD: one row per seed, one column per few-shot draw; no missing values.
        seeds: labels of the rows; () where nothing was trained (raw pixels), so that there is no training noise.
        draws: labels of the columns; () where the task has no few-shot draws (upstream accuracy).
        image_error: standard error of the mean from the finite test set; NaN where it is unknown.
        image_df: degrees of freedom of `image_error`. They are infinite, unless test images come in groups that belong
            together (such as photos of one patient) and the groups are few.
        num_test: images of the test set (of the smallest one, for an average over tasks).
        tasks: how many tasks were averaged.
        correct_SD: for every value, which test images were right (`bench.store.prediction_bits.Correct`); None where
            the record does not say, or where values are not single scores.
        resampled_SD: for a metric that is not a mean over images, its values in resamples of the test set
            (`bench.store.resampled`); None for accuracies, or where the record has none.
        model: identifies what was trained. All runs of a model are taken to have one variance between seeds, up to
            trends that all models share.
        trunk: identifies the training run, apart from its seed. Points of one trunk at other budgets share some of its
            random deviation.
        images_seen: images seen in training; 0 where nothing was trained, or where the number does not matter.
        bounds: range of possible values (`SHARE`, `CHANGE`, `UNBOUNDED`).
        around: for a difference, the mean accuracy of its two sides; otherwise None.
    """

    values_SD: np.ndarray
    seeds: tuple[int, ...]
    draws: tuple[int, ...]
    image_error: float
    num_test: int
    tasks: int = 1
    correct_SD: np.ndarray | None = None
    resampled_SD: np.ndarray | None = None
    model: Hashable = ""
    trunk: Hashable = ""
    images_seen: int = 0
    bounds: Bounds = SHARE
    around: float | None = None
    image_df: float = math.inf

    @cached_property
    def mean(self) -> float:
        return float(np.add.reduce(self.values_SD, axis=None) / self.values_SD.size)

    @cached_property
    def seed_variance(self) -> float:
        """Variance between seeds of a seed's mean over draws; NaN where there is one seed."""
        return _variance(np.add.reduce(self.values_SD, axis=1) / self.values_SD.shape[1])

    @cached_property
    def draw_variance(self) -> float:
        """Variance between few-shot draws of a draw's mean over seeds; NaN where there is one draw."""
        return _variance(np.add.reduce(self.values_SD, axis=0) / self.values_SD.shape[0])

    @cached_property
    def inside(self) -> float:
        """The accuracy around which the values lie, kept strictly between 0 and 1; NaN if the metric is no accuracy."""
        if self.bounds == UNBOUNDED:
            return math.nan
        return inside(self.mean if self.around is None else self.around, self.num_test)

    @cached_property
    def log_odds(self) -> float:
        """Log-odds of the accuracy `inside`; 0 if the metric is no accuracy."""
        return 0.0 if self.bounds == UNBOUNDED else float(special.logit(self.inside))

    @property
    def log_images(self) -> float:
        return math.log(max(1, self.images_seen))

    @cached_property
    def per_log_odds(self) -> float:
        """The change of accuracy p per unit of log-odds, p (1 - p); 1 if the metric is no accuracy. Division by its
        square turns a variance of accuracies into one of log-odds, which is comparable between models."""
        return 1.0 if self.bounds == UNBOUNDED else self.inside * (1 - self.inside)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean with its interval.

    Attributes:
        value: an accuracy (0 to 1), or a difference of accuracies.
        margins: for each source of chance (`SEEDS`, `DRAWS`, `IMAGES`), the half-width that it contributes.
        excluded: sources of chance that exist but cannot be estimated from the data (one seed, one draw).
        moderated: whether the margin of seeds rests on the variances of the study's other models as well.
        num_seeds, num_draws, num_test: numbers of seeds, few-shot draws and test images; 0 where there are none.
        tasks: how many tasks were averaged.
        level: confidence level of the interval.
        seed_df: degrees of freedom of the margin of seeds; 0 without one.
        image_df: degrees of freedom of the margin of test images, as in `Samples`.
        bounds: range of possible values, as in `Samples`.
    """

    value: float
    margins: Mapping[str, float]
    excluded: tuple[str, ...]
    moderated: bool
    num_seeds: int
    num_draws: int
    num_test: int
    tasks: int = 1
    level: float = POINT_LEVEL
    seed_df: float = 0.0
    bounds: Bounds = SHARE
    image_df: float = math.inf

    @property
    def half(self) -> float:
        """Half-width of the interval: all margins in quadrature. Near a bound of the value, `low` and `high` are not
        this far away."""
        return math.sqrt(sum(margin**2 for margin in self.margins.values()))

    @property
    def low(self) -> float:
        return self._end(-1)

    @property
    def high(self) -> float:
        return self._end(1)

    def _end(self, side: int) -> float:
        if not self.half:
            return self.value
        if self.bounds != SHARE:
            return min(max(self.value + side * self.half, self.bounds[0]), self.bounds[1])
        if not 0 <= self.value <= 1:  # the correction for selection can move an accuracy outside [0, 1]
            return min(max(self.value, 0.0), 1.0)
        middle = inside(self.value, self.num_test)
        end = float(special.expit(special.logit(middle) + side * self.half / (middle * (1 - middle))))
        return max(end, self.value) if side > 0 else min(end, self.value)

    @property
    def runs(self) -> str:
        """Numbers of seeds and draws as printed: "2 seeds × 3 few-shot samples"; "" if there are no seeds or draws."""
        return " × ".join(
            plural(n, noun) for n, noun in ((self.num_seeds, "seed"), (self.num_draws, "few-shot sample")) if n
        )

    @property
    def counts(self) -> str:
        """All sample sizes as printed: "2 seeds × 3 few-shot samples, 2,000 test images"."""
        tests = f"{self.tasks} tasks of at least " if self.tasks > 1 else ""
        return ", ".join([*([self.runs] if self.runs else []), f"{tests}{self.num_test:,} test images"])


def inside(accuracy: float, num_test: int) -> float:
    """Return the accuracy, moved strictly between 0 and 1: to a distance of at least half a test image from either end
    (0.5 / num_test), or of a millionth if the number of test images is unknown (0)."""
    least = 0.5 / num_test if num_test > 0 else 1e-6
    return min(max(accuracy, least), 1 - least)


@lru_cache(maxsize=4096)
def t_quantile(df: float, level: float = POINT_LEVEL) -> float:
    """Return the two-sided quantile of Student's t with `df` degrees of freedom: the half-width, in standard errors, of
    an interval at a confidence `level`."""
    return float(special.stdtrit(df, 0.5 + level / 2))


@lru_cache(maxsize=8)
def z_quantile(level: float = POINT_LEVEL) -> float:
    """Return the two-sided quantile of the normal distribution at a confidence `level`: 1.96 at 0.95."""
    return float(special.ndtri(0.5 + level / 2))


def _variance(x_N: np.ndarray) -> float:
    """Return the sample variance; NaN for fewer than two values. (numpy's own takes ten times as long for a handful of
    numbers, and studies have many of those.)"""
    if len(x_N) < 2:
        return math.nan
    centred_N = x_N - np.add.reduce(x_N) / len(x_N)
    return float(np.add.reduce(centred_N * centred_N) / (len(x_N) - 1))


def seed_variance(samples: Samples) -> tuple[float, int]:
    """Return (the variance between seeds of a seed's mean, its degrees of freedom); (NaN, 0) for fewer than two
    seeds."""
    if len(samples.seeds) < 2:
        return math.nan, 0
    return samples.seed_variance, len(samples.seeds) - 1


def pool(samples: Iterable[Samples]) -> Moderated | None:
    """Return the moderated variances between seeds of a study's models, from all its points; None if fewer than two
    points have several seeds. (Moderated: each variance is shrunk towards the others, `bench.stats.moderated`.)"""
    repeats = []
    for item in samples:
        variance, df = seed_variance(item)
        if df:
            repeats.append(
                Repeated(
                    model=item.model,
                    trunk=item.trunk,
                    log_odds=item.log_odds,
                    log_images=item.log_images,
                    variance=variance / item.per_log_odds**2,
                    df=df,
                )
            )
    return moderate(repeats) if len(repeats) > 1 else None


def moderated_variance(samples: Samples, pooled: Moderated | None) -> tuple[float, float]:
    """Return (the variance between seeds of a seed's mean, its degrees of freedom); (NaN, 0) where it is unknown. The
    variance is moderated: shrunk towards those of the study's other models, `pooled`. With None, it is the samples'
    own."""
    own, df = seed_variance(samples)
    if pooled is None or (df == 0 and pooled.df < BORROW_DF):
        return own, df
    variance, df_moderated = pooled.of(samples.model, samples.log_odds, samples.log_images)
    return variance * samples.per_log_odds**2, df_moderated


def seed_error(samples: Samples, pooled: Moderated | None) -> tuple[float, float]:
    """Return (the standard error of the mean over training seeds, its degrees of freedom); (NaN, 0) if unknown.
    `pooled`: variances of the study's models (`pool`); None: the samples' own variance is used."""
    variance, df = moderated_variance(samples, pooled)
    return math.sqrt(variance / max(1, len(samples.seeds))), df


def sum_of_errors(
    errors: Sequence[tuple[float, float]], models: Sequence[Hashable] | None = None
) -> tuple[float, float]:
    """Return (the standard error of a sum of independent values, its degrees of freedom), from (standard error, degrees
    of freedom) of each value.

    This is the Behrens-Fisher problem. A moderated variance has an inverse gamma posterior, and the variance of a sum
    is a sum of such variables. As in `Moderated`, it is summarised by the inverse gamma distribution whose logarithm
    has the same mean and variance. (Satterthwaite's formula is for sample variances, whose mean is what they estimate.
    The mean of s² df / chi²(df) is s² df / (df - 2), and sums of several with s² alone hold the truth too rarely.)

    Args:
        models: for each error, the model whose variance it rests on. Errors of one model share one uncertain variance,
            so their degrees of freedom do not add up. None: all errors are of different models.
    """
    names: Sequence[Hashable] = range(len(errors)) if models is None else models
    by_model = by_key((name, known) for name, known in zip(names, errors, strict=True) if known[0] > 0)
    if not by_model:
        return 0.0, min(df for _, df in errors)
    return reduce(_sum_of_two, map(_of_one_model, by_model.values()))


def _of_one_model(errors: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return math.hypot(*(error for error, _ in errors)), min(df for _, df in errors)


def _sum_of_two(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    possible = [error**2 * df / special.chdtri(df, special.ndtr(PLACES)) for error, df in (a, b)]
    log_sum = np.log(np.add.outer(*possible))
    weight = np.outer(SHARES, SHARES) / SHARES.sum() ** 2
    mean = float((weight * log_sum).sum())
    variance, df = inverse_gamma(mean, float((weight * (log_sum - mean) ** 2).sum()))
    return math.sqrt(variance), df


def estimate(samples: Samples, *, pooled: Moderated | None = None, level: float = POINT_LEVEL) -> Estimate:
    """Return the mean of `samples` with its interval at a confidence `level`; the module's docstring says what the
    interval contains. `pooled`: variances between seeds of the study's models (`pool`); None: only that of `samples`
    is used."""
    return _estimate(samples, seed_error(samples, pooled), moderated=pooled is not None, level=level)


def estimate_difference(
    a: Samples, b: Samples, *, pooled: Moderated | None = None, level: float = POINT_LEVEL
) -> Estimate | None:
    """Return the difference a - b, with its interval, of two models that were trained independently: their variances
    between seeds are added. A side without seeds (raw pixels) has no such variance. None if the two share no seeds or
    no draws.

    Args:
        pooled: variances between seeds of the study's models (`pool`); None: the spread of the differences is used.
        level: confidence level of the interval.
    """
    both = difference(a, b)
    if both is None:
        return None
    if pooled is None:
        return estimate(both, level=level)
    seeds = max(1, len(both.seeds))
    sides = [moderated_variance(side, pooled) for side in (a, b) if side.seeds]
    known = [(math.sqrt(variance / seeds), df) for variance, df in sides]
    models = [side.model for side in (a, b) if side.seeds]
    error = sum_of_errors(known, models) if known and all(df for _, df in known) else (math.nan, 0.0)
    return _estimate(both, error, moderated=True, level=level)


def _estimate(samples: Samples, seed_error: tuple[float, float], *, moderated: bool, level: float) -> Estimate:
    margins: dict[str, float] = {}
    excluded: list[str] = []
    error, seed_df = seed_error if samples.seeds else (math.nan, 0.0)
    if seed_df:
        margins[SEEDS] = t_quantile(seed_df, level) * error
    elif samples.seeds:
        excluded.append(SEEDS)
    if samples.draws:
        if len(samples.draws) > 1:
            spread = math.sqrt(samples.draw_variance)
            margins[DRAWS] = t_quantile(len(samples.draws) - 1, level) * spread / math.sqrt(len(samples.draws))
        else:
            excluded.append(DRAWS)
    if math.isnan(samples.image_error):
        excluded.append(IMAGES)
    else:
        few = not math.isinf(samples.image_df)
        margins[IMAGES] = (t_quantile(samples.image_df, level) if few else z_quantile(level)) * samples.image_error
    return Estimate(
        value=samples.mean,
        margins=margins,
        excluded=tuple(excluded),
        moderated=moderated and seed_df > 0,
        num_seeds=len(samples.seeds),
        num_draws=len(samples.draws),
        num_test=samples.num_test,
        tasks=samples.tasks,
        level=level,
        seed_df=seed_df,
        bounds=samples.bounds,
        image_df=samples.image_df,
    )


def estimate_all(samples: Mapping[Key, Samples], *, level: float = POINT_LEVEL) -> dict[Key, Estimate]:
    """Return the estimate (mean with interval) of every point of one measure, such as accuracy on one task. The points'
    variances between seeds are shrunk towards each other (`bench.stats.moderated`)."""
    pooled = pool(samples.values())
    return {key: estimate(item, pooled=pooled, level=level) for key, item in samples.items()}


def average(parts: Sequence[Samples]) -> Samples | None:
    """Return the unweighted mean of one model's samples on several tasks (`parts`). It is taken seed by seed and draw
    by draw, so that seed noise that tasks share is kept. None if the parts share no seed or no draw."""
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
        model=parts[0].model,
        trunk=parts[0].trunk,
        images_seen=parts[0].images_seen,
        bounds=parts[0].bounds,
    )


def difference(a: Samples, b: Samples) -> Samples | None:
    """Return the values of a minus those of b, on the seeds and draws that both have; None if there are none. A side
    without seeds (raw pixels) is used for every seed.

    Both sides were scored on the same test images, but the answers to single images are not always recorded. The error
    over test images is therefore that of two independent test sets, an upper bound for models that tend to err on the
    same images (`bench.stats.paired` gives the smaller error where the answers are recorded).
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
        model=a.model if a.seeds else b.model,
        trunk=(a.trunk, b.trunk),
        images_seen=max(a.images_seen, b.images_seen),
        bounds=CHANGE if a.bounds == SHARE else UNBOUNDED,
        around=(a.mean + b.mean) / 2 if a.bounds == SHARE else None,
        image_df=min(a.image_df, b.image_df),
    )


def mix(a: Samples, b: Samples, weight_b: float) -> Samples | None:
    """Interpolate between two horizons (budgets) a and b of one training run: return (1 - w) a + w b with w =
    `weight_b`; None if a and b share no seed or no few-shot draw. Their errors over test images are taken as fully
    correlated."""
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
        model=a.model,
        trunk=a.trunk,
        images_seen=b.images_seen if weight_b > 0.5 else a.images_seen,
        bounds=a.bounds,
    )


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of estimates of different models, with its interval. Seeds are independent between models; draws
    and test images are shared, so their margins are averaged as if fully correlated."""
    number, level = len(estimates), estimates[0].level
    margins: dict[str, float] = {}
    repeated = [(e.margins[SEEDS] / t_quantile(e.seed_df, level), e.seed_df) for e in estimates if e.seed_df]
    seed_df = 0.0
    if repeated:
        error, seed_df = sum_of_errors(repeated)
        margins[SEEDS] = t_quantile(seed_df, level) * error / number
    for source in (DRAWS, IMAGES):
        if any(source in e.margins for e in estimates):
            margins[source] = sum(e.margins.get(source, 0.0) for e in estimates) / number
    excluded = tuple(s for s in (SEEDS, DRAWS, IMAGES) if any(s in e.excluded for e in estimates))
    return replace(
        estimates[0],
        value=sum(e.value for e in estimates) / number,
        margins=margins,
        excluded=excluded,
        moderated=any(e.moderated for e in estimates),
        num_seeds=min(e.num_seeds for e in estimates),
        num_draws=min(e.num_draws for e in estimates),
        num_test=min(e.num_test for e in estimates),
        seed_df=seed_df,
    )


def contents(estimates: Iterable[Estimate], *, trained_on: Iterable[tuple[str, int]] = ()) -> str:
    """Return one sentence for captions: which sources of chance the intervals contain, and which they exclude.

    Args:
        trained_on: (data set, number of images) of the trainings behind the estimates. If several sizes of one data set
            are compared, the sentence adds that the choice of images is excluded: all seeds train on the same subset of
            a size, so the effect of its choice is not measured.
    """
    every = list(estimates)
    if not every:
        return "No intervals."
    inside = [s for s in (SEEDS, DRAWS, IMAGES) if any(s in e.margins for e in every)]
    outside = [s for s in LEFT_OUT if any(s in e.excluded for e in every)]
    said = (IN_WORDS.get(source, source) for source in inside)
    text = f"{every[0].level:.0%} intervals contain the spread over {', '.join(said)}"
    if any(e.moderated for e in every):
        text += " (few seeds a model: their variance is pooled across models)"
    for source in outside:
        everywhere = all(source in e.excluded for e in every if e.num_seeds or source != SEEDS)
        text += f"; they exclude {LEFT_OUT[source]}" + ("" if everywhere else " where there was no repeat")
    sizes = set(trained_on)
    if len(sizes) > len({data for data, _ in sizes}):
        text += "; they exclude the choice of the pre-training images (one part of each size, the same for every seed)"
    return text + "."


def _matched(parts: Sequence[Samples]) -> tuple[list[np.ndarray], tuple[int, ...], tuple[int, ...]] | None:
    """Return (values of each part, seeds, draws) on the seeds and draws that all parts have; None if there are none. A
    part without seeds (draws) is repeated for every seed (draw)."""
    seeds = common_labels([p.seeds for p in parts])
    draws = common_labels([p.draws for p in parts])
    if seeds is None or draws is None:
        return None
    if all(part.seeds == seeds and part.draws == draws for part in parts):  # fast path for the usual case
        return [part.values_SD for part in parts], seeds, draws
    rows, columns = max(1, len(seeds)), max(1, len(draws))
    values = []
    for part in parts:
        row_indices = [part.seeds.index(s) for s in seeds] if part.seeds else [0] * rows
        column_indices = [part.draws.index(d) for d in draws] if part.draws else [0] * columns
        values.append(part.values_SD[np.ix_(row_indices, column_indices)])
    return values, seeds, draws


def common_labels(lists: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the labels that are in every non-empty list, in order; () if all lists are empty; None if they share no
    label."""
    named = [labels for labels in lists if labels]
    if not named:
        return ()
    shared = tuple(label for label in named[0] if all(label in other for other in named[1:]))
    return shared or None
