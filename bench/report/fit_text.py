"""A fit's answer in words, as `python -m bench.fit` prints it, and the figure of its record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.core.errors import UserError
from bench.core.formatting import compact, join, percent, plural, printable, significant
from bench.report.fits import over_forms, weights


def lines(result: Mapping[str, Any]) -> list[str]:
    """The text that is printed."""
    text = [f"note: {item}" for item in result["notes"]]
    if "isoflop" in result:
        return text + _isoflop(result["isoflop"]) + [f"  warning: {item}" for item in result["warnings"]]
    for name, answer in result["fits"].items():
        text += _fit(name, answer)
    text += [_crossing(c) for c in result.get("crossings", [])]
    text += [f"warning: {item}" for item in result["warnings"]]
    return text + [f"{name} was not fitted: {reason}" for name, reason in result["refused"].items()]


def _crossing(c: Mapping[str, Any]) -> str:
    """One sentence about a pair of groups: where they cross, or what is known instead."""
    where = ""
    if c["x"] is not None:
        where = f" at {compact(c['x'])} [{compact(c['low'])}, {compact(c['high'])}], then {c['overtakes']} is ahead"
    elif c["low"] is not None:
        where = f", [{compact(c['low'])}, ∞)"
    elif c["high"] is not None:
        where = f", (0, {compact(c['high'])}]"
    return f"{c['first']} and {c['second']} cross: {c['verdict']}{where} ({c['reason']})"


def _fit(name: str, answer: Mapping[str, Any]) -> list[str]:
    card = answer["card"]
    form, level = card["form"], f"{answer['level']:.0%}"
    text = [f"{name}: {card['formula']}, {card['points']} points, {card['loss']}"]
    text += [f"  note: {item}" for item in answer["notes"]]
    if answer["over_forms"]:
        text.append(f"  forms and their weights: {weights(answer['forms'])}")
        text.append(f"  {level} intervals over all of these forms, each as often as its weight: {answer['resampling']}")
        text += [f"  {line}" for line in over_forms(answer["over_forms"], f"x = {compact(answer['slope_at'])}")]
        text.append(f"  {level} intervals if y follows {form}:")
    else:
        text.append(f"  {level} intervals if y follows {form}: {answer['resampling']}")
    for key, value in card["parameters"].items():
        low, high = answer["intervals"][key]
        number = f"{compact(value, 5)} [{compact(low, 5)}, {compact(high, 5)}]"
        text.append(f"  {key} = {number}" if key not in answer["unresolved"] else f"  {key} is not determined")
    agree = f"{card['starts_that_agree']} of {card['starts']} starts agree"
    rms = f"rms of log residuals {compact(card['rms_log_residual'], 3)}"
    text.append(f"  objective {compact(card['objective'], 6)}, {agree}, {rms}")
    tried = [f"{r['form']} {_score(r['extrapolation_rms_log'])}" for r in answer["forms_tried"]]
    text += [f"  rms error of log y one octave beyond earlier origins: {', '.join(tried)}"] if tried else []
    if "predictions" in answer:
        forms = answer["predicted_by"]
        text.append(f"  predictions: {forms[0] if len(forms) == 1 else 'median of ' + join(forms)}")
        for p in answer["predictions"]:
            text.append(_prediction(f"x = {_inputs(p['x'])}: y = {significant(p['y'], 4)}", p))
            text += [_observed(p["observed"])] if p["observed"] else []
    text += _backtest(answer["backtest"]) if "backtest" in answer else []
    text += [f"  dropped: {item}" for item in card["dropped"]]
    return text + [f"  warning: {item}" for item in answer["warnings"]]


def _prediction(start: str, p: Mapping[str, Any]) -> str:
    """A prediction with its intervals; beyond the data, how far and with what record."""
    text = f"  {start}, {_range(p['within'])} by resampling"
    text += f", {_range(p['total'])} in total" if p["total"] else ""
    text += f"; one run {_range(p['one_run'])}" if p.get("one_run") else ""
    if p["reach"] < 1:
        return f"{text}; {significant(1 / p['reach'], 2)} times below the data, where there is no record"
    if p["record"] is None:
        return text
    found, reach = p["record"], f"{significant(p['reach'], 2)} times beyond the data"
    if "median_error" not in found:
        origins = plural(found["origins"], "earlier origin")
        return f"{text}; {reach}, without a record ({origins}, {found['needed']} are needed)"
    at = f"at {significant(found['factor'], 2)} times by {percent(found['median_error'])} % at the median"
    return f"{text}; {reach}; off so far {at}, {plural(found['origins'], 'origin')}"


INTERVALS = {"one_run": "the interval of one run", "total": "the total interval", "within": "that by resampling"}


def _observed(found: Mapping[str, Any]) -> str:
    """What runs that were not fitted had there."""
    value, number = significant(found["y"], 4), found["n"]
    start = f"    held out there: {value}" + (f", the mean of {number} runs" if number > 1 else "")
    if found["interval"] is None:
        return start
    which = INTERVALS[found["interval"]]
    if number == 1:
        return f"{start}, {'inside' if found['inside'] else 'outside'} {which}"
    return f"{start}, of which {found['inside']} {'lies' if found['inside'] == 1 else 'lie'} inside {which}"


def _backtest(found: Mapping[str, Any]) -> list[str]:
    """The record as a table: one line per origin."""
    if not found["rows"]:
        return ["  backtest: too few points to go back to earlier origins"]
    text = ["  backtest: points up to | number | off by, at times beyond (interval from the record alone, then)"]
    for row in found["rows"]:
        beyond = [f"{_signed(100 * b['error'])} % at {significant(b['factor'], 2)} ({_held(b)})" for b in row["beyond"]]
        text.append(f"    {compact(row['end'])} | {row['points']} | {', '.join(beyond)}".replace("-", "−"))
    if found["intervals_judged"]:
        share = f"{found['intervals_held']} of {found['intervals_judged']}"
        text.append(f"  {share} intervals that the record alone gave then held the farthest of these points")
    if len(found["rows"]) < found["needed"]:
        text.append(f"  {found['needed']} origins are needed for an interval beyond the data")
    return text


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "") + significant(value, 2)


def _held(b: Mapping[str, Any]) -> str:
    return (
        "none" if b["held"] is None else f"±{compact(100 * b['half_width'], 2)} %, {'held' if b['held'] else 'missed'}"
    )


def _isoflop(found: Mapping[str, Any]) -> list[str]:
    ends = f"[{found['low']:.4f}, {found['high']:.4f}] ({found['level']:.0%}, {len(found['minima'])} budgets)"
    text = [f"size* = {compact(found['coefficient'])} × budget^{found['exponent']:.4f} {ends}"]
    text += [
        f"  at {compact(m['budget'])} the best is {compact(m['size'])} (y = {compact(m['loss'])})"
        for m in found["minima"]
    ]
    text += [
        _prediction(f"budget {compact(p['budget'])}: size {compact(p['size'])}", p)
        for p in found.get("predictions", [])
    ]
    return text + [f"  dropped: {item}" for item in found["dropped"]]


def draw_backtest(result: Mapping[str, Any], path: Path) -> None:
    """The record as a figure: error against how far beyond an origin, one line per origin, one panel per group.

    Raises:
        UserError: the file cannot be written.
    """
    from bench.report.figures import _style

    fits = result["fits"]
    with _style.context():
        figure = _style.figure(height=3.4 * len(fits), width=8.0)
        for number, (name, answer) in enumerate(fits.items(), start=1):
            found, axes = answer["backtest"], figure.add_subplot(len(fits), 1, number)
            last = len(found["curves"]) - 1
            for age, curve in enumerate(found["curves"]):
                errors = [100 * error for error in curve["error"]]
                label = (
                    f"{'earliest' if age else 'latest'} origin, {compact(curve['end'], 3)}"
                    if age in (0, last)
                    else None
                )
                axes.plot([1, *curve["factor"]], [0, *errors], color=str(0.25 + 0.6 * age / (last + 1)), label=label)
            band = [(factor, 100 * width) for factor, width in found["band"] if width is not None]
            if band:
                factor, width = zip(*band, strict=True)
                axes.fill_between(
                    factor,
                    [-w for w in width],
                    width,
                    color="#0072B2",
                    alpha=0.15,
                    linewidth=0,
                    label=f"{answer['level']:.0%} interval now",
                )
            axes.set_xscale("log")
            axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
            axes.minorticks_off()
            axes.set_xlim(1, 10)
            pairs = [pair for c in found["curves"] for pair in zip(c["factor"], c["error"], strict=True)]
            limit = 1.1 * max([0.1, *(abs(100 * e) for f, e in pairs if f < 10), *(width for _, width in band)])
            axes.set_ylim(-limit, limit)
            axes.set(
                xlabel="Times beyond the origin",
                ylabel="Observed / predicted − 1 [%]",
                title=printable(f"{name}: {join(answer['predicted_by'])}"),
            )
            axes.legend(loc="upper left")
        try:
            figure.savefig(path, dpi=_style.DPI)
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}.") from error


def _range(ends: tuple[float, float] | list[float]) -> str:
    return f"[{significant(ends[0], 4)}, {significant(ends[1], 4)}]"


def _inputs(x: float | list[float]) -> str:
    return ", ".join(compact(v, 6) for v in (x if isinstance(x, list) else [x]))


def _score(value: float | None) -> str:
    return "too few points" if value is None else compact(value, 3)
