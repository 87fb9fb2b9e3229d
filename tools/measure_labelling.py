"""How often intervals of "images for a target" hold the truth: `python -m tools.measure_labelling [FILE.csv]`.

The file is that of `tools/labelling_curves.py`; results/reference/coverage/ has one. A user with `cut` images asks for
round accuracies above what they have. The truth is the number of images at which the mean accuracy of other draws, on
other test images, reaches that; or that it takes more than ten times as many. An interval whose upper end is below ten
times as many then misses. Beside `bench.laws.labelling` stand a straight line in log-log with its prediction interval
(calibration), and what a study of trained networks says (`bench.analysis.targets.needed_for`).

Cases of one curve share its chance. `independent` counts the sets (and groups of their classes) behind a line.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from bench.analysis.finding import Axis
from bench.analysis.scaling_laws import FORMS, LOSSES, POSSIBLE, STARTS, Law
from bench.analysis.targets import needed_for
from bench.core.errors import UserError
from bench.laws import averaging, bootstrap, fit, model_selection
from bench.laws.bootstrap import LAW_LEVEL
from bench.laws.extrapolation import MIN_PLACES, REACH, forecast
from bench.laws.fit import Points
from bench.laws.labelling import LabellingCurve, images_needed
from bench.laws.lack_of_fit import GroupMeans
from bench.questions.images_to_label import TARGETS
from bench.stats.intervals import t_quantile

FILE = Path("results/reference/coverage/labelling.csv")
ASKED = 3  # targets of a curve, next to each other
Ends = tuple[float, float, float]
"""Low, estimate and high; infinite where that is beyond REACH times the images."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """The curve that a user sees, and the truth.

    Attributes:
        problem: set, and its classes. half, model, way: see tools/labelling_curves.py.
        images: labelled, ascending. accuracies: of every draw at each.
        num_test: test images behind them.
        true_x, true_accuracy: the mean over other draws on other test images, from `images[-1]`.
    """

    problem: str
    half: str
    model: str
    way: str
    images: tuple[int, ...]
    accuracies: tuple[tuple[float, ...], ...]
    num_test: int
    true_x: np.ndarray
    true_accuracy: np.ndarray

    @property
    def now(self) -> float:
        return self.accuracies[-1][0]

    @property
    def judged(self) -> float:
        """Standard error of the log of the error, by the test images."""
        return math.sqrt(self.now / max(1 - self.now, 0.5 / self.num_test) / self.num_test)

    @cached_property
    def points(self) -> Points:
        rows = [
            (x, max(1 - accuracy, 0.5 / self.num_test), draw)
            for x, each in zip(self.images, self.accuracies, strict=True)
            for draw, accuracy in enumerate(each)
        ]
        x, y, draws = map(np.array, zip(*rows, strict=True))
        return Points(x=x[None].astype(float), y=y, cluster=draws, share=True)

    def truth(self, target: float) -> float:
        """Images that it takes; infinite beyond REACH times those that there are, or if it is not reached."""
        best = np.maximum.accumulate(self.true_accuracy)
        if target > best[-1]:
            return math.inf
        return float(np.exp(np.interp(target, best, np.log(self.true_x))))

    @property
    def targets(self) -> list[float]:
        return [target for target in TARGETS if target > self.now][:ASKED]


def curves(path: Path) -> list[Curve]:
    """The curves in a file of `tools/labelling_curves.py`."""
    table = pd.read_csv(path)
    table["each"] = [tuple(map(float, text.split())) for text in table["accuracies"].astype(str)]
    made = []
    for (problem, half, model, way), rows in table.groupby(["set", "half", "model", "way"], sort=False):
        true = rows[rows["cut"] == 0].sort_values("images")
        for cut, seen in rows[rows["cut"] > 0].groupby("cut"):
            within = true[(true["images"] >= cut) & (true["images"] <= REACH * cut * 1.001)]
            seen = seen.sort_values("images")
            made.append(
                Curve(
                    problem=problem,
                    half=half,
                    model=model,
                    way=way,
                    images=tuple(seen["images"]),
                    accuracies=tuple(seen["each"]),
                    num_test=int(seen["num_test"].iloc[0]),
                    true_x=within["images"].to_numpy(float),
                    true_accuracy=within["each"].map(np.mean).to_numpy(float),
                )
            )
    return made


# -- who answers -------------------------------------------------------------------------------------------------------


def product(curve: Curve, target: float) -> Ends | None:
    errors = tuple(tuple(1 - accuracy for accuracy in each) for each in curve.accuracies)
    found = images_needed(LabellingCurve(images=curve.images, errors=errors, num_test=curve.num_test), 1 - target)
    return None if found is None or not math.isfinite(found.low) else (found.low, found.images, found.high)


def line(curve: Curve, target: float) -> Ends | None:
    """log error = a + b log images by least squares, its interval of one more measurement inverted."""
    x, y, most = np.log(curve.points.x[0]), np.log(curve.points.y), curve.images[-1]
    slope, _ = np.polyfit(x, y, 1)
    freedom, centre = len(x) - 2, x.mean()
    spread = math.sqrt(float(((y - np.polyval(np.polyfit(x, y, 1), x)) ** 2).sum()) / freedom)
    at_N = np.log(np.geomspace(most, REACH * most, 400))
    half_N = (
        t_quantile(freedom, LAW_LEVEL)
        * spread
        * np.sqrt(1 + 1 / len(x) + (at_N - centre) ** 2 / ((x - centre) ** 2).sum())
    )
    middle_N, wanted = y.mean() + slope * (at_N - centre), math.log(1 - target)
    low, middle, high = (_first(at_N, c, wanted) for c in (middle_N - half_N, middle_N, middle_N + half_N))
    return (low, middle, high) if math.isfinite(middle) else None


def _first(log_x_N: np.ndarray, curve_N: np.ndarray, wanted: float) -> float:
    below = np.flatnonzero(curve_N <= wanted)
    return float(np.exp(log_x_N[below[0]])) if len(below) else math.inf


def of_trained(curve: Curve, target: float) -> Ends | None:
    """Curves that follow the law of a study over distinct images."""
    found = needed_for("images for a target", _law(curve), target)
    if found.estimate is None:
        return None
    return found.low or 0.0, found.estimate, found.high if found.high is not None else math.inf


@lru_cache(maxsize=4)
def _law(curve: Curve) -> Law:
    data = curve.points
    ranked = tuple(model_selection.rank([forecast(data, FORMS, loss=LOSSES[0], half_life=None)]))
    fits = [made for loss in LOSSES for made in averaging.fits_of(data, POSSIBLE, loss=loss)]
    chosen = model_selection.select(ranked, [averaging.form_weights(fits)])
    law = fit.fit(data, chosen, loss=LOSSES[0], max_starts=STARTS)
    x = np.array(curve.images, dtype=float)
    errors = np.array([1 - np.mean(each) for each in curve.accuracies])
    noise = np.sqrt(errors * (1 - errors) / curve.num_test)
    return Law(
        family="",
        axis=Axis.IMAGES,
        measure="",
        within=bootstrap.resample(law, draws=100, restarts=0),
        averaged=averaging.average(fits, shown=law, draws=200, restarts=0, seed=1),
        forecast=forecast(data, [law.form], loss=LOSSES[0], half_life=None),
        ranked=ranked,
        points=(),
        tried=len(x),
        bias=0.0,
        noise=0.0,
        best=(),
        group_means=GroupMeans(x=x, error=errors, noise=noise, freedom=0),
        most=float(x[-1]),
    )


ANSWERS: Mapping[str, Callable[[Curve, float], Ends | None]] = {
    "bench.laws.labelling": product,
    "line in log-log": line,
    "needed_for": of_trained,
}


# -- the judgement -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A target, its truth (infinite: beyond REACH times the images), and the answer; None where it was refused."""

    curve: Curve
    target: float
    truth: float
    ends: Ends | None

    @property
    def bounded(self) -> bool:
        return self.ends is not None and math.isfinite(self.ends[2])

    @property
    def held(self) -> bool:
        assert self.ends is not None
        now = float(self.curve.images[-1])
        truth = max(self.truth, now)
        return max(self.ends[0], now) <= truth * (1 + 1e-9) and truth <= self.ends[2]

    @property
    def factor(self) -> float:
        """Upper end / lower end."""
        assert self.ends is not None
        return self.ends[2] / max(self.ends[0], float(self.curve.images[-1]))


def cases(made: Sequence[Curve], answer: Callable[[Curve, float], Ends | None]) -> Iterator[Case]:
    for curve in made:
        for target in curve.targets:
            try:
                ends = answer(curve, target) if len(curve.images) >= MIN_PLACES else None
            except UserError:
                ends = None
            yield Case(curve=curve, target=target, truth=curve.truth(target), ends=ends)


def row(name: str, asked: Sequence[Case]) -> dict[str, str]:
    """A line of the table."""
    told = [c for c in asked if c.bounded]
    opened = [c for c in asked if c.ends is not None and not c.bounded]
    reachable = [c for c in asked if math.isfinite(c.truth)]
    cells = {
        "": name,
        "cases": str(len(asked)),
        "independent": str(len({c.curve.problem for c in asked})),
        "two ends": str(len(told)),
        "open above": str(len(opened)),
        "refused": str(len(asked) - len(told) - len(opened)),
        "refused, and within 10 times": str(sum(c.ends is None for c in reachable)),
    }
    if told:
        held = np.array([c.held for c in told])
        by_set = pd.Series(held).groupby([c.curve.problem for c in told]).agg(["mean", "size"])
        off = (by_set["mean"] - held.mean()) * by_set["size"]
        error = math.sqrt(float((off**2).sum())) / len(told)  # sets are independent, cases of one are not
        cells["held"] = f"{100 * held.mean():.0f} ± {100 * error:.0f} %"
        cells["truth below, above"] = (
            f"{sum(c.ends is not None and c.truth < c.ends[0] and c.ends[0] > c.curve.images[-1] for c in told)}, "
            f"{sum(c.ends is not None and c.truth > c.ends[2] for c in told)}"
        )
        cells["upper / lower end"] = f"{np.median([c.factor for c in told]):.2f}"
    if opened:
        cells["open: held"] = f"{100 * np.mean([c.held for c in opened]):.0f} %"
    return cells


def table(made: Sequence[Curve], answers: Sequence[str]) -> pd.DataFrame:
    rows = []
    for name in answers:
        asked = list(cases(made, ANSWERS[name]))
        rows.append(row(name, asked))
        if name == next(iter(ANSWERS)):
            for data in dict.fromkeys(c.curve.problem.partition("[")[0] for c in asked):
                rows.append(row(f"- {data}", [c for c in asked if c.curve.problem.partition("[")[0] == data]))
            for key in ("model", "way"):
                for value in dict.fromkeys(getattr(c.curve, key) for c in asked):
                    rows.append(row(f"- {value}", [c for c in asked if getattr(c.curve, key) == value]))
            for size in sorted({len(c.curve.images) for c in asked}):
                rows.append(row(f"- {size} numbers of images", [c for c in asked if len(c.curve.images) == size]))
    return pd.DataFrame(rows).fillna("")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("python -m tools.measure_labelling", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    parser.add_argument("--half", choices=("choose", "report"), default="report")
    parser.add_argument("--answers", nargs="+", choices=ANSWERS, default=list(ANSWERS))
    asked = parser.parse_args(arguments)
    made = [curve for curve in curves(asked.file) if curve.half == asked.half]
    print(table(made, asked.answers).to_csv(sep="|", index=False))


if __name__ == "__main__":
    main(sys.argv[1:])
