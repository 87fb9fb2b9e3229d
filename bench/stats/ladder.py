"""Does a gain survive scale? Paired differences at growing compute, their trend over log2 compute, and one verdict.

A ladder compares a change (of a model or its training) with a baseline at several amounts of compute, its rungs. A rung
holds the differences (accuracy with the change minus that of the baseline) of several seeds at one compute. Every
quantity here is a weighted sum of the rungs' means: the
gain at a rung, the mean gain, the slope, the gain at any compute. Its variance comes from the spread of the differences
between seeds, estimated rung by rung, so that the noise may differ between rungs; its degrees of freedom are Welch's
and Satterthwaite's. All seeds of a rung share the learning rates that were tuned for it, so more seeds do not average
out the error of tuning: all intervals except those of single rungs include `TUNING` points for it. Where rungs lie even
further from the line, the intervals are widened by the ratio (as the Particle Data Group does).

The verdict is a closed test. The slope is tested first, at `LEVEL`; several changes in one study share that level by
Holm's method. A ladder is said to grow, fade or reverse only if its slope is significant. So a ladder whose gain is
constant gets one of these verdicts in at most that fraction of studies, however large the gain. If the slope is not
significant, the verdict is that the gain keeps, if its mean is significant and its change over the whole ladder is
smaller than the gain itself, by two one-sided tests. All else is inconclusive. Arrays: T ladders, R rungs, N seeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

LEVEL = 0.05
"""Significance level: the fraction of ladders without a trend that may be said to grow, fade or reverse."""
TUNING = 0.3
"""Standard deviation, in percentage points, that imperfect tuning of learning rates adds to the difference of a whole
rung."""
POWER = 0.8  # a design is said to answer if this fraction of simulated ladders gets a conclusive verdict
MAX_SEEDS = 64  # no design with more seeds is proposed
FEWEST_RUNGS = 3
MODERATED = 3.0  # degrees of freedom with which the pooled variance of pairs counts in the variance of a rung
MOST_MORE = 16  # at most this many more pairs of runs are proposed for a rung


class LadderVerdict(StrEnum):
    """What happens to the gain of a change (its lead over the baseline) as compute grows: it grows, keeps its size,
    fades towards 0, reverses its sign, or the measurements cannot tell (inconclusive)."""

    GROWS = "grows"
    KEEPS = "keeps"
    FADES = "fades"
    REVERSES = "reverses"
    INCONCLUSIVE = "inconclusive"


TREND = (LadderVerdict.GROWS, LadderVerdict.FADES, LadderVerdict.REVERSES)
VERDICTS = tuple(LadderVerdict)


@dataclass(frozen=True, kw_only=True)
class Sum:
    """A weighted sum, over rungs (amounts of compute), of the mean difference between change and baseline, for each of
    T ladders; every array is (T,).

    Attributes:
        value: the sum, in percentage points.
        error: standard error of `value`.
        freedom: degrees of freedom of `error`.
    """

    value: np.ndarray
    error: np.ndarray
    freedom: np.ndarray

    def interval(self, level: float = 1 - LEVEL) -> tuple[np.ndarray, np.ndarray]:
        """Return both ends of the sum's interval by Student's t, at a confidence `level`: (low, high), each (T,)."""
        half = stats.t.ppf(0.5 + level / 2, self.freedom) * self.error
        return self.value - half, self.value + half

    @property
    def p(self) -> np.ndarray:
        """Two-sided p-values of the hypothesis that the sum is 0, (T,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(self.error > 0, np.abs(self.value) / self.error, np.where(self.value == 0, 0.0, np.inf))
        return 2 * stats.t.sf(t, self.freedom)


@dataclass(frozen=True, kw_only=True)
class Ladders:
    """T ladders, comparisons of a change with its baseline at R amounts of compute (rungs), which all ladders share.

    Attributes:
        x_R: log2 of the compute of each rung, ascending.
        means_TR, variances_TR: mean and variance between seeds of each rung's differences (change minus baseline), in
            percentage points and their squares.
        counts_TR: number of differences (seeds) of each rung.
        tuning: standard deviation of a rung's difference from imperfect tuning, as `TUNING`.
    """

    x_R: np.ndarray
    means_TR: np.ndarray
    variances_TR: np.ndarray
    counts_TR: np.ndarray
    tuning: float = TUNING

    @classmethod
    def of(cls, x_R: np.ndarray, gains_TRN: np.ndarray) -> Ladders:
        """Make T ladders from differences of single seeds, `gains_TRN`, in percentage points; NaN where a seed is
        missing. `x_R`: log2 of the compute of each rung, ascending.

        Raises:
            ValueError: a rung has fewer than two seeds, or there are fewer than three rungs.
        """
        counts_TR = np.isfinite(gains_TRN).sum(2)
        if len(x_R) < FEWEST_RUNGS or counts_TR.min() < 2:
            raise ValueError("a ladder has three rungs or more, of two seeds or more")
        means_TR, variances_TR = np.nanmean(gains_TRN, 2), np.nanvar(gains_TRN, 2, ddof=1)
        return cls(x_R=np.asarray(x_R, float), means_TR=means_TR, variances_TR=variances_TR, counts_TR=counts_TR)

    def rung(self, index: int) -> Sum:
        """Return the mean difference (gain) at the rung number `index`, with its error as in a paired t test."""
        weights_TR = np.zeros_like(self.means_TR)
        weights_TR[:, index] = 1.0
        return self._sum(weights_TR)

    def mean(self) -> Sum:
        """Return the mean gain over rungs (amounts of compute), each weighted by its number of seeds."""
        return self._sum(self.counts_TR / self.counts_TR.sum(1, keepdims=True), scaled=True)

    def slope(self) -> Sum:
        """Return the slope of the line fitted to the gains at all rungs: their change per doubling of compute."""
        return self._sum(self._slope_weights(), scaled=True)

    def at(self, x: float) -> Sum:
        """Return the gain at x, a log2 of compute, by the line fitted to the gains at all rungs."""
        centre_T1, share_TR = self._centre(), self.counts_TR / self.counts_TR.sum(1, keepdims=True)
        return self._sum(share_TR + (x - centre_T1) * self._slope_weights(), scaled=True)

    def one_more_run(self, x: float) -> Sum:
        """Predict the difference that one more pair of runs (change and baseline) would show at x, a log2 of compute.
        The value is that of the fitted line; the error includes the noise of a single pair and of a rung."""
        line = self.at(x)
        pair_T = self.pooled()
        error = np.sqrt(line.error**2 + pair_T + self.between_rungs())
        with np.errstate(divide="ignore", invalid="ignore"):
            total = line.error**4 / line.freedom + pair_T**2 / self._freedom()
            freedom = np.where(total > 0, (line.error**2 + pair_T) ** 2 / total, self._freedom())
        return Sum(value=line.value, error=error, freedom=np.maximum(freedom, 1.0))

    def pooled(self) -> np.ndarray:
        """Return the variance between seeds of the difference of one pair of runs (change minus baseline), pooled over
        rungs, (T,)."""
        each_TR = self.counts_TR - 1
        return (self.variances_TR * each_TR).sum(1) / each_TR.sum(1)

    def between_rungs(self) -> np.ndarray:
        """Return the part of the variance of rungs about the line that noise between seeds does not explain, (T,)."""
        return self._scale() ** 2 * self.tuning**2 + (self._scale() ** 2 - 1) * (self.pooled() / self.counts_TR.mean(1))

    def _freedom(self) -> np.ndarray:
        return (self.counts_TR - 1).sum(1).astype(float)

    def _centre(self) -> np.ndarray:
        return (self.counts_TR * self.x_R).sum(1, keepdims=True) / self.counts_TR.sum(1, keepdims=True)

    def _slope_weights(self) -> np.ndarray:
        apart_TR = self.x_R - self._centre()
        return self.counts_TR * apart_TR / (self.counts_TR * apart_TR**2).sum(1, keepdims=True)

    def _scale(self) -> np.ndarray:
        """Return the factor, at least 1, by which rungs lie further from the line than noise between seeds and tuning
        explain, (T,)."""
        slope_T1 = (self._slope_weights() * self.means_TR).sum(1, keepdims=True)
        mean_T1 = (self.counts_TR * self.means_TR).sum(1, keepdims=True) / self.counts_TR.sum(1, keepdims=True)
        left_TR = self.means_TR - mean_T1 - slope_T1 * (self.x_R - self._centre())
        with np.errstate(divide="ignore", invalid="ignore"):
            expected_TR = self.pooled()[:, None] / self.counts_TR + self.tuning**2
            ratio_T = (left_TR**2 / expected_TR).sum(1) / (len(self.x_R) - 2)
        return np.sqrt(np.maximum(np.nan_to_num(ratio_T, nan=1.0, posinf=1.0), 1.0))

    def _sum(self, weights_TR: np.ndarray, *, scaled: bool = False) -> Sum:
        parts_TR = weights_TR**2 * self.variances_TR / self.counts_TR
        variance_T = parts_TR.sum(1) + ((weights_TR * self.tuning) ** 2).sum(1) * scaled
        with np.errstate(divide="ignore", invalid="ignore"):
            freedom_T = variance_T**2 / (parts_TR**2 / (self.counts_TR - 1)).sum(1)
        freedom_T = np.where(np.isfinite(freedom_T), freedom_T, self._freedom())
        error_T = np.sqrt(variance_T) * (self._scale() if scaled else 1.0)
        return Sum(value=(weights_TR * self.means_TR).sum(1), error=error_T, freedom=freedom_T)


def verdicts(ladders: Ladders, *, stands_T: np.ndarray | None = None) -> np.ndarray:
    """Return a verdict for each of T ladders, as an index into `VERDICTS`.

    Args:
        stands_T: whether each slope is significant, if this was tested for several changes together
            (`bench.stats.levels.holm`); None: each slope is tested at `LEVEL` on its own.
    """
    slope, mean = ladders.slope(), ladders.mean()
    sign_T = np.sign(slope.value)
    bottom, top = ladders.at(float(ladders.x_R[0])), ladders.at(float(ladders.x_R[-1]))
    begins_T = np.where(bottom.p < LEVEL, np.sign(bottom.value), 0) * sign_T  # -1: its sign is opposite to the trend's
    ends_T = np.where(top.p < LEVEL, np.sign(top.value), 0) * sign_T
    stands_T = slope.p < LEVEL if stands_T is None else stands_T
    length = float(ladders.x_R[-1] - ladders.x_R[0])
    change = Sum(value=slope.value * length, error=slope.error * length, freedom=slope.freedom)
    low_T, high_T = change.interval(1 - 2 * LEVEL)
    keeps_T = (mean.p < LEVEL) & (np.maximum(np.abs(low_T), np.abs(high_T)) < np.abs(mean.value))
    made = np.full(len(slope.value), VERDICTS.index(LadderVerdict.INCONCLUSIVE))
    made[~stands_T & keeps_T] = VERDICTS.index(LadderVerdict.KEEPS)
    made[stands_T & (begins_T < 0)] = VERDICTS.index(LadderVerdict.FADES)
    made[stands_T & (ends_T > 0)] = VERDICTS.index(LadderVerdict.GROWS)
    made[stands_T & (begins_T < 0) & (ends_T > 0)] = VERDICTS.index(LadderVerdict.REVERSES)
    return made


# -- designs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The true values of a ladder that is simulated, in percentage points.

    Attributes:
        gain: true difference (change minus baseline) in the middle of the ladder.
        change: by how much the true difference grows from the lowest rung to the highest.
        pair: standard deviation of the difference of one pair of runs, at the lowest rung.
        top_pair: this standard deviation at the highest rung; None: as at the lowest.
        rung: standard deviation, between rungs, of the deviation that all seeds of a rung share.
    """

    gain: float = 0.0
    change: float = 0.0
    pair: float = 1.0
    top_pair: float | None = None
    rung: float = 0.0


def simulated(truth: Truth, x_R: np.ndarray, *, seeds: int, ladders: int, rng: np.random.Generator) -> Ladders:
    """Simulate a number of `ladders` whose true values are `truth`, with rungs at `x_R`, log2 of compute, and `seeds`
    pairs of runs at each rung."""
    share_R = (x_R - x_R[0]) / (x_R[-1] - x_R[0])
    top = truth.pair if truth.top_pair is None else truth.top_pair
    spread_R = truth.pair + share_R * (top - truth.pair)
    mean_TR = truth.gain + truth.change * (share_R - 0.5) + truth.rung * rng.normal(size=(ladders, len(x_R)))
    noise_TRN = rng.normal(size=(ladders, len(x_R), seeds)) * spread_R[None, :, None]
    return Ladders.of(x_R, mean_TR[..., None] + noise_TRN)


def power(truth: Truth, x_R: np.ndarray, *, seeds: int, ladders: int = 400, seed: int = 0) -> float:
    """Return the fraction of simulated ladders that get a conclusive verdict. Arguments are as in `simulated`; `seed`
    is the simulation's random seed."""
    made = verdicts(simulated(truth, x_R, seeds=seeds, ladders=ladders, rng=np.random.default_rng(seed)))
    return float((made != VERDICTS.index(LadderVerdict.INCONCLUSIVE)).mean())


def seeds_needed(truth: Truth, x_R: np.ndarray, *, wanted: float = POWER) -> int | None:
    """Return the fewest seeds at each rung with which a fraction `wanted` of the ladders simulated from `truth` gets a
    conclusive verdict; None if that takes more than `MAX_SEEDS`. `x_R`: log2 of compute of each rung."""
    low, high = 2, 3
    while power(truth, x_R, seeds=high) < wanted:
        if high == MAX_SEEDS:
            return None
        low, high = high, min(high * 2, MAX_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(truth, x_R, seeds=middle) >= wanted else (middle, high)
    return high


# -- the next runs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NextPairs:
    """The pairs of runs (change and baseline) that narrow the interval of an answer most for their cost.

    Attributes:
        pairs_R: number of further pairs at every existing rung (amount of compute).
        above: number of pairs at a new highest rung. It is as far above the highest one so far (in log2 of compute) as
            that is above the next lower one.
        cost: cost of all these pairs, and of opening the new rung if there is one.
        half, half_then: expected half-width of the 95 % interval, in percentage points, without and with these pairs.
    """

    pairs_R: tuple[int, ...]
    above: int
    cost: float
    half: float
    half_then: float


def next_pairs(
    found: Ladders, cost_R: np.ndarray, *, money: float, at: float | None = None, opening: float = 0.0
) -> NextPairs:
    """Return the further pairs of runs, for at most `money`, that narrow an interval most: the interval of the slope,
    or of the gain at one compute (`at`). They are found by greedy addition and exchange.

    Args:
        found: one ladder (T = 1), as far as it has been run.
        cost_R: cost of one pair at every rung.
        money: what all further pairs may cost, in the unit of `cost_R`.
        at: log2 of the compute at which the gain is asked; None: the slope is asked.
        opening: what a new rung costs beside its pairs, in the same unit: learning rates are tuned there, and those of
            lower rungs change.
    """
    x_R = found.x_R
    x_S = np.append(x_R, 2 * x_R[-1] - x_R[-2])
    cost_S = np.append(cost_R, cost_R[-1] ** 2 / cost_R[-2])
    begun_S = np.append(found.counts_TR[0], 0)
    pooled, own_R, freedom_R = float(found.pooled()[0]), found.variances_TR[0], found.counts_TR[0] - 1
    spread_R = (MODERATED * pooled + freedom_R * own_R) / (MODERATED + freedom_R)
    spread_S, tuning = np.append(spread_R, spread_R[-1]), found.tuning**2
    scale = float(found._scale()[0])

    def half(count_S: np.ndarray) -> float:
        on = count_S >= 2
        share_S = np.where(on, count_S, 0) / count_S[on].sum()
        apart_S = x_S - share_S @ x_S
        weight_S = share_S * apart_S / (share_S @ apart_S**2)
        if at is not None:
            weight_S = share_S + (at - share_S @ x_S) * weight_S
        variance = float((weight_S[on] ** 2 * (spread_S[on] / count_S[on] + tuning)).sum())
        freedom = float((count_S[on] - 1).sum())
        return float(stats.t.ppf(1 - LEVEL / 2, freedom)) * scale * math.sqrt(variance)

    def cost_of(more_S: np.ndarray) -> float:
        return float(more_S @ cost_S) + opening * bool(more_S[-1])

    def filled(count_S: np.ndarray) -> np.ndarray:
        while True:
            tried = []
            for place in range(len(x_S)):
                more = count_S.copy()
                more[place] += 1 if more[place] >= 2 else 2 - more[place]
                cost = cost_of(more - begun_S) - cost_of(count_S - begun_S)
                if cost_of(more - begun_S) <= money * (1 + 1e-9) and more[place] - begun_S[place] <= MOST_MORE:
                    tried.append(((half(count_S) - half(more)) / cost, place, more))
            if not tried or max(tried, key=lambda one: one[:2])[0] <= 0:
                return count_S
            count_S = max(tried, key=lambda one: one[:2])[2]

    best = filled(begun_S.copy())
    starts = [np.append(begun_S[:-1], 2)] if 2 * cost_S[-1] + opening <= money else []
    for start in (*starts, *_fewer(best, begun_S)):
        other = filled(start)
        best = min(best, other, key=half)
    more_S = best - begun_S
    return NextPairs(
        pairs_R=tuple(int(n) for n in more_S[:-1]),
        above=int(more_S[-1]),
        cost=cost_of(more_S),
        half=half(begun_S),
        half_then=half(best),
    )


def _fewer(count_S: np.ndarray, begun_S: np.ndarray) -> list[np.ndarray]:
    """Return variants of the design `count_S` (number of pairs at each rung): in each variant, one rung goes back to
    the number it had in `begun_S`, the pairs that were run already."""
    made = []
    for place in np.flatnonzero(count_S > begun_S):
        less = count_S.copy()
        less[place] = begun_S[place]
        made.append(less)
    return made
