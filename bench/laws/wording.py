"""Puts the answer of a fit into words, as `vit-bench fit` prints it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bench.core.formatting import compact, join, percent, plural, significant
from bench.laws.forms import form_name

MAX_PAIRS = 21  # comparisons of pairs of groups are printed if there are at most this many
QUANTITIES = {
    "slope": "slope −d log y / d log x at {place}",
    "floor": "floor, the limit of y for large x",
    "exponent": "exponent with which y falls to its floor",
}
NAMED_APART = 0.01  # forms with a smaller weight are listed as ruled out
MOST_FACTOR = 14.0  # half-width of an interval of a logarithm from which on the interval is called open
SMALL_FACTOR = 0.5  # half-width of an interval of a logarithm below which it is given in percent, above as a factor
NO_FLOOR = 1e-3  # a floor below this fraction of its upper end is printed as 0


def lines(result: Mapping[str, Any]) -> list[str]:
    """Return the lines that `vit-bench fit` prints for the result of `table_fit.answer`."""
    text = [f"note: {item}" for item in result["notes"]]
    if "isoflop" in result:
        return text + _isoflop(result["isoflop"]) + [f"  warning: {item}" for item in result["warnings"]]
    for name, answer in result["fits"].items():
        text += _fit(name, answer, "accuracy" if result["share"] else "y")
    pairs = result.get("exponents", [])
    if len(pairs) > MAX_PAIRS:
        text += [title(result), f"--json tells {len(pairs):,} pairs of groups apart, and where they cross"]
    else:
        told = [pair for pair in pairs if pair["value"] is not None or len(pairs) == 1]
        text += [*map(exponents, told), *map(_crossing, result.get("crossings", []))]
        if untold := [pair["reason"] for pair in pairs if pair not in told]:
            text.append(f"{plural(len(untold), 'pair')} cannot be told apart: {join(sorted(set(untold)))}")
    text += next_runs(result["design"], result["x"]) if "design" in result else []
    text += [f"warning: {item}" for item in result["warnings"]]
    failed: dict[str, list[str]] = {}
    for name, reason in result["refused"].items():
        failed.setdefault(reason, []).append(name)
    return text + [f"not fitted, {join(names)}: {reason}" for reason, names in failed.items()]


def title(result: Mapping[str, Any]) -> str:
    """Return one sentence about the exponents of the fitted laws in the result of `table_fit.answer`: the exponent of a
    single law, a comparison of two laws, or the range of several."""
    if len(result.get("exponents", [])) == 1:
        return exponents(result["exponents"][0])
    name, *others = sorted(result["fits"], key=lambda name: result["fits"][name]["slope"]["value"])
    if not others:
        return f"{result['y']} falls with exponent {with_ends(result['fits'][name]['slope'])}"
    low, high = (f"{with_ends(result['fits'][end]['slope'])} ({end})" for end in (name, others[-1]))
    return f"{len(result['fits'])} laws: exponents from {low} to {high}"


def exponents(apart: Mapping[str, Any]) -> str:
    """Return a sentence that says which of two groups has the law that falls faster, or that this is inconclusive.
    `apart`: from `table_fit.exponents_apart`, with the names of the groups."""
    first, second, value = apart["first"], apart["second"], apart["value"]
    unsure = f"inconclusive whether {first} or {second} falls faster"
    what = "exponents" if apart.get("straight") else f"slopes at x = {compact(apart['x'])}"
    if value is None:
        return f"{unsure}: {apart['reason']}"
    if apart["low"] <= 0 <= apart["high"]:
        return f"{unsure}: {first} − {second}, {what} differ by {with_ends(apart)}"
    if value < 0:
        ends = {"value": -value, "low": -apart["high"], "high": -apart["low"]}
        apart = {**apart, "first": second, "second": first, **ends}
    return f"{apart['first']} falls faster than {apart['second']}: {what} differ by {with_ends(apart)}"


def with_ends(quantity: Mapping[str, float]) -> str:
    """Return a quantity ("value", "low", "high") as the text "value [low, high]"."""
    value, low, high = (significant(quantity[end]) for end in ("value", "low", "high"))
    return f"{value} [{low}, {high}]".replace("-", "−")


def predictor(forms: Sequence[str]) -> str:
    """Return the name of the law that predicts: the name of its only form, or "median of … forms that bend"."""
    return form_name(forms[0]) if len(forms) == 1 else f"median of {len(forms)} forms that bend"


def over_forms(groups: Mapping[str, Mapping[str, float]], place: str) -> list[str]:
    """Return a line for each quantity by which forms are compared (slope, floor, exponent), with its interval over all
    forms.

    Args:
        groups: quantity by name, each an `averaging.OverForms` as a dictionary.
        place: where the slope is taken, such as "x = 1e18".
    """
    lines = []
    for name, q in groups.items():
        least = NO_FLOOR * q["high"] if name == "floor" else 0.0
        value, low, high = (significant(number if number >= least else 0.0) for number in q.values())
        lines.append(f"{QUANTITIES[name].format(place=place)}: {value} [{low}, {high}]")
    if "exponent" in groups and "floor" not in groups:
        lines.append(f"{QUANTITIES['floor']}: assumed to be 0, not found: no form with a floor was fitted")
    return lines


def weights(forms: Mapping[str, float]) -> str:
    """Return a list in words: the forms with their weights in percent, then the names of those that are ruled out."""
    kept = [f"{name} {significant(100 * weight, 2)} %" for name, weight in forms.items() if weight >= NAMED_APART]
    others = [name for name, weight in forms.items() if weight < NAMED_APART]
    return ", ".join(kept) + (f"; ruled out: {', '.join(others)}" if others else "")


def next_runs(d: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return lines on the next runs: what they are, what they cost, and how wide the answer's interval is expected to
    be with all the money and with less.

    Args:
        d: the result of `next_runs.answer`.
        names: names of the x columns.
    """
    value = "" if d["value"] is None else f" (now {compact(d['value'], 3)})"
    text = [f"next runs that narrow the {d['narrows']}{value} most, for {_cost(d)}:"]
    for run in d["runs"]:
        at = run["x"] if isinstance(run["x"], list) else [run["x"]]
        where = ", ".join(f"{name} {compact(x, 3)}" for name, x in zip(names, at, strict=True))
        where = f"{run['group']}, {where}" if d["several_groups"] else where
        several = f"{run['number']} × " if run["number"] > 1 else ""
        text.append(f"  {several}{where}: {_cost({**run, 'unit': d['unit']})}{' each' if several else ''}")
    ends = f"now {_half(d['before'], d['log'])}, then {_half(d['after'], d['log'])}"
    text.append(f"  {d['level']:.0%} interval, expected: {ends}")
    less = [f"{_half(m['half'], d['log'])} for {_cost({**m, 'unit': d['unit']})}" for m in d["by_money"][:-1]]
    text += [f"  with less, spent its own best way: {join(less)}"] if less else []
    return text + ([f"  money: {d['money_from']}"] if d["money_from"] else [])


def _cost(of: Mapping[str, Any]) -> str:
    """Return the cost of a run, or of several, in words: in its unit, and in money if the unit has a price."""
    what = f"{compact(of['cost'], 3)} {of['unit']}"
    return what if of["money"] is None else f"{significant(of['money'])} in money ({what})"


def _half(half: float | None, log: bool) -> str:
    """Return the half-width of an interval in words; if it is of a logarithm (`log`), in percent or as a factor."""
    if half is None or (log and half > MOST_FACTOR):
        return "open"
    if not log:
        return f"± {significant(half, 2)}"
    share, factor = significant(100 * math.expm1(half), 2), significant(math.exp(half), 2)
    return f"± {share} %" if half < SMALL_FACTOR else f"a factor of {factor} each way"


def _crossing(c: Mapping[str, Any]) -> str:
    """Return one sentence about the laws of two groups: where they cross, or what is known instead. `c`: a
    `crossing.Crossing` as a dictionary, with the names of the groups."""
    where = ""
    if c["x"] is not None:
        where = f" at {compact(c['x'])} [{compact(c['low'])}, {compact(c['high'])}], then {c['overtakes']} is ahead"
    elif c["low"] is not None:
        where = f", [{compact(c['low'])}, ∞)"
    elif c["high"] is not None:
        where = f", (0, {compact(c['high'])}]"
    return f"{c['first']} and {c['second']} cross: {c['verdict']}{where} ({c['reason']})"


def _fit(name: str, answer: Mapping[str, Any], reached: str) -> list[str]:
    """Return the lines on one group's law. `answer`: the group's entry in the result of `table_fit.answer`; `reached`:
    what the values of --reach are, "accuracy" or "y"."""
    card = answer["card"]
    form, level = card["form"], f"{answer['level']:.0%}"
    law = answer.get("predicted_by", [form])
    more = f", {card['formula']}, {card['loss']}" if len(law) == 1 else ", each with the same weight"
    text = [f"{name}: {asked}" for asked in answer["asks"]]  # first, because all that follows assumes that y falls
    text.append(f"{name}: {card['points']} points; the law is the {predictor(law)}{more}")
    text += [f"  note: {item}" for item in answer["notes"]]
    if answer["over_forms"]:
        text.append(f"  forms and their weights: {weights({form_name(f): w for f, w in answer['forms'].items()})}")
        text.append(f"  {level} intervals over all of these forms, each as often as its weight: {answer['resampling']}")
        every = answer["over_forms"]
        shown = {name: of for name, of in every.items() if name == "slope" or not answer["asks"]}
        text += [f"  {line}" for line in over_forms(shown, f"x = {compact(answer['slope_at'])}")]
        near = "the form of them that lies nearest to the law"
        text.append(f"  {level} intervals if y follows a {form_name(form)}, {near}: {card['formula']}, {card['loss']}")
    else:
        text.append(f"  {level} intervals if y follows a {form_name(form)}: {answer['resampling']}")
    for key, value in card["parameters"].items():
        low, high = answer["intervals"][key]
        number = f"{compact(value, 5)} [{compact(low, 5)}, {compact(high, 5)}]"
        text.append(f"  {key} = {number}" if key not in answer["unresolved"] else f"  {key} is not determined")
    agree = f"{card['starts_that_agree']} of {card['starts']} starts agree"
    rms = f"rms of log residuals {compact(card['rms_log_residual'], 3)}"
    text.append(f"  objective {compact(card['objective'], 6)}, {agree}, {rms}")
    for p in answer.get("predictions", []):
        text.append(_prediction(f"x = {_inputs(p['x'])}", f"y = {significant(p['y'], 4)}", p))
        text += [_observed(p["observed"])] if p["observed"] else []
    text += [_reached(r, reached) for r in answer.get("reached", [])]
    text += _backtest(answer["backtest"]) if "backtest" in answer else []
    text += [f"  dropped: {item}" for item in card["dropped"]]
    return text + [f"  warning: {item}" for item in answer["warnings"] if item not in answer["asks"]]


def _prediction(where: str, what: str, p: Mapping[str, Any]) -> str:
    """Return a line on one prediction: its intervals and, if it lies beyond the data, how far beyond and how far off
    earlier predictions were; or the reason why there is no prediction.

    Args:
        where: the x, such as "x = 1e18".
        what: the predicted value in words, such as "y = 0.21".
        p: a row of `table_fit.predictions`.
    """
    if p["refused"]:
        return f"  {where}: no prediction; {p['refused']}"
    text = f"  {where}: {what}, {_range(p['total'])} in total"
    text += f"; one run {_range(p['one_run'])}" if p.get("one_run") else ""
    if p["record"] is None:
        return text
    record, reach = p["record"], f"{significant(p['reach'], 2)} times beyond the data"
    if not record["origins"]:
        return f"{text}; {reach}; from what was missed on other curves, as no earlier origin tests this one"
    at = f"at {significant(record['factor'], 2)} times by {percent(record['median_error'])} % at the median"
    return f"{text}; {reach}; off so far {at}, {plural(record['origins'], 'origin')}"


def _reached(r: Mapping[str, Any], what: str) -> str:
    """Return a line that says at which x another run would have a given y or accuracy. `r`: from `table_fit.reached`;
    `what`: "y" or "accuracy"."""
    low, high = ("?" if r[end] is None else compact(r[end]) for end in ("low", "high"))
    if r["x"] is None:
        least = f"; x is at least {low}" if r["low"] is not None else ""
        return f"  {what} = {compact(r['y'])}: {r['why']}{least}"
    beyond = f", {significant(r['reach'], 2)} times beyond the data" if r["reach"] > 1 else ""
    return f"  another run has {what} = {compact(r['y'])} at x = {compact(r['x'])} [{low}, {high}]{beyond}" + (
        f" ({r['why']})" if r["why"] else ""
    )


INTERVALS = {"one_run": "the interval of one run", "total": "the total interval", "within": "that by resampling"}


def _observed(observed: Mapping[str, Any]) -> str:
    """Return a line that compares a prediction with the held-out runs at its x (from `table_fit.observed`)."""
    value, number = significant(observed["y"], 4), observed["n"]
    start = f"    held out there: {value}" + (f", the mean of {number} runs" if number > 1 else "")
    if observed["interval"] is None:
        return start
    which = INTERVALS[observed["interval"]]
    if number == 1:
        return f"{start}, {'inside' if observed['inside'] else 'outside'} {which}"
    return f"{start}, of which {observed['inside']} {'lies' if observed['inside'] == 1 else 'lie'} inside {which}"


def _backtest(backtest: Mapping[str, Any]) -> list[str]:
    """Return the result of `table_fit.backtest` as a table: a line for each origin, the earlier x up to which points
    were fitted."""
    if not backtest["rows"]:
        return ["  backtest: too few points to go back to earlier origins"]
    text = ["  backtest: points up to | number | off by, at times beyond (interval then)"]
    for row in backtest["rows"]:
        beyond = [f"{_signed(100 * b['error'])} % at {significant(b['factor'], 2)} ({_held(b)})" for b in row["beyond"]]
        text.append(f"    {compact(row['end'])} | {row['points']} | {', '.join(beyond)}".replace("-", "−"))
    if backtest["intervals_judged"]:
        share = f"{backtest['intervals_held']} of {backtest['intervals_judged']}"
        text.append(f"  {share} intervals that were given then held the farthest of these points")
    return text


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "") + significant(value, 2)


def _held(b: Mapping[str, Any]) -> str:
    return (
        "none" if b["held"] is None else f"±{compact(100 * b['half_width'], 2)} %, {'held' if b['held'] else 'missed'}"
    )


def _isoflop(answer: Mapping[str, Any]) -> list[str]:
    ends = f"[{answer['low']:.4f}, {answer['high']:.4f}] ({answer['level']:.0%}, {len(answer['minima'])} budgets)"
    text = [f"size* = {compact(answer['coefficient'])} × budget^{answer['exponent']:.4f} {ends}"]
    text += [
        f"  at {compact(m['budget'])} the best is {compact(m['size'])} (y = {compact(m['loss'])})"
        for m in answer["minima"]
    ]
    text += [
        _prediction(f"budget {compact(p['budget'])}", f"size {compact(p['size'])}", p)
        for p in answer.get("predictions", [])
    ]
    return text + [f"  dropped: {item}" for item in answer["dropped"]]


def _range(ends: tuple[float, float] | list[float]) -> str:
    return f"[{significant(ends[0], 4)}, {significant(ends[1], 4)}]"


def _inputs(x: float | list[float]) -> str:
    return ", ".join(compact(v, 6) for v in (x if isinstance(x, list) else [x]))
