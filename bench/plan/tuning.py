"""Tune learning rates alike for the baseline and every change of a ladder (its "arms"). A ladder trains its arms at
several budgets; each arm gets the same number of trials at the lowest and at the highest of them, judged by accuracy on
held-out images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

FIRST = 4  # trials of an arm before further ones are added
STEP = 3.0  # factor from one learning rate to the next
MOST = 8  # largest number of trials of an arm

K = TypeVar("K")


@dataclass(frozen=True, kw_only=True)
class Trials:
    """The trials of one arm at one end of the ladder.

    Attributes:
        rates: learning rates that were tried, ascending.
        scores: held-out accuracy at each learning rate, None for a run that diverged; empty before the runs are done.
    """

    rates: tuple[float, ...]
    scores: tuple[float | None, ...] = ()

    @property
    def best(self) -> int:
        """Index of the learning rate with the highest accuracy; of the lowest rate among equally good ones."""
        return max(range(len(self.rates)), key=lambda k: (-1.0 if self.scores[k] is None else self.scores[k], -k))

    @property
    def at_edge(self) -> bool:
        """Whether the best learning rate is the lowest or the highest that was tried. A rate at which training diverged
        counts as tried."""
        return self.best in (0, len(self.rates) - 1)


def further(trials: Mapping[K, Trials]) -> dict[K, Trials]:
    """Return the trials with one more learning rate each, so that no arm is tuned more than another; {} if tuning is
    finished, because no best rate is the lowest or the highest that was tried, or because some arm has had `MOST`
    trials.

    If the best rate of an arm is the lowest or the highest that it tried, the new rate lies beyond it; otherwise it
    lies between the best rate and the better of its neighbours.

    Args:
        trials: any key for an arm at one end of the ladder -> its trials, with scores.
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
    """Return the learning rate to use after these trials: the top of the parabola through the accuracies at the best
    rate and its two neighbours, over the logarithm of the rate, and between these neighbours. It is the best rate
    itself if that is at an edge, if a neighbour diverged, or if the parabola has no top."""
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
