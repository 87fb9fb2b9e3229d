"""How often 90 % intervals hold the truth where the form is not known: `python -m tools.measure_crossings`.

Pairs of families follow laws of one form, or of two, with parameters drawn at random, and cross once inside the range
of their points, beyond it, or never. They have 5 to 12 points each, with 0.5 to 4 % of noise. Every quantity that
`vit-bench fit` prints is judged from the one form that `auto` selects (ONE_FORM), from all forms by their weights
(OVER_FORMS), and from the true form of both, where they have the same (GIVEN_FORM). Crossings over forms are judged
once more by the quantiles of differences between refits (QUANTILES), which Welch's interval replaced. 960 pairs take
about forty minutes on two cores.

`python -m tools.measure_crossings rough 600` asks the same of what smooth forms do not hold: families that stay on a
plateau before they fall, or whose frontier passes from one model to another, against a smooth family that they cross
once. Crossings are judged as all laws state them, as those that reports admit (`Law.is_smooth`) state them, and by the
measured order, which answers where no law is admitted. A few minutes on one core.

A crossing's statement counts as true where the crossing lies in the interval, which may be open, and where "no" is said
of laws that do not cross there. Laws that do not cross inside are said to cross or not. The measured table is in
results/reference/coverage/.
"""

from __future__ import annotations

import itertools
import sys
import unittest.mock
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
from scipy.optimize import brentq

import bench.laws.crossing as crossings
from bench.analysis.scaling_laws import POSSIBLE
from bench.core.errors import UserError
from bench.laws import averaging, bootstrap, model_selection
from bench.laws.averaging import Averaged
from bench.laws.crossing import NO, YES, Crossing, crossing
from bench.laws.extrapolation import BENDING, Forecast, forecast
from bench.laws.fit import Points, fit
from bench.laws.forms import CURVES, FORMS, POWER_FLOOR
from bench.laws.lack_of_fit import GroupMeans, lack_of_fit
from bench.stats.intervals import t_quantile

NAMES = tuple(form.name for form in CURVES)
KINDS = ("inside", "inside", "beyond", "never")
SPANS, NOISES, NUMBERS = (100.0, 1000.0), (0.005, 0.01, 0.02, 0.04), (5, 6, 7, 8, 10, 12)
LEAST_GAP, MOST_GAP = 0.04, 0.7  # of log y: at the ends where laws cross inside, and anywhere
AGREE = 0.95  # share of resamples that one form's crossing needs
ONE_FORM, QUANTILES, OVER_FORMS, GIVEN_FORM = "one form", "over forms, quantiles", "over forms", "given form"
NOT_SAID = "not said to cross"  # of laws that do not cross inside
METHODS = (ONE_FORM, QUANTILES, OVER_FORMS, GIVEN_FORM)
EPSILON = 0.01
Law = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Truth:
    """A law with its limit, and the exponent with which it falls to it; NaN where the form has none to compare."""

    law: Law
    floor: float
    exponent: float

    def times(self, factor: float) -> Truth:
        return Truth(law=lambda x: factor * self.law(x), floor=factor * self.floor, exponent=self.exponent)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two families.

    Attributes:
        form, second: forms of the first family and of the second.
        kind: of KINDS.
        crossing: x where they cross, inside or beyond the range; None: nowhere.
    """

    form: str
    second: str
    kind: str
    truths: tuple[Truth, Truth]
    points: tuple[Points, Points]
    crossing: float | None
    span: float


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One interval: of which quantity and form of the truth, by which method, whether it held the truth, how wide."""

    form: str
    quantity: str
    method: str
    held: bool
    width: float


def _m4(x: np.ndarray, floor: float, top: float, a: float, b: float, c: float) -> np.ndarray:
    def value(at: float) -> float:
        return float(
            brentq(lambda y: np.log(y - floor) - a * np.log(top - y) - np.log(b * at**-c), floor + 1e-12, top - 1e-12)
        )

    return np.array([value(at) for at in np.atleast_1d(x)])


def draw(form: str, rng: np.random.Generator) -> Truth:
    """A law of a form; y is about 1 at x = 1."""
    u = rng.uniform
    if form == "power":
        c = u(0.1, 0.4)
        return Truth(law=lambda x: 0.9 * x**-c, floor=0.0, exponent=c)
    if form == "power-floor":
        c, e = u(0.2, 0.7), u(0.05, 0.5)
        return Truth(law=lambda x: e + 0.9 * x**-c, floor=e, exponent=c)
    if form == "zhai":
        b, e, d = u(0.25, 0.7), u(0.05, 0.4), np.exp(u(np.log(0.3), np.log(30)))
        return Truth(law=lambda x: e + 0.8 * ((x + d) / (1 + d)) ** -b, floor=e, exponent=b)
    if form == "m3":
        g, c = np.exp(-u(np.log(30), np.log(1000))), u(0.2, 0.5)
        return Truth(law=lambda x: 0.9 * (1 / x + g) ** c, floor=0.9 * g**c, exponent=np.nan)
    if form == "m4":
        e, a, c, b = u(0.08, 0.3), u(0.3, 1.2), u(0.3, 0.6), u(0.7, 2.0)
        return Truth(law=lambda x: _m4(x, e, 0.95, a, b, c), floor=e, exponent=c)
    a, c0, c1, d = u(0.03, 0.2), u(0.05, 0.2), u(0.15, 0.5), np.exp(u(np.log(10), np.log(100)))
    return Truth(law=lambda x: a + 0.9 * x**-c0 * (1 + (x / d) ** 2) ** (-c1 / 2), floor=a, exponent=np.nan)


def _suits(gap: np.ndarray, kind: str) -> bool:
    """Whether log(first / second) along the range is a pair of that kind, near enough to be confused."""
    changes = int((np.sign(gap[1:]) != np.sign(gap[:-1])).sum())
    if np.abs(gap).max() > MOST_GAP or changes != (kind == "inside"):
        return False
    return kind == "never" or min(abs(gap[0]), abs(gap[-1])) >= (LEAST_GAP if kind == "inside" else 0.0)


def pair(form: str, kind: str, rng: np.random.Generator) -> Pair:
    """Two families; the first follows `form`, the second the same or, half the time, another."""
    span, noise, number = (float(rng.choice(of)) for of in (SPANS, NOISES, NUMBERS))
    grid = np.geomspace(1, span, 100)
    while True:
        other = form if rng.random() < 0.5 else str(rng.choice(NAMES[:4]))
        first, second, at = draw(form, rng), draw(other, rng), None
        if kind == "never":
            gap = rng.choice([-1, 1]) * rng.uniform(0.03, 0.3)
            factor = float(np.exp(gap + np.log(first.law(grid) / second.law(grid)).mean()))
        else:
            far = rng.uniform(np.log(2), np.log(20)) + np.log(span)
            at = np.exp(rng.uniform(0.15, 0.85) * np.log(span) if kind == "inside" else far)
            factor = float(first.law(np.array([at]))[0] / second.law(np.array([at]))[0])
        second = second.times(factor)
        if _suits(np.log(first.law(grid) / second.law(grid)), kind):
            break
    points = []
    for truth in (first, second):
        inner = np.geomspace(1, span, int(number))[1:-1] * span ** (rng.uniform(-0.1, 0.1, int(number) - 2) / number)
        x = np.concatenate([[1.0], inner, [span]])
        y = truth.law(x) * np.exp(rng.normal(0, noise, len(x)))
        points.append(Points(x=x[None], y=y, cluster=np.arange(len(x))))
    return Pair(
        form=form,
        second=other,
        kind=kind,
        truths=(first, second),
        points=(points[0], points[1]),
        crossing=at,
        span=span,
    )


# -- the methods -------------------------------------------------------------------------------------------------------


def over_forms(data: Points, *, draws: int, seed: int, loss: str = "huber") -> Averaged:
    """All forms, as `vit-bench fit --form auto` resamples them."""
    fits = averaging.fits_of(data, CURVES, loss=loss)
    return averaging.average(fits, shown=fits[0], draws=draws, seed=seed)


def one_form(pairs: tuple[Points, Points], records: Sequence[Forecast], *, draws: int) -> list[Averaged]:
    """The form that extrapolates best on both, alone; the simplest where none has a record."""
    form = model_selection.select(model_selection.rank(records))
    return [averaging.alone(bootstrap.resample(fit(data, form), draws=draws, seed=0)) for data in pairs]


def given_form(one: Pair, *, draws: int, seed: int) -> list[Averaged] | None:
    """The true form of both, as `vit-bench fit --form` resamples it. None where they differ, or points are too few."""
    if one.form != one.second:
        return None
    try:
        laws = [fit(data, FORMS[one.form]) for data in one.points]
    except UserError:
        return None
    return [averaging.alone(bootstrap.resample(law, draws=draws, seed=10_000 * i + seed)) for i, law in enumerate(laws)]


def by_quantiles(rows: tuple[np.ndarray, np.ndarray], freedom: tuple[float, float], level: float) -> np.ndarray:
    """Lower end, middle and upper end of first - second at every x: quantiles of differences between refits."""
    number = min(len(each) for each in rows)
    return np.quantile(rows[0][:number] - rows[1][:number], [0.5 - level / 2, 0.5, 0.5 + level / 2], axis=0)


def resampled_crossings(first: Averaged, second: Averaged, low: float, high: float) -> tuple[float, float] | None:
    """Percentiles of the place where refits cross, if hardly any does not cross just once, this way round."""
    grid = np.geomspace(low, high, 200)
    gaps = np.log(first.predictions(grid)) - np.log(second.predictions(grid))
    once = (np.diff(np.sign(gaps), axis=1) != 0).sum(axis=1) == 1
    same = once & (np.sign(gaps[:, 0]) == np.sign(first.fit.predict(grid[:1]) - second.fit.predict(grid[:1])))
    if same.mean() < AGREE:
        return None
    places = grid[(np.diff(np.sign(gaps[same]), axis=1) != 0).argmax(axis=1)]
    ends = np.quantile(places, (0.05, 0.95))
    return float(ends[0]), float(ends[1])


# -- judging -----------------------------------------------------------------------------------------------------------


def _quantities(made: Averaged, truth: Truth, span: float) -> Iterator[tuple[str, np.ndarray, float]]:
    """(name, value of every refit, truth)."""
    places = {"y inside": np.sqrt(span), "y at the end": span, "y at twice the end": 2 * span}
    for name, at in places.items():
        with np.errstate(divide="ignore"):
            yield name, np.log(made.predictions(np.array([at]))[:, 0]), float(np.log(truth.law(np.array([at]))[0]))
    middle = np.sqrt(span) * np.exp([-EPSILON, EPSILON])
    yield "slope", made.slopes(np.sqrt(span)), float(-np.diff(np.log(truth.law(middle)))[0] / (2 * EPSILON))
    yield "floor", made.floors(), truth.floor
    yield "exponent", made.exponents(), truth.exponent


def _told(told: Crossing, one: Pair) -> Iterator[tuple[str, bool, float]]:
    """(kind of statement, whether it is true, width in log x)."""
    inside = one.crossing if one.kind == "inside" else None
    open_ends = told.low is None, told.high is None
    low, high = told.low or 1.0, told.high or one.span
    if inside is not None:
        held = told.verdict != NO and low <= inside <= high
        yield "crossing, any statement", held, float(np.log(high / low)) if told.verdict != NO else 0.0
    if told.verdict == YES:
        yield "crossing, both ends", inside is not None and low <= inside <= high, float(np.log(high / low))
    if inside is None:
        for name in (NOT_SAID, f"{NOT_SAID}, {one.kind}"):
            yield name, told.verdict != YES, 0.0
        yield f"{NOT_SAID} surely", told.verdict != YES or told.share < AGREE, 0.0
    if one.kind == "beyond" and sum(open_ends) == 1:
        yield "crossing beyond, one end", told.high is None, 0.0


def judge(one: Pair, *, draws: int, seed: int, old: bool = True) -> list[Judged]:
    """Every interval of a pair.

    Args:
        old: also by the methods that are not taken any more, ONE_FORM and QUANTILES.
    """
    judgements: list[Judged] = []
    new = [over_forms(data, draws=draws, seed=10_000 * i + seed) for i, data in enumerate(one.points)]
    methods: dict[str, list[Averaged]] = {OVER_FORMS: new}
    given = given_form(one, draws=draws, seed=seed)
    if given:
        methods[GIVEN_FORM] = given
    told = {method: crossing(*made) for method, made in methods.items()}
    if old:
        records = [forecast(data, CURVES) for data in one.points]
        methods[ONE_FORM] = one_form(one.points, records, draws=draws)
        with unittest.mock.patch.object(crossings, "difference", by_quantiles):
            told[QUANTILES] = crossing(*new)
    for method, made in methods.items():
        for family, truth in zip(made, one.truths, strict=True):
            for name, values, true in _quantities(family, truth, one.span):
                finite = values[np.isfinite(values)]
                if len(finite) < 0.1 * len(family.order) or np.isnan(true):
                    continue
                low, high = family.interval(finite)
                # a floor of 0 is that of all values that cannot be told from it
                held = low <= true <= high or (name == "floor" and true == 0 and low < 1e-3 * high)
                judgements.append(Judged(form=one.form, quantity=name, method=method, held=held, width=high - low))
    for method, said in told.items():
        for kind, held, width in _told(said, one):
            judgements.append(Judged(form=one.form, quantity=kind, method=method, held=held, width=width))
    if old:
        judgements += [
            Judged(form=one.form, quantity=kind, method=ONE_FORM, held=held, width=width)
            for kind, held, width in _told_by_one_form(methods[ONE_FORM], one)
        ]
        judged = {method: methods[method] for method in (ONE_FORM, OVER_FORMS)}
        judgements += _extrapolated(one, records, judged)
    return judgements


def _told_by_one_form(made: Sequence[Averaged], one: Pair) -> Iterator[tuple[str, bool, float]]:
    """The same as `_told`, of percentiles of the place where refits cross."""
    ends = resampled_crossings(made[0], made[1], 1.0, one.span)
    if ends is not None:
        held = one.kind == "inside" and ends[0] <= (one.crossing or 0.0) <= ends[1] * 1.04  # a place of the grid
        yield "crossing, both ends", held, float(np.log(ends[1] / ends[0]))
    if one.kind != "inside":
        for name in (NOT_SAID, f"{NOT_SAID}, {one.kind}", f"{NOT_SAID} surely"):
            yield name, ends is None, 0.0


def _extrapolated(
    one: Pair, records: Sequence[Forecast], methods: Mapping[str, Sequence[Averaged]]
) -> Iterator[Judged]:
    """The total interval at twice the end, where there is a record."""
    at = np.array([[2 * one.span]])
    for number, (record, truth) in enumerate(zip(records, one.truths, strict=True)):
        made = record.of(BENDING)
        if not made.fits or not made.answers:
            continue
        for method, resampled in methods.items():
            low, high = np.log(made.bands(resampled[number], at).total[0])
            held = bool(low <= np.log(truth.law(at[0])[0]) <= high)
            width = float(high - low)
            yield Judged(form=one.form, quantity="y at twice the end, total", method=method, held=held, width=width)


def simulate(seed: int, *, draws: int = 200, old: bool = True) -> list[Judged]:
    """One pair: its form and kind follow from the seed."""
    rng = np.random.default_rng([5, seed])
    one = pair(NAMES[seed % len(NAMES)], KINDS[seed // len(NAMES) % len(KINDS)], rng)
    return judge(one, draws=draws, seed=seed, old=old)


# -- plateaus and switches of the model --------------------------------------------------------------------------------

SMOOTH, PLATEAU, SWITCH = ROUGH = "smooth", "plateau", "switch of the model"
BY_LAW, ADMITTED, MEASURED, SAID = ROUGH_METHODS = (
    "laws, all",
    "laws, admitted",
    "measured order, where no law is",
    "a report",
)
SEEDS = 2


@dataclass(frozen=True, kw_only=True)
class RoughPair:
    """A family of one of `ROUGH` and a smooth one, read at the same places by `SEEDS` runs each.

    Attributes:
        kind: of the first family.
        x_N, log_y_FSN: places, and log error by family and seed.
        crossing: the place at which they cross.
        switches: whether another model leads the first family's frontier from some measured place on.
    """

    kind: str
    x_N: np.ndarray
    log_y_FSN: np.ndarray
    crossing: float
    switches: bool


def rough_pair(kind: str, rng: np.random.Generator) -> RoughPair:
    """A first family that begins on a plateau for a tenth to a half of the range of log x, or whose frontier has a kink
    there; a second of a power law with a floor."""
    while True:
        span, noise, number = float(rng.choice(SPANS)), float(rng.choice(NOISES)), int(rng.choice(NUMBERS))
        grid = np.geomspace(1, span, 200)
        kink = float(span ** rng.uniform(0.1, 0.5))
        smooth, second = draw("power-floor", rng), draw("power-floor", rng)
        first = {SMOOTH: smooth.law, PLATEAU: _plateau(kink, rng), SWITCH: _switch(kink, rng)}[kind]
        at = float(np.exp(rng.uniform(0.15, 0.85) * np.log(span)))
        second = second.times(float(first(np.array([at]))[0] / second.law(np.array([at]))[0]))
        if _suits(np.log(first(grid) / second.law(grid)), "inside"):
            break
    x_N = np.geomspace(1, span, number)
    true_FN = np.log([first(x_N), second.law(x_N)])
    log_y_FSN = true_FN[:, None] + rng.normal(0, noise, (2, SEEDS, number))
    return RoughPair(
        kind=kind, x_N=x_N, log_y_FSN=log_y_FSN, crossing=at, switches=kind == SWITCH and x_N[0] < kink < x_N[-1]
    )


def _plateau(kink: float, rng: np.random.Generator) -> Law:
    """Chance until the kink, then a fall as of networks that begin to learn: a power law."""
    exponent = rng.uniform(0.2, 0.6)
    return lambda x: 0.9 * np.maximum(1.0, x / kink) ** -exponent


def _switch(kink: float, rng: np.random.Generator) -> Law:
    """The better of a small model that flattens and a larger one that begins worse; they meet at the kink."""
    early, late = rng.uniform(0.03, 0.15), rng.uniform(0.25, 0.6)
    return lambda x: 0.9 * np.where(x < kink, x**-early, kink**-early * (x / kink) ** -late)


def measured_order(one: RoughPair) -> tuple[float, float] | None:
    """The last place at which one family is ahead beyond its 95 % interval, and the first at which the other is; as
    `Gaps.crossing` has it."""
    gap_N = np.subtract(*one.log_y_FSN.mean(axis=1))
    freedom = 2 * (SEEDS - 1) * len(gap_N)
    half = t_quantile(freedom, 0.95) * float(np.sqrt(2 * one.log_y_FSN.var(axis=1, ddof=1).mean() / SEEDS))
    decided = [(float(x), float(np.sign(gap))) for x, gap in zip(one.x_N, gap_N, strict=True) if abs(gap) > half]
    if not decided or decided[0][1] == decided[-1][1]:
        return None
    return next((a[0], b[0]) for a, b in itertools.pairwise(decided) if a[1] != b[1])


def admitted(one: RoughPair, data: Sequence[Points]) -> bool:
    """Whether a report reads a crossing off these laws: no frontier changes its model, no lack-of-fit test fires."""
    noise_F = np.sqrt(one.log_y_FSN.var(axis=1, ddof=1).mean(axis=1) / SEEDS)
    for points, log_y_SN, noise in zip(data, one.log_y_FSN, noise_F, strict=True):
        law = fit(points, POWER_FLOOR, loss="squares")
        y_N = np.exp(log_y_SN.mean(axis=0))
        means = GroupMeans(x=one.x_N, error=y_N, noise=noise * y_N, freedom=(SEEDS - 1) * len(y_N))
        lack = lack_of_fit(means, law.predict(one.x_N), parameters=POWER_FLOOR.size)
        if lack is not None and lack.fails:
            return False
    return not one.switches


def _as_reports(data: Points, *, draws: int, seed: int) -> Averaged:
    """All forms that a report weighs, by least squares."""
    fits = averaging.fits_of(data, POSSIBLE, loss="squares")
    return averaging.average(fits, shown=fits[0], draws=draws, restarts=0, seed=seed)


def simulate_rough(seed: int, *, draws: int = 100) -> list[Judged]:
    """One pair, its first family of `ROUGH` in turn: what is said of its crossing, and whether it is true."""
    one = rough_pair(ROUGH[seed % len(ROUGH)], np.random.default_rng([6, seed]))
    x = np.tile(one.x_N, SEEDS)[None]
    data = [Points(x=x, y=np.exp(log_y_SN).ravel(), cluster=np.arange(x.size)) for log_y_SN in one.log_y_FSN]
    told = crossing(*(_as_reports(points, draws=draws, seed=10_000 * i + seed) for i, points in enumerate(data)))
    ends = (told.low or 1.0, told.high or float(one.x_N[-1])) if told.verdict == YES else None
    by_law, order = admitted(one, data), measured_order(one)
    said = {
        BY_LAW: ends,
        ADMITTED: ends if by_law else None,
        MEASURED: None if by_law else order,
        SAID: ends if by_law else order,
    }
    judged = []
    for method, found in said.items():
        if found is not None:
            held, width = found[0] <= one.crossing <= found[1], float(np.log(found[1] / found[0]))
            judged.append(Judged(form=one.kind, quantity="crossing", method=method, held=held, width=width))
    return judged


def main_rough(pairs: int) -> None:
    every = [judged for seed in range(pairs) for judged in simulate_rough(seed)]
    print(f"| the first family | pairs | {' | '.join(ROUGH_METHODS)} |")
    print("|---|---|" + "---|" * len(ROUGH_METHODS))
    for kind in ROUGH:
        number = len(range(ROUGH.index(kind), pairs, len(ROUGH)))
        cells = [_summary([j for j in every if (j.form, j.method) == (kind, m)]) for m in ROUGH_METHODS]
        print(f"| {kind} | {number} | {' | '.join(cells)} |", flush=True)


def main(pairs: int) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        every = [judged for judgements in pool.map(simulate, range(pairs), chunksize=4) for judged in judgements]
    table: dict[tuple[str, str, str], list[Judged]] = defaultdict(list)
    for judged in every:
        for form in (judged.form, "all"):
            table[judged.quantity, form, judged.method].append(judged)
    print(f"| quantity | form of the truth | {' | '.join(METHODS)} |")
    print("|---|---|" + "---|" * len(METHODS))
    for quantity in sorted({judged.quantity for judged in every}):
        for form in ("all", *NAMES):
            cells = [_summary(table[quantity, form, method]) for method in METHODS]
            print(f"| {quantity} | {form} | {' | '.join(cells)} |", flush=True)


def _summary(those: Sequence[Judged]) -> str:
    """Share of intervals that hold the truth with its standard error, median width, and their number."""
    if not those:
        return ""
    share, width = float(np.mean([j.held for j in those])), float(np.median([j.width for j in those]))
    error = (max(share * (1 - share), 1 / len(those)) / len(those)) ** 0.5
    return f"{share:.1%} ± {error:.1%}" + (f", {width:.3g}" if width else "") + f" ({len(those):,})"


if __name__ == "__main__":
    if sys.argv[1:2] == ["rough"]:
        main_rough(int(sys.argv[2]) if len(sys.argv) > 2 else 600)
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 960)
