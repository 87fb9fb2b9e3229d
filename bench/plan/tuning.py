"""Tunes learning rates alike for the baseline and every change of a ladder (its "arms"): with as many trials of each at
both ends of the ladder, judged by held-out accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

FIRST = 4  # trials before any is added
STEP = 3.0  # factor from one learning rate to the next
MOST = 8  # trials at most

K = TypeVar("K")


@dataclass(frozen=True, kw_only=True)
class Trials:
    """The learning rates that were tried, ascending, and the held-out accuracy at each; None for a run that
    diverged."""

    rates: tuple[float, ...]
    scores: tuple[float | None, ...] = ()

    @property
    def best(self) -> int:
        """Index of the best learning rate; of the lowest among equally good ones."""
        return max(range(len(self.rates)), key=lambda k: (-1.0 if self.scores[k] is None else self.scores[k], -k))

    @property
    def at_edge(self) -> bool:
        """Whether the best learning rate is the lowest or the highest that was tried. One that diverged counts as
        tried."""
        return self.best in (0, len(self.rates) - 1)


def further(trials: Mapping[K, Trials]) -> dict[K, Trials]:
    """Return the trials with one more learning rate each, for every arm and end of the ladder, so that none is tuned
    more than another.

    An arm whose best rate lies at an end of those it tried gets one beyond that end; the others get one between their
    best rate and its better neighbour. Return nothing if no arm's best lies at an end, or one has had `MOST` trials.
    """
    if not any(made.at_edge for made in trials.values()) or any(len(made.rates) >= MOST for made in trials.values()):
        return {}
    return {
        key: replace(made, rates=tuple(sorted((*made.rates, _next(made)))), scores=()) for key, made in trials.items()
    }


def _next(made: Trials) -> float:
    if made.best == 0:
        return _rounded(made.rates[0] / STEP)
    if made.best == len(made.rates) - 1:
        return _rounded(made.rates[-1] * STEP)
    below, above = (-1.0 if (s := made.scores[made.best + side]) is None else s for side in (-1, 1))
    return _rounded(math.sqrt(made.rates[made.best] * made.rates[made.best + (1 if above > below else -1)]))


def choice(made: Trials) -> float:
    """Return the learning rate at the top of the parabola through the best rate and its neighbours (over the logarithm
    of the rate), within these; the best rate if the parabola has no top."""
    if made.at_edge:
        return made.rates[made.best]
    near = range(made.best - 1, made.best + 2)
    scores = [made.scores[k] for k in near]
    if any(score is None for score in scores):
        return made.rates[made.best]
    (a, b, c), (x, y, z) = (math.log(made.rates[k]) for k in near), (float(score or 0.0) for score in scores)
    bend = (b - a) * (y - z) + (c - b) * (y - x)
    if bend <= 0:
        return made.rates[made.best]
    top = b - 0.5 * ((b - a) ** 2 * (y - z) - (c - b) ** 2 * (y - x)) / bend
    return _rounded(math.exp(min(max(top, a), c)))


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")
