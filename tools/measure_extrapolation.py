"""How often extrapolation intervals hold on curves that go on: `python -m tools.measure_extrapolation FILE.csv`.

A file has the columns curve, x, y (an error or a loss) and, if the split is not to be at half of the largest x, fit: 1
for points that are fitted, 0 for those held out. Of every curve the total interval is judged by the trend of the
held-out points, and the interval of one more run by the points themselves.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bench.core.errors import UserError
from bench.stats.bootstrap import LAW_LEVEL
from bench.stats.extrapolation import Forecast, forecast, place
from bench.stats.fit import REFIT_FTOL, Points, fit
from bench.stats.forms import CURVES
from bench.stats.intervals import t_quantile


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """One curve's held-out points: log errors of the prediction and half-widths there, in order of x."""

    error: np.ndarray
    trend_error: np.ndarray
    total: np.ndarray
    one_run: np.ndarray

    @property
    def rms(self) -> float:
        return float(np.sqrt((self.error**2).mean()))


def trend(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log y smoothed along log x: a parabola through 20 points or more, a line through 5, else the points."""
    log_x = np.log(x) - np.log(x).mean()
    return np.log(y) if len(x) < 5 else np.polyval(np.polyfit(log_x, np.log(y), 2 if len(x) >= 20 else 1), log_x)


def judge(made: Forecast, x: np.ndarray, y: np.ndarray) -> HeldOut:
    """A forecast beside what was held out; x is (n,) or (inputs, n)."""
    at = np.atleast_2d(x)
    predicted = made.log_predict(at)
    total = np.array([made.half_width(float(distance), level=LAW_LEVEL) for distance in made.distance(at)])
    return HeldOut(
        error=np.log(y) - predicted,
        trend_error=trend(place(at), y) - predicted,
        total=total,
        one_run=np.hypot(total, t_quantile(made.freedom, LAW_LEVEL) * made.scatter),
    )


def curves(path: str) -> dict[str, tuple[Points, np.ndarray, np.ndarray]]:
    """Fitted points, held-out x and held-out y of every curve."""
    found = {}
    for name, part in pd.read_csv(path).sort_values("x", kind="stable").groupby("curve"):
        x, y = part["x"].to_numpy(float), part["y"].to_numpy(float)
        seen = part["fit"].to_numpy(bool) if "fit" in part else x <= x.max() / 2
        points = Points(x=x[None, seen], y=y[seen], cluster=np.arange(seen.sum()))
        found[str(name)] = points, x[~seen], y[~seen]
    return found


def coverage(held: list[HeldOut]) -> dict[str, float]:
    """Coverage of the last and of all held-out points, median half-widths at the last, and errors of log y."""
    total = [np.abs(h.trend_error) <= h.total for h in held]
    one_run = [np.abs(h.error) <= h.one_run for h in held]
    return {
        "total, last": float(np.mean([t[-1] for t in total])),
        "total, all": float(np.mean([t.mean() for t in total])),
        "one run, last": float(np.mean([o[-1] for o in one_run])),
        "one run, all": float(np.mean([o.mean() for o in one_run])),
        "half-width": float(np.median([h.total[-1] for h in held])),
        "half-width of one run": float(np.median([h.one_run[-1] for h in held])),
        "median error": float(np.median([h.rms for h in held])),
        "mean error": float(np.mean([h.rms for h in held])),
    }


def error_of_form(points: Points, name: str, x: np.ndarray, y: np.ndarray) -> float:
    """Rms error of log y of one form, fitted by least squares to log y."""
    form = next(form for form in CURVES if form.name == name)
    made = fit(points, form, loss="squares", ftol=REFIT_FTOL, max_starts=60)
    return float(np.sqrt(((np.log(y) - made.log_predict(x[None])) ** 2).mean()))


def main(paths: list[str]) -> None:
    for path in paths:
        held, refused, errors = [], 0, {form.name: [] for form in CURVES}
        for points, x, y in curves(path).values():
            made = forecast(points)
            refused += not made.has_record
            held += [judge(made, x, y)] if made.has_record else []
            for name, found in errors.items():
                try:
                    found.append(error_of_form(points, name, x, y))
                except UserError:  # fewer points than it has parameters
                    continue
        print(f"{path}: {len(held)} curves; no record: {refused}")
        print("  ", ", ".join(f"{name} {value:.4f}" for name, value in coverage(held).items()))
        known = [f"{name} {np.median(e):.4f}/{np.mean(e):.4f}" for name, e in errors.items() if e]
        print("   errors of single forms, median/mean:", ", ".join(known), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
