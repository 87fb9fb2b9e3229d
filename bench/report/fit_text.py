"""A fit's answer as lines for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.core.formatting import significant


def lines(result: Mapping[str, Any]) -> list[str]:
    """What `python -m bench.fit` prints."""
    notes = [f"note: {item}" for item in result["notes"]]
    if "isoflop" in result:
        return notes + _isoflop(result["isoflop"]) + [f"  warning: {item}" for item in result["warnings"]]
    text = notes
    for name, answer in result["fits"].items():
        text += _fit(name, answer)
    for c in result.get("crossings", []):
        where = ""
        if c["x"] is not None:
            where = f" at {c['x']:.4g} [{c['low']:.4g}, {c['high']:.4g}], then {c['overtakes']} is ahead"
        text.append(f"{c['first']} and {c['second']} cross: {c['verdict']}{where} ({c['reason']})")
    text += [f"warning: {item}" for item in result["warnings"]]
    return text + [f"{name} was not fitted: {reason}" for name, reason in result["refused"].items()]


def _fit(name: str, answer: Mapping[str, Any]) -> list[str]:
    card = answer["card"]
    text = [f"{name}: {card['formula']}, {card['points']} points, {card['loss']}"]
    text += [f"  note: {item}" for item in answer["notes"]]
    text.append(f"  {answer['level']:.0%} intervals by resampling: {answer['resampling']}")
    for key, value in card["parameters"].items():
        low, high = answer["intervals"][key]
        text.append(f"  {key} = {value:.5g} [{low:.5g}, {high:.5g}]")
    agree = f"{card['starts_that_agree']} of {card['starts']} starts agree"
    rms = f"rms of log residuals {card['rms_log_residual']:.3g}"
    text.append(f"  objective {card['objective']:.6g}, {agree}, {rms}")
    tried = [f"{r['form']} {_score(r['extrapolation_rms_log'])}" for r in answer["forms_tried"]]
    text += [f"  extrapolation error (rms of log) by form: {', '.join(tried)}"] if tried else []
    for p in answer.get("predictions", []):
        ends = (p["within"], p["total"], p["one_run"])
        within, total, one_run = (f"[{significant(a, 4)}, {significant(b, 4)}]" for a, b in ends)
        value = f"y = {significant(p['y'], 4)}"
        means = f"{within} within this analysis, {total} in total; one run {one_run}"
        text.append(f"  x = {_inputs(p['x'])}: {value}, {means}")
    text += [f"  dropped: {item}" for item in card["dropped"]]
    return text + [f"  warning: {item}" for item in answer["warnings"]]


def _isoflop(found: Mapping[str, Any]) -> list[str]:
    ends = f"[{found['low']:.4f}, {found['high']:.4f}] ({found['level']:.0%}, {len(found['minima'])} budgets)"
    text = [f"size* = {found['coefficient']:.4g} × budget^{found['exponent']:.4f} {ends}"]
    text += [f"  at {m['budget']:.4g} the best is {m['size']:.4g} (y = {m['loss']:.4g})" for m in found["minima"]]
    for p in found.get("predictions", []):
        low, high = p["interval"]
        text.append(f"  budget {p['budget']:.4g}: size {p['size']:.4g} [{low:.4g}, {high:.4g}]")
    return text + [f"  dropped: {item}" for item in found["dropped"]]


def _inputs(x: float | list[float]) -> str:
    return ", ".join(f"{v:.6g}" for v in (x if isinstance(x, list) else [x]))


def _score(value: float | None) -> str:
    return "too few points" if value is None else f"{value:.3g}"
