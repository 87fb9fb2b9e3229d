"""How often extrapolation intervals hold on curves that go on: `python -m tools.measure_extrapolation FILE.csv`.

A file has the columns curve, x, y (an error or a loss) and, if the split is not to be at the largest x divided by
`--beyond`, fit: 1 for points that are fitted, 0 for those held out; and, if it has curves of several sources, source.
Which sources the constants of `bench.laws.extrapolation` were chosen on, and which are left to report, is written in
`extrapolation_split.csv`: `--half report` keeps the others by its column half.

A curve is judged at its last point: the interval of one more run by the point itself, the total interval by the trend
of the held-out points. Winkler's score is the width of the interval, and 20 times by how much the point lies outside
(Gneiting and Raftery 2007), in log y; lower is better. Beside it stand 90 % prediction intervals of single forms by
linearised least squares, and of the line through the last three places; and one constant width for the curves of a
row, the best in hindsight. Rivals are scored on the curves that are answered here. The measured tables are in
results/reference/coverage/.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bench.core.errors import UserError
from bench.laws.bootstrap import LAW_LEVEL
from bench.laws.extrapolation import FREEDOM, MIN_PLACES, REACH, Forecast, far_off_runs, forecast, place, reached
from bench.laws.fit import REFIT_FTOL, Points, fit, jacobian
from bench.laws.forms import BROKEN, POWER, POWER_FLOOR, Form
from bench.stats.intervals import t_quantile

RIVALS: tuple[Form, ...] = (POWER, POWER_FLOOR, BROKEN)
LAST_THREE = "last three"
NAMES = (*(form.name for form in RIVALS), LAST_THREE)
VIEWS = (
    ("", "curves", "beyond", "answered", "one run", "±", "total", "above, below", "half-width", "90 % constant"),
    ("", "Winkler", "constant", *NAMES),
    ("", "asked", "held", "both ends", "x: held", "x: above, below", "x: median error"),
)
CONSTANTS = np.geomspace(1e-3, 3.0, 400)  # half-widths of log y


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """One curve's held-out points: log errors of the prediction, (n,), and how far intervals reach below and above it,
    (n, 2), in order of x."""

    error: np.ndarray
    trend_error: np.ndarray
    total: np.ndarray
    one_run: np.ndarray

    @property
    def rms(self) -> float:
        return float(np.sqrt((self.error**2).mean()))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A curve, its split and what was said of it.

    Attributes:
        held: None where nothing was.
        asked: log of the x (low, middle, high) that the trend's last y takes, less that of the last x; None where a
            fitted point is as low.
        rivals: by name, the error and half-width of one run at the last point; without those that could not be fitted.
    """

    source: str
    places: int
    beyond: float
    held: HeldOut | None
    asked: tuple[float, float, float] | None
    rivals: dict[str, tuple[float, float]]
    seconds: float


def trend(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log y smoothed along log x: a parabola through 20 points or more, a line through 5, else the points."""
    log_x = np.log(x) - np.log(x).mean()
    return np.log(y) if len(x) < 5 else np.polyval(np.polyfit(log_x, np.log(y), 2 if len(x) >= 20 else 1), log_x)


def inside(error: np.ndarray, ends: np.ndarray) -> np.ndarray:
    return (-ends[..., 0] <= error) & (error <= ends[..., 1])


def winkler(error: np.ndarray, ends: np.ndarray) -> np.ndarray:
    outside = np.maximum(0, np.maximum(error - ends[..., 1], -ends[..., 0] - error))
    return ends.sum(axis=-1) + 2 / (1 - LAW_LEVEL) * outside


def judge(made: Forecast, x: np.ndarray, y: np.ndarray) -> HeldOut:
    """A forecast beside what was held out; x is (n,) or (inputs, n)."""
    at = np.atleast_2d(x)
    predicted = made.log_predict(at)
    total = np.array([made.sides(float(distance), level=LAW_LEVEL) for distance in made.distance(at)])
    return HeldOut(
        error=np.log(y) - predicted,
        trend_error=trend(place(at), y) - predicted,
        total=total,
        one_run=np.hypot(total, t_quantile(FREEDOM, LAW_LEVEL) * made.scatter),
    )


def case(source: str, points: Points, x: np.ndarray, y: np.ndarray) -> Case:
    """A curve by the tool and by its rivals."""
    start = time.process_time()
    points = points.take(~far_off_runs(points))
    places = len(np.unique(points.x[0]))
    made = forecast(points) if places >= MIN_PLACES else None
    seconds = time.process_time() - start
    return Case(
        source=source,
        places=places,
        beyond=float(x[-1] / points.x[0].max()),
        held=judge(made, x, y) if made else None,
        asked=_inverted(made, x, y) if made else None,
        rivals=dict(_rivals(points, float(x[-1]), float(np.log(y[-1])))),
        seconds=seconds,
    )


def _inverted(made: Forecast, x: np.ndarray, y: np.ndarray) -> tuple[float, float, float] | None:
    """log of the x (low, middle, high) at which one more run has the trend's last y, less that of the last x."""
    wanted = float(np.exp(trend(x, y)[-1]))
    if wanted >= made.fits[0].points.y.min():
        return None
    grid = np.geomspace(*made.fits[0].range, 100)
    grid = np.append(grid, np.geomspace(grid[-1], grid[-1] * REACH, 181)[1:])
    bands = made.widen(made.log_predict(grid[None]), np.zeros((len(grid), 2)), grid[None])
    ends = reached(grid, bands, wanted)
    with np.errstate(divide="ignore"):
        low, middle, high = np.log(np.array([ends.low, ends.x, ends.high]) / x[-1])
    return float(low), float(middle), float(high)


def _rivals(points: Points, x: float, log_y: float) -> Iterator[tuple[str, tuple[float, float]]]:
    last = points.take(points.x[0] >= np.unique(points.x[0])[-3:][0])
    for name, form, part in [*((f.name, f, points) for f in RIVALS), (LAST_THREE, POWER, last)]:
        try:
            made = fit(part, form, loss="squares", ftol=REFIT_FTOL, max_starts=60)
        except UserError:  # fewer points than it has parameters
            continue
        slopes, here = jacobian(made), form.jacobian(made.theta, np.array([[x]]) / made.scale[:, None])[0]
        freedom = len(part) - form.size
        variance = float((made.residuals**2).sum()) / freedom
        leverage = float(here @ np.linalg.pinv(slopes.T @ slopes) @ here)
        error = log_y - float(made.log_predict(np.array([[x]]))[0])
        yield name, (error, t_quantile(freedom, LAW_LEVEL) * float(np.sqrt(variance * (1 + leverage))))


def curves(
    path: str, *, half: str | None = None, beyond: float = 2.0
) -> Iterator[tuple[str, Points, np.ndarray, np.ndarray]]:
    """Source, fitted points, held-out x and held-out y of every curve."""
    table = pd.read_csv(path)
    table = table if half is None else table[table["half"] == half]
    for _, part in table.sort_values("x", kind="stable").groupby("curve"):
        x, y = part["x"].to_numpy(float), part["y"].to_numpy(float)
        seen = part["fit"].to_numpy(bool) if "fit" in part else x <= x.max() / beyond * (1 + 1e-9)
        points = Points(x=x[None, seen], y=y[seen], cluster=np.arange(seen.sum()))
        if len(np.unique(x[seen])) > 2:
            yield str(part["source"].iloc[0]) if "source" in part else path, points, x[~seen], y[~seen]


def row(name: str, cases: Sequence[Case]) -> dict[str, str]:
    """A line of the table."""
    held = [c.held for c in cases if c.held is not None]
    cells = {"": name, "curves": str(len(cases)), "beyond": f"{np.median([c.beyond for c in cases]):.1f}"}
    cells["answered"] = f"{len(held) / len(cases):.2f}"
    if not held:
        return cells
    error, trended = (np.array([getattr(h, k)[-1] for h in held]) for k in ("error", "trend_error"))
    total, one_run = (np.array([getattr(h, k)[-1] for h in held]) for k in ("total", "one_run"))
    constant = np.stack([CONSTANTS, CONSTANTS], axis=1)
    scores = winkler(error, constant[:, None]).mean(axis=1)
    every = np.array([c.asked for c in cases if c.asked is not None]).reshape(-1, 3)
    asked = every[np.isfinite(every).all(axis=1)]
    share = float(inside(error, one_run).mean())
    cells |= {
        "one run": f"{share:.2f}",
        "±": f"{np.sqrt(max(share * (1 - share), 1 / len(held)) / len(held)):.2f}",
        "total": f"{inside(trended, total).mean():.2f}",
        "above, below": f"{(error > one_run[:, 1]).mean():.2f}, {(error < -one_run[:, 0]).mean():.2f}",
        "half-width": f"{np.median(one_run.mean(axis=1)):.3f}",
        "90 % constant": f"{np.quantile(np.abs(error), LAW_LEVEL):.3f}",
        "median error": f"{np.median(np.abs(error)):.4f}",
        "Winkler": f"{winkler(error, one_run).mean():.3f}",
        "constant": f"{scores.min():.3f}",
    }
    for rival in NAMES:
        pairs = np.array([c.rivals[rival] for c in cases if c.held and rival in c.rivals]).reshape(-1, 2)
        shown = winkler(pairs[:, 0], np.repeat(pairs[:, 1:], 2, axis=1)).mean() if len(pairs) else np.nan
        cells[rival] = f"{shown:.3g} ({len(pairs)})"
    if len(asked):
        cells |= {
            "asked": str(len(every)),
            "held": f"{((every[:, 0] <= 0) & (every[:, 2] >= 0)).mean():.2f}",
            "both ends": str(len(asked)),
            "x: held": f"{((asked[:, 0] <= 0) & (asked[:, 2] >= 0)).mean():.2f}",
            "x: above, below": f"{(asked[:, 2] < 0).mean():.2f}, {(asked[:, 0] > 0).mean():.2f}",
            "x: median error": f"{np.median(np.abs(asked[:, 1])):.3f}",
        }
    return cells


def table(cases: Sequence[Case]) -> pd.DataFrame:
    """By source, their mean being that of all curves; by number of fitted places."""
    rows = [row(source, [c for c in cases if c.source == source]) for source in sorted({c.source for c in cases})]
    rows.append(row("all", cases))
    kinds = {"3": (3, 3), "4": (4, 4), "5": (5, 5), "6": (6, 6), "7": (7, 7), "8": (8, 8), "9 and more": (9, 10**9)}
    for name, (low, high) in kinds.items():
        some = [c for c in cases if low <= c.places <= high]
        rows += [row(f"{name} values of x", some)] if some else []
    return pd.DataFrame(rows).fillna("")


def against(cases: Sequence[Case]) -> pd.DataFrame:
    """Each rival on the curves that it answers too, and what this one scores on them."""
    rows = []
    for rival in NAMES:
        both = [(c.held, *c.rivals[rival]) for c in cases if c.held and rival in c.rivals]
        if not both:
            continue
        error, half = np.array([pair for _, *pair in both]).T
        ends = np.stack([half, half], axis=1)
        theirs, ours = winkler(error, ends), np.array([winkler(h.error[-1], h.one_run[-1]) for h, *_ in both])
        rows.append(
            {
                "": rival,
                "curves": str(len(both)),
                "one run": f"{inside(error, ends).mean():.2f}",
                "half-width": f"{np.median(half):.3f}",
                "median error": f"{np.median(np.abs(error)):.4f}",
                "Winkler": f"{theirs.mean():.3g}",
                "median": f"{np.median(theirs):.3f}",
                "ours": f"{ours.mean():.3f}",
                "ours, median": f"{np.median(ours):.3f}",
                "ours lower": f"{(ours < theirs).mean():.2f}",
            }
        )
    return pd.DataFrame(rows)


def markdown(frame: pd.DataFrame) -> str:
    lines = [list(frame.columns), ["---"] * len(frame.columns), *frame.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("python -m tools.measure_extrapolation", description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--half", help="keep the rows whose column half is this")
    parser.add_argument(
        "--beyond", type=float, default=2.0, help="points up to the largest x divided by this are fitted"
    )
    asked = parser.parse_args(arguments)
    for path in asked.files:
        cases = [case(*each) for each in curves(path, half=asked.half, beyond=asked.beyond)]
        print(f"## {path}, {asked.beyond:g} times beyond")
        made = table(cases)
        print(*(markdown(made.filter(items=view)) for view in VIEWS), markdown(against(cases)), sep="\n")
        seconds = [c.seconds for c in cases]
        print(
            f"seconds of a forecast: {np.median(seconds):.2f} median, {np.quantile(seconds, 0.95):.2f} 95th percentile"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
