"""How often verdicts of `bench.stats.ladder` are wrong, how often they are given, and how forecasts cover.

    python -m tools.measure_ladders [--ladders 2000]      writes tools/ladders.csv

Truths are in points of accuracy. The standard deviation of a pair of runs is 0.5 and 1 point at all rungs, or falls
from 1.5 at the lowest to 0.5 at the highest; `rung` is what tuning adds to whole rungs. A ladder has three or four
rungs over a factor of 16 of compute. `false`: share of ladders that are said to grow, fade or reverse though their gain
is constant. `covers`: share of one more pair of runs, four times beyond the highest rung, in the interval of the
forecast; `covers_last`: in that of the highest rung's mean, with the noise of a pair; `half` and `half_last`: half
their widths.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.stats.ladder import LEVEL, TREND, VERDICTS, Ladders, Sum, Truth, simulated, verdicts
from tools.rows import simulate

FILE = Path(__file__).with_name("ladders.csv")
FACTOR = 16  # factor of compute from the lowest rung to the highest
BEYOND = 2.0  # doublings of compute from the highest rung to the forecast
NOISES = ((0.5, 0.5, 0.0), (1.0, 1.0, 0.0), (1.5, 0.5, 0.0), (0.5, 0.5, 0.3))
DESIGNS = tuple(itertools.product((3, 4), (3, 5, 8)))
TRUTHS = ((0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (1.0, 1.0), (1.0, 2.0), (1.0, -2.0), (0.0, 4.0))
"""(gain at the middle, change over the ladder)."""


def measured(truth: Truth, *, rungs: int, seeds: int, ladders: int, seed: int) -> dict[str, float]:
    """One row."""
    rng = np.random.default_rng(seed)
    x_R = np.linspace(0.0, np.log2(FACTOR), rungs)
    made = simulated(truth, x_R, seeds=seeds, ladders=ladders, rng=rng)
    found = verdicts(made)
    shares = {str(verdict): float((found == index).mean()) for index, verdict in enumerate(VERDICTS)}
    beyond, top = x_R[-1] + BEYOND, truth.pair if truth.top_pair is None else truth.top_pair
    share = (beyond - x_R[0]) / (x_R[-1] - x_R[0])
    noise = np.hypot(truth.rung, top) * rng.normal(size=ladders)
    truth_T = truth.gain + truth.change * (share - 0.5) + noise
    forecast, last = made.one_more_run(beyond), _last(made)
    return {
        **shares,
        "false": sum(shares[verdict] for verdict in TREND) if not truth.change else float("nan"),
        "covers": _covers(forecast, truth_T),
        "half": float(np.median(np.diff(forecast.interval(), axis=0) / 2)),
        "covers_last": _covers(last, truth_T),
        "half_last": float(np.median(np.diff(last.interval(), axis=0) / 2)),
    }


def _last(made: Ladders) -> Sum:
    """One more pair of runs, if the gain stayed that of the highest rung."""
    rung = made.rung(len(made.x_R) - 1)
    return Sum(value=rung.value, error=np.sqrt(rung.error**2 + made.pooled()), freedom=rung.freedom)


def _covers(forecast: Sum, truth_T: np.ndarray) -> float:
    low, high = forecast.interval(1 - LEVEL)
    return float(((low <= truth_T) & (truth_T <= high)).mean())


def rows(ladders: int) -> list[dict[str, str]]:
    """Every truth at every noise and design."""
    made = []
    for number, ((gain, change), (pair, top, rung), (rungs, seeds)) in enumerate(
        itertools.product(TRUTHS, NOISES, DESIGNS)
    ):
        truth = Truth(gain=gain, change=change, pair=pair, top_pair=top, rung=rung)
        found = measured(truth, rungs=rungs, seeds=seeds, ladders=ladders, seed=number)
        about = {"gain": gain, "change": change, "pair": pair, "top_pair": top, "rung": rung}
        about |= {"rungs": rungs, "seeds": seeds, "pairs": rungs * seeds, "ladders": ladders}
        made.append({**{k: f"{v:g}" for k, v in about.items()}, **{k: f"{v:.3f}" for k, v in found.items()}})
    return made


def main(argv: Sequence[str] | None = None) -> None:
    made = simulate(argv, __doc__, rows, of="ladders", usual=2000, to=FILE)
    flat = [row for row in made if row["false"] != "nan"]
    print(f"{len(made)} rows; false at most {max(float(row['false']) for row in flat):.3f} of {LEVEL} stated")


if __name__ == "__main__":
    main()
