"""How often stated 95 % intervals hold the truth, by what seeds differ by: `python -m tools.measure_coverage`.

A study: models x data sizes x budgets x seeds, with luck that the budgets of a trunk share in part. Beside the
moderated variances of `bench.stats.moderated` stands the rule before them: one variance for all models, unless a
model's own contradicts it (F test, 0.1 %), which is then used with its own degrees of freedom. Differences of models,
and means of three of them, are judged by that rule (BEFORE), by moderated variances that Satterthwaite's formula adds
up (SATTERTHWAITE), and as `bench.stats.intervals.sum_of_errors` adds them (NOW).

The full table takes about twenty minutes of one core; the tests run a part of it. It is in
results/reference/coverage/.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
from scipy import special

from bench.stats import intervals
from bench.stats.intervals import Estimate, Samples

SD = 0.06  # between seeds, in log-odds: as in the committed studies
SHARED = 0.5  # correlation of a trunk's luck between one budget and the next
GAIN = 1.2  # log-odds of accuracy from the first budget to the last
MIDDLE, CEILING = (-0.5, 0.8), (2.7, 4.0)
"""Log-odds of a model's accuracy at its first budget: 38 to 69 %, or 94 to 98 %."""
BEFORE, SATTERTHWAITE, NOW = "before", "moderated, Satterthwaite", "now"
Spread = Callable[[np.random.Generator, int, int], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Design:
    """Trunks are dealt out to models; each has its own data size."""

    models: int
    trunks: int
    budgets: int
    seeds: int

    def __str__(self) -> str:
        return f"{self.models} models, {self.trunks} trunks x {self.budgets} budgets x {self.seeds} seeds"


DESIGNS = (
    Design(models=10, trunks=20, budgets=3, seeds=2),
    Design(models=10, trunks=20, budgets=6, seeds=2),
    Design(models=10, trunks=13, budgets=3, seeds=3),
    Design(models=10, trunks=13, budgets=6, seeds=3),
)
SINGLE = Design(models=27, trunks=27, budgets=1, seeds=2)  # a study of variants, each its own model
SPREADS: Mapping[str, Spread] = {
    "equal": lambda rng, models, budgets: np.ones((models, budgets)),
    "variance grows tenfold in training": lambda rng, models, budgets: _along(models, budgets, 0.5),
    "variance grows a hundredfold": lambda rng, models, budgets: _along(models, budgets, 1.0),
    "variance falls tenfold in training": lambda rng, models, budgets: _along(models, budgets, -0.5),
    "variance tenfold in half of the models": lambda rng, models, budgets: _of(
        np.where(np.arange(models) % 2, 1.0, 10**0.5), budgets
    ),
    "standard deviations spread tenfold": lambda rng, models, budgets: _of(
        10 ** rng.uniform(-0.5, 0.5, models), budgets
    ),
}
"""Standard deviations by model and budget, in units of `SD`."""
ROGUE: Mapping[str, Spread] = {
    "one model has 25 times the variance": lambda rng, models, budgets: _of(
        np.where(np.arange(models), 1.0, 5.0), budgets
    )
}


def _along(models: int, budgets: int, decades: float) -> np.ndarray:
    return np.tile(10 ** (decades * np.linspace(-0.5, 0.5, budgets)), (models, 1))


def _of(by_model: np.ndarray, budgets: int) -> np.ndarray:
    return np.tile(by_model[:, None], (1, budgets))


@dataclass(frozen=True, kw_only=True)
class Study:
    """Samples of every point, (trunk, budget), with the mean accuracy over all seeds that there could be."""

    samples: dict[tuple[int, int], Samples]
    truth: dict[tuple[int, int], float]
    noisiest: set[tuple[int, int]]


def study(rng: np.random.Generator, design: Design, spread: Spread, level: tuple[float, float]) -> Study:
    """A simulated study. The noisiest tenth of the points are those with the largest true variance."""
    model_T = np.arange(design.trunks) % design.models
    grown_B = GAIN * np.linspace(0, 1, design.budgets)
    mean_TB = rng.uniform(*level, design.models)[model_T, None] + rng.normal(0, 0.1, (design.trunks, 1)) + grown_B
    sd_TB = SD * spread(rng, design.models, design.budgets)[model_T]
    luck_TSB = rng.normal(size=(design.trunks, design.seeds, design.budgets))
    for budget in range(1, design.budgets):
        luck_TSB[..., budget] *= (1 - SHARED**2) ** 0.5
        luck_TSB[..., budget] += SHARED * luck_TSB[..., budget - 1]
    accuracy_TSB = special.expit(mean_TB[:, None] + sd_TB[:, None] * luck_TSB)
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    truth_TB = special.expit(mean_TB[..., None] + sd_TB[..., None] * nodes) @ weights / weights.sum()
    samples_of = {
        (trunk, budget): Samples(
            values_SD=accuracy_TSB[trunk, :, budget, None],
            seeds=tuple(range(design.seeds)),
            draws=(),
            image_error=0.0,
            num_test=1_000_000,
            model=int(model_T[trunk]),
            trunk=trunk,
            images_seen=1000 * 2**budget,
        )
        for trunk in range(design.trunks)
        for budget in range(design.budgets)
    }
    limit = np.quantile(sd_TB, 0.9)
    return Study(
        samples=samples_of,
        truth={key: float(truth_TB[key]) for key in samples_of},
        noisiest={key for key in samples_of if sd_TB[key] >= limit},
    )


def variances_before(made: Study) -> dict[tuple[int, int], tuple[float, float]]:
    """Variance between seeds by the rule before, and its degrees of freedom, of every point."""
    by_trunk: dict[int, list[float]] = {}
    for (trunk, _), samples in made.samples.items():
        by_trunk.setdefault(trunk, []).append(samples.seed_variance)
    seeds = len(next(iter(made.samples.values())).seeds)
    pooled, df = float(np.mean([np.mean(variances) for variances in by_trunk.values()])), len(by_trunk) * (seeds - 1)
    limit = pooled * float(special.fdtri(seeds - 1, df, 1 - 1e-3))
    own = {key: samples.seed_variance for key, samples in made.samples.items()}
    return {key: (variance, seeds - 1) if variance > limit else (pooled, df) for key, variance in own.items()}


def one_variance_or_none(made: Study) -> dict[tuple[int, int], tuple[float, float]]:
    """Intervals by the rule before: (low, high) of every point."""
    intervals_of = {}
    for key, (variance, df) in variances_before(made).items():
        samples = made.samples[key]
        half = intervals.t_quantile(df) * (variance / len(samples.seeds)) ** 0.5
        intervals_of[key] = samples.mean - half, samples.mean + half
    return intervals_of


def satterthwaite(
    errors: Sequence[tuple[float, float]], models: Sequence[Hashable] | None = None
) -> tuple[float, float]:
    """In place of `intervals.sum_of_errors`."""
    squares = sum(error**2 for error, _ in errors)
    return math.sqrt(squares), squares**2 / sum(error**4 / df for error, df in errors)


def moderated(made: Study) -> dict[tuple[int, int], tuple[float, float]]:
    """Intervals as reports state them."""
    return {key: (e.low, e.high) for key, e in intervals.estimate_all(made.samples).items()}


def differences(made: Study) -> list[tuple[Estimate, float]]:
    """Between points of two trunks at their last budget, which matters most, with the truth."""
    pooled = intervals.pool(made.samples.values())
    last = max(budget for _, budget in made.samples)
    trunks = sorted({trunk for trunk, _ in made.samples})
    pairs = [((a, last), (b, last)) for a, b in zip(trunks[::2], trunks[1::2], strict=False)]
    estimates = [
        (intervals.estimate_difference(made.samples[a], made.samples[b], pooled=pooled), a, b) for a, b in pairs
    ]
    return [(e, made.truth[a] - made.truth[b]) for e, a, b in estimates if e is not None]


def differences_before(made: Study) -> list[tuple[Estimate, float]]:
    """The same with variances by the rule before."""
    known = {id(made.samples[key]): variance for key, variance in variances_before(made).items()}
    with patch.object(intervals, "moderated_variance", lambda samples, pooled: known[id(samples)]):
        return differences(made)


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Means over studies. `error`: standard error of `share`, by the spread of studies."""

    share: float
    error: float
    of_noisiest: float
    median: float
    widest: float
    outside: int


def coverage(made: list[Study], rule: Callable[[Study], dict[tuple[int, int], tuple[float, float]]]) -> Coverage:
    """The coverage of a rule's intervals, their half-widths in points, and how many reach outside of [0, 1]."""
    shares, noisiest, medians, widest, outside = [], [], [], 0.0, 0
    for one in made:
        ends = rule(one)
        held = {key: low <= one.truth[key] <= high for key, (low, high) in ends.items()}
        halves = [50 * (high - low) for low, high in ends.values()]
        shares.append(np.mean(list(held.values())))
        noisiest.append(np.mean([held[key] for key in one.noisiest]))
        medians.append(np.median(halves))
        widest = max(widest, *halves)
        outside += sum(low < 0 or high > 1 for low, high in ends.values())
    return Coverage(
        share=float(np.mean(shares)),
        error=float(np.std(shares) / len(made) ** 0.5),
        of_noisiest=float(np.mean(noisiest)),
        median=float(np.median(medians)),
        widest=float(widest),
        outside=outside,
    )


@dataclass(frozen=True, kw_only=True)
class OfDifferences:
    """Coverage of differences between models, and of means of three of them.

    Attributes:
        share, error: that hold the truth, and its standard error over studies, at least that of so many independent
            ones of which 95 % hold it: few may hold it all.
        median, widest: half-widths in points.
        mean_share, mean_error, mean_median, mean_widest: the same of the means.
    """

    share: float
    error: float
    median: float
    widest: float
    mean_share: float
    mean_error: float
    mean_median: float
    mean_widest: float

    def __str__(self) -> str:
        one = f"{self.share:.1%} ± {self.error:.1%} | {self.median:.2f} | {self.widest:.1f}"
        mean = f"{self.mean_share:.1%} ± {self.mean_error:.1%} | {self.mean_median:.2f} | {self.mean_widest:.1f}"
        return f"{one} | {mean}"


def of_differences(made: list[Study], rule: Callable[[Study], list[tuple[Estimate, float]]]) -> OfDifferences:
    """The coverage of a rule's intervals of differences, each of them once, and in a mean of three."""
    shares, means, halves, mean_halves = [], [], [], []
    for one in made:
        pairs = rule(one)
        shares.append(float(np.mean([e.low <= truth <= e.high for e, truth in pairs])))
        halves += [100 * e.half for e, _ in pairs]
        held = []
        for start in range(0, len(pairs) - 2, 3):
            mean = intervals.mean_of([e for e, _ in pairs[start : start + 3]])
            held.append(mean.low <= np.mean([truth for _, truth in pairs[start : start + 3]]) <= mean.high)
            mean_halves.append(100 * mean.half)
        means.append(float(np.mean(held)))
    return OfDifferences(
        share=float(np.mean(shares)),
        error=_error(shares, len(halves)),
        median=float(np.median(halves)),
        widest=max(halves),
        mean_share=float(np.mean(means)),
        mean_error=_error(means, len(mean_halves)),
        mean_median=float(np.median(mean_halves)),
        mean_widest=max(mean_halves),
    )


def _error(by_study: list[float], number: int) -> float:
    return max(float(np.std(by_study) / len(by_study) ** 0.5), (0.95 * 0.05 / number) ** 0.5)


def studies(number: int, design: Design, spread: Spread, level: tuple[float, float]) -> list[Study]:
    rng = np.random.default_rng(7)
    return [study(rng, design, spread, level) for _ in range(number)]


RULES = {BEFORE: one_variance_or_none, NOW: moderated}
RULES_OF_DIFFERENCES = {BEFORE: differences_before, SATTERTHWAITE: differences, NOW: differences}


def by_rule(made: list[Study], rule: str) -> OfDifferences:
    """The coverage of differences by one of RULES_OF_DIFFERENCES."""
    with ExitStack() as changed:
        if rule != NOW:
            changed.enter_context(patch.object(intervals, "sum_of_errors", satterthwaite))
        return of_differences(made, RULES_OF_DIFFERENCES[rule])


def main(number: int) -> None:
    cases = [(d, name, spread) for d in DESIGNS for name, spread in {**SPREADS, **ROGUE}.items()]
    cases += [(SINGLE, name, SPREADS[name]) for name in ("equal", "variance tenfold in half of the models")]
    points, between = [], []
    for design, name, spread in cases:
        for level, words in ((MIDDLE, "38-86 %"), (CEILING, "94-99 %")):
            made, case = studies(number, design, spread, level), f"{name} | {words} | {design}"
            for called, rule in RULES.items():
                c = coverage(made, rule)
                text = f"{c.share:.1%} ± {c.error:.1%} | {c.of_noisiest:.0%} | {c.median:.2f} | {c.widest:.1f}"
                points.append(f"| {case} | {called} | {text} |")
            between += [f"| {case} | {called} | {by_rule(made, called)} |" for called in RULES_OF_DIFFERENCES]
            print(case, file=sys.stderr, flush=True)
    start = "| seeds' variances | accuracy | design | rule | coverage"
    print("Points\n", f"{start} | of the noisiest tenth | median | widest |", "|---" * 8 + "|", *points, sep="\n")
    means = "means of 3 | median | widest |"
    print("\nDifferences\n", f"{start} | median | widest | {means}", "|---" * 10 + "|", *between, sep="\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
