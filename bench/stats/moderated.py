"""Moderated variances between seeds: each model's own, drawn towards those of the study's other models.

Two seeds say little of a model's variance (Student's t with one degree of freedom is 12.7), and one variance for all
models covers the noisy ones too rarely. Between the two lies the hierarchical model of Smyth (2004, "Linear models and
empirical Bayes methods for assessing differential expression in microarray experiments"; `squeezeVar` of limma):

    s² | σ²  ~  σ² chi²(d) / d         of a model with d degrees of freedom,
    1 / σ²   ~  chi²(d0) / (d0 s0²)    between models,

so that given (d0, s0²) a model's variance is (d0 s0² + d s²) / (d0 + d), with d0 + d degrees of freedom. Three things
differ from limma, which has thousands of variances where a study has ten:

- (d0, s0²) and the trend are not estimated and plugged in: their likelihood is summed over a grid (`PRIOR_DF`,
  `TRENDS`, `SCALES`). σ² has then a mixture of inverse gamma distributions; the one whose log has the same mean and
  variance gives one variance and one number of degrees of freedom. (Their t quantiles differ from those of the mixture
  by 1 %, in simulations; the same mean and variance of 1 / σ² would not do: it is ruled by the smallest σ².)
- variances belong to models: a model's data sizes and budgets share one, up to a trend that all models share, log σ²
  linear in the log-odds of accuracy (`limma-trend`). Variances are those of log-odds.
- budgets of one trunk share some of their luck (correlation `ADJACENT` from one to the next), so that they count as
  fewer degrees of freedom than there are.

Coverage by simulation: tests/stats/measure_coverage.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special  # not scipy.stats, which takes most of a second to import

PRIOR_DF = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
"""d0, alike likely beforehand. 64: all models have one variance, as far as a study can tell."""
TRENDS = np.arange(-4.0, 4.25, 0.5)
"""Slopes of log σ² over log-odds of accuracy. Beforehand normal about 0 with `TREND_SD`."""
TREND_SD = 1.5
SCALES = np.arange(-10.0, 6.25, 0.25)
"""log s0², about the log of the mean variance, which one noisy model may rule; alike likely beforehand."""
ADJACENT = 0.6
"""Correlation of a trunk's luck between one budget and the next: 0.3 to 0.6 in the committed studies. Too high costs
width, too low costs coverage."""
LEAST_DF = 1.0
NEGLIGIBLE = 16.0  # by which a log likelihood falls short of the largest
MOST_STEPS = 50  # of Newton's method; four suffice


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """One variance between seeds.

    Attributes:
        model: whose variance it is. trunk: the training run, which other budgets may share.
        x: what the trend is over (log-odds of the mean accuracy).
        variance: between single seeds. df: its degrees of freedom, above 0.
    """

    model: Hashable
    trunk: Hashable
    x: float
    variance: float
    df: int


@dataclass(frozen=True, kw_only=True)
class Moderated:
    """Variances between seeds of a study's models.

    Attributes:
        df: seeds beyond the first, summed over trunks.
        models: columns of `mean_BG` by model, of those that were repeated; the last column is that of a model of which
            nothing is known.
        weight_B: of each trend. mean_BG, square_BG: mean of log σ² at `x_mean`, and of its square, given the trend.
            Empty where no seeds differed.
        x_range: outside of it the trend stays at its ends.
    """

    df: int
    models: Mapping[Hashable, int]
    weight_B: np.ndarray
    mean_BG: np.ndarray
    square_BG: np.ndarray
    x_mean: float
    x_range: tuple[float, float]

    def of(self, model: Hashable, x: float) -> tuple[float, float]:
        """Variance between single seeds of a model, and its degrees of freedom. (0, df) where no seeds differed."""
        if not len(self.weight_B):
            return 0.0, float(self.df)
        column = self.models.get(model, len(self.models))
        shift_B = TRENDS * (min(max(x, self.x_range[0]), self.x_range[1]) - self.x_mean)
        mean_B = self.mean_BG[:, column]
        mean = float(self.weight_B @ (mean_B + shift_B))
        square = float(self.weight_B @ (self.square_BG[:, column] + 2 * shift_B * mean_B + shift_B**2))
        df = max(LEAST_DF, 2 * inverse_trigamma(square - mean**2))
        return math.exp(mean + float(special.digamma(df / 2)) - math.log(df / 2)), df


def moderate(found: Sequence[Repeated]) -> Moderated | None:
    """Moderate the variances of a study; None without any."""
    if not found:
        return None
    models = {model: column for column, model in enumerate(dict.fromkeys(item.model for item in found))}
    of_trunk: dict[Hashable, int] = {}
    for item in found:
        of_trunk[item.trunk] = max(of_trunk.get(item.trunk, 0), item.df)
    x_N = np.array([item.x for item in found])
    variance_N = np.array([item.variance for item in found])
    group_N = np.array([models[item.model] for item in found])
    budgets = Counter(item.trunk for item in found)
    df_N = np.array([item.df * independent(budgets[item.trunk]) / budgets[item.trunk] for item in found])
    scale, x_mean = float(df_N @ variance_N / df_N.sum()), float(df_N @ x_N / df_N.sum())
    known: tuple[np.ndarray, ...] = (np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)))
    if scale > 0:
        known = _log_variances(x_N - x_mean, variance_N, df_N, group_N, len(models) + 1, math.log(scale))
    return Moderated(
        df=sum(of_trunk.values()),
        models=models,
        weight_B=known[0],
        mean_BG=known[1],
        square_BG=known[2],
        x_mean=x_mean,
        x_range=(float(x_N.min()), float(x_N.max())),
    )


def independent(budgets: int) -> float:
    """As how many independent ones the variances of a trunk's budgets count: normal values with correlation r have
    variances with correlation r²."""
    steps = np.arange(1, budgets)
    return budgets**2 / (budgets + 2 * float(((budgets - steps) * ADJACENT ** (2 * steps)).sum()))


def inverse_trigamma(y: float) -> float:
    """x at which the trigamma function is y > 0, by Newton's method on 1 / trigamma (Smyth 2004, appendix)."""
    x = 0.5 + 1 / y
    for _ in range(MOST_STEPS):
        trigamma = float(special.zeta(2, x))
        step = trigamma * (1 - trigamma / y) / (-2 * float(special.zeta(3, x)))
        x += step
        if abs(step) < 1e-10 * x:
            break
    return x


def log_likelihood(d0: np.ndarray, s0: np.ndarray, df: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Log density, but for what does not depend on (d0, s0²), of sums of squares with `df` degrees of freedom each:
    s² = squares / df is s0² times an F(df, d0) variable. Arrays are broadcast."""
    prior = special.gammaln((d0 + df) / 2) - special.gammaln(d0 / 2) + d0 / 2 * np.log(d0 * s0)
    return np.asarray(prior - (d0 + df) / 2 * np.log(d0 * s0 + squares))


def _log_variances(
    x_N: np.ndarray, variance_N: np.ndarray, df_N: np.ndarray, group_N: np.ndarray, groups: int, log_scale: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Posterior weight of every trend; posterior mean of log σ² at x = 0 and of its square, per trend and group. The
    last group has no variances."""
    df_G = np.bincount(group_N, df_N, groups)
    d0_P, s0_P = (grid.ravel() for grid in np.meshgrid(PRIOR_DF, np.exp(log_scale + SCALES), indexing="ij"))
    d0_P1, s0_P1 = d0_P[:, None], s0_P[:, None]
    log_weight_B, mean_BG, square_BG = [], [], []
    for trend in TRENDS:
        squares_G = np.bincount(group_N, df_N * variance_N * np.exp(-trend * x_N), groups)
        # no Jacobian of the trend: df_N @ x_N is 0
        log_P = log_likelihood(d0_P1, s0_P1, df_G, squares_G).sum(axis=1) - (trend / TREND_SD) ** 2 / 2
        most = float(log_P.max())
        likely = log_P > most - NEGLIGIBLE
        weight_P = np.exp(log_P[likely] - most)
        log_weight_B.append(most + math.log(weight_P.sum()))
        weight_P /= weight_P.sum()
        half_PG = (d0_P1[likely] + df_G) / 2
        mean_PG = np.log((d0_P1[likely] * s0_P1[likely] + squares_G) / 2) - special.digamma(half_PG)
        mean_BG.append(weight_P @ mean_PG)
        square_BG.append(weight_P @ (mean_PG**2 + special.zeta(2, half_PG)))
    weight_B = np.exp(np.array(log_weight_B) - max(log_weight_B))
    return weight_B / weight_B.sum(), np.array(mean_BG), np.array(square_BG)
