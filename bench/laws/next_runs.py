"""Proposes the next runs for a table of runs: those that narrow the interval of a named answer most for a given cost.

The method is in `bench.laws.design`. Results are JSON types.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.core.errors import UserError, unknown
from bench.laws import design, forms
from bench.laws.bootstrap import LAW_LEVEL
from bench.laws.design import Candidates, DrawnLaw, KnownGroup, NarrowedAnswer
from bench.laws.extrapolation import Forecast, misses_quantile
from bench.laws.runs_table import FLOP_PER

PER_OCTAVE = 2  # For a law of one input, there are this many candidates for each doubling of it.
FURTHEST = 100.0  # Candidates go up to this many times the largest run,
FURTHEST_JOINT = 16.0  # and for a law of several inputs, up to this many times the largest value of each.
LEAST_SHARE = 1 / 500  # A candidate costs at least this fraction of the money.
SHARES = (0.25, 0.5)  # Widths are also reported for these fractions of the money.
NOW = 200  # The present answer is the median of this many refits.
INSIDE = 1e-9  # difference of log x up to which an x counts as inside the data


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the user asks for: the answer to be narrowed, the money, and what a run costs.

    Attributes:
        narrow: name of the answer whose interval is to be narrowed, such as "exponent" or "y@1e21" (y at x = 1e21);
            None: the first answer that was asked of the fit, else the crossing of two groups, else the exponent.
        money: what all new runs may cost together, in `unit`.
        price: x (inputs, n) -> the cost of a run at each x in `unit`, (n,).
        unit: the unit of `price` and `money`: "FLOP", "hours" or a column's name.
        per_unit: price of one unit in the user's currency; None if unknown.
        per_unit_from: source of `per_unit`, in words; None if it is unknown.
    """

    narrow: str | None
    money: float
    price: Callable[[np.ndarray], np.ndarray]
    unit: str
    per_unit: float | None = None
    per_unit_from: str | None = None


def answer(
    order: Order,
    groups: Sequence[KnownGroup],
    *,
    form: forms.Form | None,
    middle: float,
    law: Forecast | None,
    asked: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the proposed runs as JSON types, and how wide the interval of the answer is expected to be with them.

    Args:
        form: the form of all groups' laws; None where forms are averaged by their weights.
        middle: x at which the slopes of laws are compared.
        law: the law that predicts beyond the data, if there is a single group; else None.
        asked: names of answers that were asked of the fit; the first is narrowed if `order` names none.

    Raises:
        UserError: there is no such answer, or too little money for any run.
    """
    name = order.narrow or next(iter(asked), "crossing" if len(groups) == 2 else "exponent")
    wanted = named(name, groups, form=form, middle=middle)
    wanted = _extrapolated(wanted, groups, law)
    candidates = _candidates(groups, order)
    try:
        problem = design.problem(wanted, groups, candidates)
    except ValueError as error:
        raise UserError(
            f"These laws give no {wanted.text}.", "Name another with --narrow, such as exponent or y@1e21."
        ) from error
    now = _now(wanted, groups)
    none = np.zeros(len(candidates), dtype=int)
    before = _half(wanted, groups, candidates, none, problem, law)
    rows: list[tuple[float, np.ndarray, float | None]] = []
    for share in (*SHARES, 1.0):
        count = design.choose(problem, order.money * share, known=[row[1] for row in rows])
        half = _half(wanted, groups, candidates, count, problem, law) if count.any() else before
        rows.append((share, count, half))
    _, count, half = rows[-1]
    if not count.any():
        raise UserError("No run of this money would narrow the answer.", "Give --design more.")
    spent = float(count @ candidates.price)
    names = [group.name for group in groups]
    runs = [
        {
            "x": candidates.x[:, i].tolist() if len(candidates.x) > 1 else float(candidates.x[0, i]),
            "group": names[candidates.group[i]],
            "number": int(count[i]),
            "cost": float(candidates.price[i]),
            "money": _money(order, float(candidates.price[i])),
        }
        for i in np.flatnonzero(count)
    ]
    return {
        "narrows": wanted.text,
        "log": wanted.log,
        "level": LAW_LEVEL,
        "value": now,
        "before": before,
        "after": half,
        "by_money": [
            {"cost": float(c @ candidates.price), "money": _money(order, float(c @ candidates.price)), "half": h}
            for _, c, h in rows
            if c.any()
        ],
        "runs": runs,
        "unit": order.unit,
        "cost": spent,
        "money": _money(order, spent),
        "money_from": order.per_unit_from if order.per_unit is not None else None,
        "several_groups": len(groups) > 1,
    }


def _money(order: Order, cost: float) -> float | None:
    return None if order.per_unit is None else cost * order.per_unit


def _now(wanted: NarrowedAnswer, groups: Sequence[KnownGroup]) -> float | None:
    """Return the present answer, not as a logarithm: the median over refits to the existing runs; None if no refit
    gives it."""
    rng = np.random.default_rng(1)
    worlds = [design.drawn(group, NOW, rng) for group in groups]
    values = np.array([wanted.value(laws) for laws in zip(*worlds, strict=True)])
    values = values[np.isfinite(values)]
    return _plain(wanted, float(np.median(values))) if len(values) else None


def _plain(wanted: NarrowedAnswer, value: float) -> float:
    return float(np.exp(value)) if wanted.log else value


def _half(
    wanted: NarrowedAnswer,
    groups: Sequence[KnownGroup],
    candidates: Candidates,
    count_C: np.ndarray,
    problem: design.Problem,
    law: Forecast | None,
) -> float | None:
    """Return the expected half-width of the answer's interval with a design (`count_C`, how often each candidate is
    run); None if it is infinite or unknown. If the answer still lies beyond the data then, the interval is that of
    extrapolation, as for predictions; otherwise it comes from simulated studies."""
    beyond = problem.beyond(count_C)
    if beyond > INSIDE and wanted.extrapolation:
        half = misses_quantile(LAW_LEVEL) * wanted.extrapolation * beyond
    else:
        chosen = np.repeat(np.arange(len(candidates)), count_C)
        x = [candidates.x[:, chosen[candidates.group[chosen] == number]] for number in range(len(groups))]
        half = design.expected_width(wanted, groups, x).half
    return float(half) if np.isfinite(half) else None


def chosen(
    order: Order, groups: Sequence[KnownGroup], *, form: forms.Form | None, middle: float, law: Forecast | None
) -> np.ndarray:
    """Return x of the proposed runs, (inputs, n); a run that is to be repeated occurs in it repeatedly. `form`,
    `middle` and `law` are as in `answer`."""
    wanted = _extrapolated(named(order.narrow or "exponent", groups, form=form, middle=middle), groups, law)
    candidates = _candidates(groups, order)
    count = design.choose(design.problem(wanted, groups, candidates), order.money)
    return np.repeat(candidates.x, count, axis=1)


# -- candidates --------------------------------------------------------------------------------------------------------


def _candidates(groups: Sequence[KnownGroup], order: Order) -> Candidates:
    """Return the runs that may be proposed: from the x of the smallest existing run up, at prices that the money
    allows.

    Raises:
        UserError: no run costs at most the money and at least the fraction `LEAST_SHARE` of it.
    """
    every, of = [], []
    for number, one in enumerate(groups):
        seen = one.places
        if len(seen) == 1:
            places = _steps(float(seen.min()), FURTHEST * float(seen.max()), PER_OCTAVE)[None]
        else:
            axes = [_steps(float(row.min()), FURTHEST_JOINT * float(row.max()), 1) for row in seen[:2]]
            axes += [np.unique(row) for row in seen[2:]]
            places = np.array(list(itertools.product(*axes))).T
            if len(seen) > 2:
                places = places[:, places[1] >= places[2]]
        every.append(places)
        of.append(np.full(places.shape[1], number))
    x, group = np.concatenate(every, axis=1), np.concatenate(of)
    price = order.price(x)
    paid = (price <= order.money) & (price >= LEAST_SHARE * order.money)
    if not paid.any():
        least = f"the smallest costs {float(price.min()):.3g} {order.unit}, the largest {float(price.max()):.3g}"
        raise UserError(
            f"--design {order.money:.3g} {order.unit} is no budget for runs like these: {least}.",
            "Give the money of all new runs together.",
        )
    return Candidates(x=x[:, paid], group=group[paid], price=price[paid])


def _steps(first: float, last: float, per_octave: int) -> np.ndarray:
    number = int(np.floor(np.log2(last / first) * per_octave + 1e-9))
    return np.array([float(f"{first * 2 ** (k / per_octave):.3g}") for k in range(number + 1)])


# -- answers -----------------------------------------------------------------------------------------------------------


def named(name: str, groups: Sequence[KnownGroup], *, form: forms.Form | None, middle: float) -> NarrowedAnswer:
    """Return the answer with this name, such as "exponent", or "y@1e21" for y at x = 1e21 (kind@place).

    Args:
        form: the form of all groups' laws, whose parameters are answers too; None where forms are averaged.
        middle: x at which the slopes of laws are compared.

    Raises:
        UserError: there is no such answer, or it needs another number of groups or another place.
    """
    kind, _, place = name.partition("@")
    inputs = len(groups[0].places)
    single = _single_input(groups, middle) if inputs == 1 else {}
    joint = form is not None and "alpha" in form.parameters
    plain = {**single, **({} if form is None else _parameters(form)), **(_joint() if joint else {})}
    placed: dict[str, Callable[[np.ndarray], NarrowedAnswer]] = {"y": lambda at: _y_at(at, groups, joint=joint)}
    if inputs == 1:
        placed |= {"x": lambda at: _x_of(at, groups), "slope": lambda at: _slope(float(at[0]))}
    if joint:
        placed["optimum"] = _optimum
    if len(groups) > 2 or (len(groups) == 2 and kind not in ("crossing", "exponent", "slope")):
        raise UserError(
            f"{len(groups)} groups have no one {name!r}.",
            "Choose a group with --where, or two of them with --narrow crossing or exponent.",
        )
    if len(groups) < 2 and kind == "crossing":
        raise UserError("A crossing is of two groups.", "Name a column with --group, and two of them with --where.")
    if place and kind in placed:
        made = placed[kind](_numbers(place, name))
    elif not place and kind in plain:
        made = plain[kind]
    else:
        raise unknown("answer", name, (*plain, *(f"{k}@{'1e21' if k != 'x' else '0.2'}" for k in placed)), cutoff=0.6)
    if len(groups) == 2 and kind != "crossing":
        one = made.value
        first, second = (group.name for group in groups)
        text = f"{made.text}, {first} less {second}"
        made = dataclasses.replace(made, text=text, value=lambda laws: one(laws[:1]) - one(laws[1:]))
    return made


def _numbers(text: str, name: str) -> np.ndarray:
    try:
        found = np.array([float(part) for part in text.split(":")])
    except ValueError:
        found = np.zeros(1)
    if not (np.isfinite(found).all() and (found > 0).all()):
        raise UserError(f"--narrow {name!r} names no place.", "Write y@1e21, or y@1e9:2e10 for two inputs.")
    return found


def _single_input(groups: Sequence[KnownGroup], middle: float) -> Mapping[str, NarrowedAnswer]:
    def ends(name: str) -> Callable[[Sequence[DrawnLaw]], float]:
        def value(laws: Sequence[DrawnLaw]) -> float:
            derive = getattr(laws[0].form, name)
            with np.errstate(all="ignore"):
                return float(derive(laws[0].natural())) if derive else float("nan")

        return value

    low, high = float(min(g.places.min() for g in groups)), float(max(g.places.max() for g in groups))
    return {
        "exponent": _slope(middle),
        "floor": NarrowedAnswer(text="floor, the limit of y for large x", value=ends("limit")),
        "crossing": NarrowedAnswer(
            text="x where they cross",
            log=True,
            value=lambda laws: design.log_crossing(laws[0], laws[1], low, 10 * high),
        ),
    }


def _slope(x: float) -> NarrowedAnswer:
    return NarrowedAnswer(text=f"exponent at x = {x:.3g}", value=lambda laws: design.slope_at(laws[0], x))


def _parameters(form: forms.Form) -> Mapping[str, NarrowedAnswer]:
    def of(name: str) -> NarrowedAnswer:
        return NarrowedAnswer(text=f"parameter {name}", value=lambda laws: laws[0].natural()[name])

    return {name: of(name) for name in form.parameters}


def _joint() -> Mapping[str, NarrowedAnswer]:
    def exponent(laws: Sequence[DrawnLaw]) -> float:
        p = laws[0].natural()
        return p["beta"] / (p["alpha"] + p["beta"])

    return {"exponent": NarrowedAnswer(text="exponent of the best size, beta / (alpha + beta)", value=exponent)}


def _optimum(at: np.ndarray) -> NarrowedAnswer:
    def value(laws: Sequence[DrawnLaw]) -> float:
        with np.errstate(all="ignore"):
            return float(np.log(design.optimum(laws[0], float(at[0]), flop_per=FLOP_PER)[0]))

    return NarrowedAnswer(text=f"best size for {at[0]:.3g} FLOP", log=True, value=value)


def _y_at(at: np.ndarray, groups: Sequence[KnownGroup], *, joint: bool) -> NarrowedAnswer:
    inputs = len(groups[0].places)
    if joint and len(at) == 1 and inputs == 2:

        def best(laws: Sequence[DrawnLaw]) -> float:
            place = np.array(design.optimum(laws[0], float(at[0]), flop_per=FLOP_PER))
            return float(laws[0].log_predict(place[:, None])[0])

        law = DrawnLaw(form=groups[0].fits[0].form, scale=groups[0].fits[0].scale, theta=groups[0].fits[0].theta)
        target = np.array(design.optimum(law, float(at[0]), flop_per=FLOP_PER))
        return NarrowedAnswer(text=f"y at {at[0]:.3g} FLOP, of the best size", log=True, value=best, target=target)
    if len(at) != inputs:
        raise UserError(f"--narrow y@{':'.join(f'{v:g}' for v in at)} does not give {inputs} inputs.", "Write y@N:D.")
    place = ", ".join(f"{v:.3g}" for v in at)
    return NarrowedAnswer(
        text=f"y at x = {place}", log=True, value=lambda laws: float(laws[0].log_predict(at[:, None])[0]), target=at
    )


def _x_of(at: np.ndarray, groups: Sequence[KnownGroup]) -> NarrowedAnswer:
    first = float(groups[0].places.min())
    share, y = groups[0].fits[0].points.share, float(at[0])
    error = 1 - y / (100 if y > 1 else 1) if share else y

    def value(laws: Sequence[DrawnLaw]) -> float:
        return design.log_x_of(laws[0], error, first)

    fits = groups[0].fits
    laws = [DrawnLaw(form=made.form, scale=made.scale, theta=made.theta) for made in fits]
    values = np.array([value([law]) for law in laws])
    target = np.exp(np.median(values[np.isfinite(values)])) if np.isfinite(values).any() else None
    what = "accuracy" if share else "y"
    return NarrowedAnswer(
        text=f"x of {what} = {y:g}",
        log=True,
        value=value,
        target=None if target is None else np.array([target]),
        is_x=True,
    )


def _extrapolated(wanted: NarrowedAnswer, groups: Sequence[KnownGroup], law: Forecast | None) -> NarrowedAnswer:
    """Return the answer with its extrapolation error per unit of log distance, if its target lies beyond the data. If
    the target lies inside the data, it is replaced by None."""
    if wanted.target is None or law is None:
        return wanted
    distance = float(law.distance(wanted.target[:, None])[0])
    if distance <= INSIDE:
        return dataclasses.replace(wanted, target=None)
    rate = law.expected_rate(distance)
    if wanted.is_x:
        fits = [DrawnLaw(form=made.form, scale=made.scale, theta=made.theta) for made in law.fits]
        slope = float(np.median([design.slope_at(one, float(wanted.target[0])) for one in fits]))
        rate /= max(slope, 1e-3)
    return dataclasses.replace(wanted, extrapolation=rate)
