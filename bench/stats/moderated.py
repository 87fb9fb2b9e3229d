"""Moderated variances between seeds: each model's own estimate, shrunk towards those of the study's other models.

Two seeds say little about a model's variance (the 95 % quantile of Student's t with one degree of freedom is 12.7), and
with one variance for all models the intervals of the noisy ones hold the truth too rarely. Between the two lies the
hierarchical model of Smyth (2004, "Linear models and empirical Bayes methods for assessing differential expression in
microarray experiments"; `squeezeVar` of limma):

    s² | σ²  ~  σ² chi²(d) / d         of a model with d degrees of freedom,
    1 / σ²   ~  chi²(d0) / (d0 s0²)    between models,

so that given (d0, s0²) a model's variance is (d0 s0² + d s²) / (d0 + d), with d0 + d degrees of freedom. Three things
differ from limma, which has thousands of variances where a study has ten:

- (d0, s0²) and the trends are not estimated and plugged in: their likelihood is summed over a grid. The posterior of σ²
  is then a mixture of inverse gamma distributions. It is summarised by the one inverse gamma distribution whose
  logarithm has the same mean and variance, which gives one variance and one number of degrees of freedom. (In
  simulations its t quantiles differ from those of the mixture by 1 %. Matching the mean and variance of 1 / σ² would
  not do, because the smallest σ² dominates them.)
- a variance belongs to a model: all its data sizes and budgets share it, up to trends that are common to all models.
  log σ² is linear in the log-odds of accuracy (as in `limma-trend`) and in the log of the images seen. All variances
  are variances of log-odds.
- a trunk is one training run, from which several budgets branch off. Its budgets share some of its random deviation
  (correlation `ADJACENT` from one to the next), so they count as fewer degrees of freedom than there are.

Coverage by simulation: results/reference/coverage/.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import special  # not scipy.stats, which takes most of a second to import

PRIOR_DF = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
"""Grid of d0, with equal prior probabilities. At 64 all models have one variance, as far as a study can tell."""
SLOPES = np.arange(-3.0, 3.5, 0.75), np.arange(-1.6, 1.7, 0.4)
"""Grids of the slopes of log σ² over the log-odds of accuracy, and over log images seen."""
SLOPE_SD = 1.5, 0.8  # standard deviations of the normal priors of the two slopes, about 0
NODES = np.arange(-4.0, 5.0)
"""Grid of log s0², whose prior is flat: distances from the maximum of the likelihood, in standard deviations by the
curvature there."""
ADJACENT = 0.6
"""Correlation of a trunk's random deviation between one budget and the next: 0.3 to 0.6 in the committed studies. If it
is set too high, intervals are wider than needed; too low, they hold the truth too rarely."""
LEAST_DF = 1.0  # lower limit of the degrees of freedom of a moderated variance
MOST_NUMBERS = 2_000_000  # array elements in memory at once
MOST_STEPS = 50  # limit on Newton iterations; ten suffice


ROUNDING = 1e-24  # sums of squares below this are rounding errors: the seeds did not differ


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """An observed variance between seeds, of one model at one budget.

    Attributes:
        model: identifies the model that was trained.
        trunk: identifies the training run, without its seed; other budgets may share it.
        log_odds: log-odds of the mean accuracy, over which the first trend of log σ² runs.
        log_images: log of the images seen, over which the second trend runs.
        variance: variance between single seeds of the log-odds.
        df: degrees of freedom of `variance`, above 0.
    """

    model: Hashable
    trunk: Hashable
    log_odds: float
    log_images: float
    variance: float
    df: int


@dataclass(frozen=True, kw_only=True)
class Moderated:
    """The posterior of the variances σ² between seeds of a study's models. log σ² has two linear trends, over log-odds
    and over log images. Arrays: T pairs of their slopes (the grid), G models.

    Attributes:
        df: number of seeds beyond the first, summed over trunks (training runs).
        models: for each model that was trained with several seeds, its column in `mean_TG`; the last column stands for
            a model without repeats.
        slopes_T2: every pair of slopes (over log-odds, over log images).
        weight_T: posterior weight of every pair of slopes; empty if no seeds differed.
        mean_TG, square_TG: posterior mean of log σ² at `centre_2`, and of its square, given the slopes.
        centre_2: (log-odds, log images) at which log σ² is given.
        least_2, most_2: range of (log-odds, log images) that was observed; beyond it the trends are constant.
    """

    df: int
    models: Mapping[Hashable, int]
    slopes_T2: np.ndarray
    weight_T: np.ndarray
    mean_TG: np.ndarray
    square_TG: np.ndarray
    centre_2: np.ndarray
    least_2: np.ndarray
    most_2: np.ndarray

    def of(self, model: Hashable, log_odds: float, log_images: float) -> tuple[float, float]:
        """Return (the variance between single seeds of a model's log-odds, its degrees of freedom), at an accuracy with
        these log-odds and after this log of images seen; (0, `df`) if no seeds of the study differed."""
        if not len(self.weight_T):
            return 0.0, float(self.df)
        column = self.models.get(model, len(self.models))
        at_2 = np.minimum(np.maximum((log_odds, log_images), self.least_2), self.most_2)
        shift_T = self.slopes_T2 @ (at_2 - self.centre_2)
        mean_T = self.mean_TG[:, column]
        mean = float(self.weight_T @ (mean_T + shift_T))
        square = float(self.weight_T @ (self.square_TG[:, column] + 2 * shift_T * mean_T + shift_T**2))
        return inverse_gamma(mean, square - mean**2)


def moderate(repeats: Sequence[Repeated]) -> Moderated | None:
    """Return the posterior of the variances between seeds of a study's models, given the observed variances `repeats`;
    None if there are none."""
    if not repeats:
        return None
    models = {model: column for column, model in enumerate(dict.fromkeys(item.model for item in repeats))}
    of_trunk: dict[Hashable, int] = {}
    for item in repeats:
        of_trunk[item.trunk] = max(of_trunk.get(item.trunk, 0), item.df)
    x_N2 = np.array([(item.log_odds, item.log_images) for item in repeats])
    group_N = np.array([models[item.model] for item in repeats])
    budgets = Counter(item.trunk for item in repeats)
    df_N = np.array([item.df * independent(budgets[item.trunk]) / budgets[item.trunk] for item in repeats])
    squares_N = df_N * [item.variance for item in repeats]
    squares_N[squares_N <= ROUNDING] = 0.0
    if (differ_N := squares_N > 0).any():
        # Scores are multiples of one test image. Seeds with equal scores may still differ by less than one image; they
        # get a sixth of the variance of two seeds that are one image apart, for which the least variance seen stands.
        # Zeros would pull the variance of all models to zero, without bound where most networks score at chance.
        least = float((squares_N[differ_N] / df_N[differ_N]).min()) / 6
        squares_N[~differ_N] = least * df_N[~differ_N]
    centre_2 = df_N @ x_N2 / df_N.sum()
    known: tuple[np.ndarray, ...] = (np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)))
    if (squares_N > ROUNDING).any():
        known = _log_variances(x_N2 - centre_2, squares_N, df_N, group_N, len(models) + 1)
    return Moderated(
        df=sum(of_trunk.values()),
        models=models,
        slopes_T2=trends(),
        weight_T=known[0],
        mean_TG=known[1],
        square_TG=known[2],
        centre_2=centre_2,
        least_2=x_N2.min(axis=0),
        most_2=x_N2.max(axis=0),
    )


def independent(budgets: int) -> float:
    """Return the number of independent variances that the variances at `budgets` budgets of one trunk are worth.

    Values at neighbouring budgets have the correlation `ADJACENT`, and k budgets apart its k-th power. Squares of
    normal values whose correlation is r have the correlation r² (Isserlis 1918).
    """
    steps = np.arange(1, budgets)
    return budgets**2 / (budgets + 2 * float(((budgets - steps) * ADJACENT ** (2 * steps)).sum()))


def trends() -> np.ndarray:
    """Return every pair of slopes (over log-odds, over log images) from the two grids `SLOPES`, (T, 2)."""
    return np.array(list(product(*SLOPES)))


def inverse_gamma(mean: float, variance: float) -> tuple[float, float]:
    """Return (s², df) of the random variable s² df / chi²(df), which is inverse gamma, whose logarithm has this mean
    and variance."""
    df = max(LEAST_DF, 2 * inverse_trigamma(variance))
    return math.exp(mean + float(special.digamma(df / 2)) - math.log(df / 2)), df


def inverse_trigamma(y: float) -> float:
    """Return x where trigamma(x) = y, y > 0, by Newton's method on 1 / trigamma (Smyth 2004, appendix)."""
    x = 0.5 + 1 / y
    for _ in range(MOST_STEPS):
        trigamma = float(special.zeta(2, x))
        step = trigamma * (1 - trigamma / y) / (-2 * float(special.zeta(3, x)))
        x += step
        if abs(step) < 1e-10 * x:
            break
    return x


def log_likelihood(d0: np.ndarray, s0: np.ndarray, df: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Return the log density, up to a term without d0 and s0², of sums of squares with `df` degrees of freedom each:
    s² = squares / df is s0² times an F(df, d0) variable. The argument `s0` holds s0². Arrays are broadcast."""
    prior = special.gammaln((d0 + df) / 2) - special.gammaln(d0 / 2) + d0 / 2 * np.log(d0 * s0)
    return np.asarray(prior - (d0 + df) / 2 * np.log(d0 * s0 + squares))


def _log_variances(
    x_N2: np.ndarray, squares_N: np.ndarray, df_N: np.ndarray, group_N: np.ndarray, groups: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the posterior weight of every pair of slopes (T,), and the posterior means of log σ² at x = 0 and of its
    square, for every pair and model (T, G each).

    Args:
        x_N2: (log-odds, log images) of every observed variance, from their mean weighted by `df_N`.
        squares_N: variances times degrees of freedom.
        df_N: degrees of freedom.
        group_N: index of the model of every variance.
        groups: number of models G; the last one has no observed variance.
    """
    df_G = np.bincount(group_N, df_N, groups)
    every_T2 = trends()
    chunk = max(1, MOST_NUMBERS // (len(NODES) * len(PRIOR_DF) * groups))
    parts = []
    for start in range(0, len(every_T2), chunk):
        slopes_T2 = every_T2[start : start + chunk]
        scaled_TN = squares_N * np.exp(-slopes_T2 @ x_N2.T)
        squares_TG = np.stack([np.bincount(group_N, scaled_N, groups) for scaled_N in scaled_TN])
        # scaling by the trends adds no Jacobian to the likelihood, because df_N @ x_N2 is 0
        beforehand_T = -((slopes_T2 / SLOPE_SD) ** 2).sum(axis=1) / 2
        parts.append(_given_trends(df_G, squares_TG, beforehand_T))
    log_weight_T, mean_TG, square_TG = (np.concatenate(part) for part in zip(*parts, strict=True))
    weight_T = np.exp(log_weight_T - log_weight_T.max())
    return weight_T / weight_T.sum(), mean_TG, square_TG


def _given_trends(
    df_G: np.ndarray, squares_TG: np.ndarray, beforehand_T: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the log weight of every pair of slopes (T,), and the means of log σ² and of its square (T, G each), all
    summed over the grids of d0 and log s0².

    Args:
        df_G: degrees of freedom of every model, over all its variances.
        squares_TG: sum of squares of every model, scaled by the trends.
        beforehand_T: log prior weight of every pair of slopes.
    """
    d0_D1, squares_T1G = PRIOR_DF[:, None], squares_TG[:, None]
    half_DG = (d0_D1 + df_G) / 2
    middle_TD1, sd_TD1 = _peak(d0_D1, df_G, squares_T1G)
    s0_KTD1 = np.exp(middle_TD1 + NODES[:, None, None, None] * sd_TD1)
    log_KTD = log_likelihood(d0_D1, s0_KTD1, df_G, squares_T1G).sum(axis=-1)
    log_KTD += np.log(sd_TD1[..., 0]) + beforehand_T[:, None]
    most_T = log_KTD.max(axis=(0, 2))
    weight_KTD = np.exp(log_KTD - most_T[:, None])
    total_T = weight_KTD.sum(axis=(0, 2))
    weight_KTD /= total_T[:, None]
    mean_KTDG = np.log((d0_D1 * s0_KTD1 + squares_T1G) / 2) - special.digamma(half_DG)
    mean_TG = np.einsum("ktd,ktdg->tg", weight_KTD, mean_KTDG)
    square_TG = np.einsum("ktd,ktdg->tg", weight_KTD, mean_KTDG**2 + special.zeta(2, half_DG))
    return most_T + np.log(total_T), mean_TG, square_TG


def _peak(d0_D1: np.ndarray, df_G: np.ndarray, squares_T1G: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log s0² at the maximum of the likelihood, and its standard deviation by the curvature there, for every
    pair of slopes and d0, each (T, D, 1). Newton's method starts at the log of the mean variance. Arguments are as in
    `_given_trends`, with d0 on the axis D."""
    start_T11 = np.log(squares_T1G.sum(axis=-1, keepdims=True) / df_G.sum())
    at_TD1 = np.repeat(start_T11, len(d0_D1), axis=1)
    known_G = df_G > 0
    df_G, squares_T1G = df_G[known_G], squares_T1G[..., known_G]
    for _ in range(MOST_STEPS):
        part_TDG = d0_D1 / (d0_D1 + squares_T1G * np.exp(-at_TD1))
        slope_TD1 = ((d0_D1 - (d0_D1 + df_G) * part_TDG) / 2).sum(axis=-1, keepdims=True)
        curve_TD1 = ((d0_D1 + df_G) * part_TDG * (1 - part_TDG) / 2).sum(axis=-1, keepdims=True)
        step_TD1 = np.clip(slope_TD1 / curve_TD1, -1.0, 1.0)
        at_TD1 += step_TD1
        if float(np.abs(step_TD1).max()) < 1e-3:
            break
    return at_TD1, 1 / np.sqrt(curve_TD1)
