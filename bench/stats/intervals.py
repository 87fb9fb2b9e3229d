"""Intervals that state what they contain: training seeds, few-shot draws, test images.

Accuracies of one point form a table seeds × draws. Three sources of chance move its mean:

- training seeds: the spread of the seeds' means, its variance moderated by that of the study's other models
  (`bench.stats.moderated`); Student's t with that variance's degrees of freedom. A single run takes what its model's
  other runs, or the study's other models, say of its variance when at least `BORROW_DF` repeats support it; otherwise
  its interval excludes training noise, and says so;
- few-shot draws: the spread of the draws' means; Student's t with (draws - 1);
- test images: the binomial error of a finite test set; where images belong together, that over their groups, with
  Student's t (groups - 1). Draws and seeds share the test images, so it does not
  shrink with their number.

Each source gets its own margin; margins add in quadrature. (Welch-Satterthwaite over sources would shorten intervals
whenever a variance with one degree of freedom happens to come out small, and then cover too rarely.) Spread that both
seeds and draws share is counted twice. Both choices err on the wide side.

Margins are in accuracy. The interval of an accuracy is symmetric in log-odds, where its half-width is the margin over
p (1 - p) (delta method): it stays inside [0, 1], and is wider towards 50 %. That of a difference is symmetric, and cut
at what two accuracies allow, [-1, 1], which takes no coverage from it.
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
BORROW_DF = 3
PLACES, SHARES = np.polynomial.hermite_e.hermegauss(16)
"""Gauss-Hermite nodes and weights: where variances are summed, normal quantiles at which each is taken. Sums of six
with 2.5 degrees of freedom each have Student's quantiles to 1 %."""
SEEDS, DRAWS, IMAGES = "training seeds", "few-shot draws", "test images"
IN_WORDS = {DRAWS: "few-shot samples"}  # of a source, where its key is not what people say
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
"""Ranges of values: accuracies, differences of accuracies, scores of another metric."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Accuracies (or differences of accuracies) of one point.

    Attributes:
        values_SD: one row per seed, one column per draw; no missing values.
        seeds: () where nothing was trained (raw pixels): there is no training noise to speak of.
        draws: () where the task draws nothing (upstream accuracy).
        image_error: standard error from the finite test set; NaN where nobody knows it.
        image_df: degrees of freedom of that: infinite, but for few groups of test images that belong together.
        num_test: images of the test set (the smallest, for an average).
        tasks: how many tasks were averaged.
        correct_SD: which test images were right (`bench.store.prediction_bits.Correct`) behind every value; None where
            record does not say, or where values are no single scores.
        resampled_SD: of a metric that is no mean over images, its values in resamples (`bench.store.resampled`).
        model: what was trained; its runs have one variance between seeds, but for a trend over accuracy.
        trunk: the training run, but for the seed. Other budgets of it share some of its luck.
        images_seen: in training; 0 where there was none, or where it does not matter.
        bounds: what a value can be (`SHARE`, `CHANGE`, `UNBOUNDED`).
        around: for a difference, the mean accuracy of its two sides.
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
        """Variance of single seeds' means; NaN where there is one seed."""
        return _variance(np.add.reduce(self.values_SD, axis=1) / self.values_SD.shape[1])

    @cached_property
    def draw_variance(self) -> float:
        """Variance of single draws' means; NaN where there is one draw."""
        return _variance(np.add.reduce(self.values_SD, axis=0) / self.values_SD.shape[0])

    @cached_property
    def inside(self) -> float:
        """The accuracy about which values lie, strictly between 0 and 1. NaN of another metric."""
        if self.bounds == UNBOUNDED:
            return math.nan
        return inside(self.mean if self.around is None else self.around, self.num_test)

    @cached_property
    def log_odds(self) -> float:
        """Log-odds of an accuracy; 0 for any other metric."""
        return 0.0 if self.bounds == UNBOUNDED else float(special.logit(self.inside))

    @property
    def log_images(self) -> float:
        return math.log(max(1, self.images_seen))

    @cached_property
    def per_log_odds(self) -> float:
        """Accuracy by which values move with their log-odds: variances in log-odds are comparable between models."""
        return 1.0 if self.bounds == UNBOUNDED else self.inside * (1 - self.inside)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean with its interval.

    Attributes:
        value: in accuracy units (0..1), or a difference of them.
        margins: half-width that each source of chance contributes.
        excluded: sources that exist but that the data cannot show (one seed, one draw).
        moderated: the seeds' margin rests on the variances of the study's other models as well.
        num_seeds, num_draws, num_test: 0 where a source does not exist.
        seed_df: degrees of freedom of the seeds' margin; 0 without one.
        image_df: of that of test images, as in `Samples`.
        bounds: what the value can be, as in `Samples`.
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
        """Half-width where the value is far from its bounds."""
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
        if not 0 <= self.value <= 1:  # corrected for selection
            return min(max(self.value, 0.0), 1.0)
        middle = inside(self.value, self.num_test)
        end = float(special.expit(special.logit(middle) + side * self.half / (middle * (1 - middle))))
        return max(end, self.value) if side > 0 else min(end, self.value)

    @property
    def runs(self) -> str:
        """Seeds and draws as they are printed: "2 seeds × 3 few-shot samples"; "" where there are neither."""
        return " × ".join(
            plural(n, noun) for n, noun in ((self.num_seeds, "seed"), (self.num_draws, "few-shot sample")) if n
        )

    @property
    def counts(self) -> str:
        """n as it is printed: "2 seeds × 3 few-shot samples, 2,000 test images"."""
        tests = f"{self.tasks} tasks of at least " if self.tasks > 1 else ""
        return ", ".join([*([self.runs] if self.runs else []), f"{tests}{self.num_test:,} test images"])


def inside(accuracy: float, num_test: int) -> float:
    """An accuracy strictly between 0 and 1: at least half a test image from either, or a millionth where their number
    is unknown."""
    least = 0.5 / num_test if num_test > 0 else 1e-6
    return min(max(accuracy, least), 1 - least)


@lru_cache(maxsize=4096)
def t_quantile(df: float, level: float = POINT_LEVEL) -> float:
    """Two-sided quantile of Student's t."""
    return float(special.stdtrit(df, 0.5 + level / 2))


@lru_cache(maxsize=8)
def z_quantile(level: float = POINT_LEVEL) -> float:
    """Two-sided quantile of the normal distribution."""
    return float(special.ndtri(0.5 + level / 2))


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


def pool(samples: Iterable[Samples]) -> Moderated | None:
    """The variances between seeds of a study's points, moderated; None if nothing was repeated."""
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
    """Variance of single seeds' means and its degrees of freedom: (NaN, 0) where nothing says how large it is. Without
    `pooled`, the samples' own."""
    own, df = seed_variance(samples)
    if pooled is None or (df == 0 and pooled.df < BORROW_DF):
        return own, df
    variance, df_moderated = pooled.of(samples.model, samples.log_odds, samples.log_images)
    return variance * samples.per_log_odds**2, df_moderated


def seed_error(samples: Samples, pooled: Moderated | None) -> tuple[float, float]:
    """Standard error of the mean over training seeds, and its degrees of freedom; (NaN, 0) where it is unknown."""
    variance, df = moderated_variance(samples, pooled)
    return math.sqrt(variance / max(1, len(samples.seeds))), df


def sum_of_errors(
    errors: Sequence[tuple[float, float]], models: Sequence[Hashable] | None = None
) -> tuple[float, float]:
    """Standard error of a sum of independent values, and its degrees of freedom, from (standard error, degrees of
    freedom) of each.

    The problem of Behrens and Fisher. A moderated variance is an inverse gamma distribution, what is known after the
    data, and the variance of a sum is a sum of such variables. It is described as `Moderated` describes a variance: by
    the inverse gamma distribution whose log has the same mean and variance. (Satterthwaite's formula is for sample
    variances, whose mean is what they estimate. The mean of s² df / chi²(df) is s² df / (df - 2), and sums of several
    with s² alone hold the truth too rarely.)

    Args:
        models: whose variance each error rests on, where some are of one model: they share what is not known of it.
            None: all are of different ones.
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
    """The mean of `samples` with its interval; see the module's text for what it contains."""
    return _estimate(samples, seed_error(samples, pooled), moderated=pooled is not None, level=level)


def estimate_difference(
    a: Samples, b: Samples, *, pooled: Moderated | None = None, level: float = POINT_LEVEL
) -> Estimate | None:
    """a - b for two models that were trained apart: the variances between seeds of both add up. A side without seeds
    has none. None if they share no seeds or no draws."""
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
    """Estimates of like quantities (one measure over many points), whose variances between seeds moderate each
    other."""
    pooled = pool(samples.values())
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
        model=parts[0].model,
        trunk=parts[0].trunk,
        images_seen=parts[0].images_seen,
        bounds=parts[0].bounds,
    )


def difference(a: Samples, b: Samples) -> Samples | None:
    """a - b on the same seeds and draws. A side without seeds (raw pixels) is used for every seed.

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
        model=a.model if a.seeds else b.model,
        trunk=(a.trunk, b.trunk),
        images_seen=max(a.images_seen, b.images_seen),
        bounds=CHANGE if a.bounds == SHARE else UNBOUNDED,
        around=(a.mean + b.mean) / 2 if a.bounds == SHARE else None,
        image_df=min(a.image_df, b.image_df),
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
        model=a.model,
        trunk=a.trunk,
        images_seen=b.images_seen if weight_b > 0.5 else a.images_seen,
        bounds=a.bounds,
    )


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of estimates of different models. Seeds are independent between models; draws and test images are
    shared, so their margins are averaged as if fully correlated."""
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
    """One sentence on what the intervals contain and exclude, for captions.

    Args:
        trained_on: (data set, number of images) behind the estimates. Where sizes of a set are compared, every seed has
            trained on the same part of it: another part would have given other scores, by how much nobody measured.
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
