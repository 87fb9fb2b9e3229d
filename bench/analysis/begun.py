"""Decides whether a network has begun to learn at a point (a model at one budget).

The score of a network that has not begun to learn is that of its initialisation, and says nothing about its family: a
"lead" over it is a difference between initialisations. Such points are drawn hollow in figures, and are left out of
comparisons, laws, crossings and sentences (by `Evidence.on_axis`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from bench.stats.intervals import IMAGES, POINT_LEVEL, SEEDS, Estimate, Samples, difference, estimate, pool, z_quantile
from bench.stats.paired import contrast_error

NEAR_GUESSING = 0.9
"""A network has not begun to learn if its training loss is above this fraction of the loss of guessing. A loss stays on
a plateau there for many steps and then falls within a few. So the exact fraction hardly matters, as long as it allows
for the noise of a mean over a few batches."""


class NotBegun(StrEnum):
    """The reason why a network counts as not having begun to learn at a point."""

    LOSS = "loss of chance"  # the training loss is more than `NEAR_GUESSING` times that of guessing
    SCORE = "score of the untrained network"  # the score exceeds that score by no more than the interval


def not_begun(*, loss: float, guessing: float, gain: Estimate | None) -> NotBegun | None:
    """Return why a network counts as not having begun to learn; None if it has begun, or if its record has neither a
    loss nor a gain (as for published numbers).

    The loss is tested first, because it is measured on thousands of images and is not the quantity that is compared.
    The loss alone is not enough: a network may learn its pre-training set while its features are no better for a probe
    than those of its initialisation.

    Args:
        loss: mean training loss of the last steps; NaN if it is unknown, or not a classification loss.
        guessing: the loss of guessing (`loss_of_guessing`).
        gain: score minus that of the same network before training; None if either was not measured.
    """
    if loss > NEAR_GUESSING * guessing:
        return NotBegun.LOSS
    # For a single run, the interval excludes training noise and says little: such a run counts as begun unless its
    # score is lower than before training.
    if gain is not None and (gain.value < 0 if SEEDS in gain.excluded else gain.value <= gain.half):
        return NotBegun.SCORE
    return None


def loss_of_guessing(classes: float, *, sigmoid: bool = False) -> float:
    """Return the loss, in nats, of a network that gives every class the same probability; NaN for fewer than two
    classes.

    Args:
        classes: number of classes.
        sigmoid: whether the loss is the sigmoid loss, summed over the classes, rather than the softmax loss.
    """
    if not classes > 1:
        return math.nan
    return math.log(classes) + ((classes - 1) * math.log(classes / (classes - 1)) if sigmoid else 0.0)


def gains(
    pairs: Sequence[tuple[Samples, Samples, Sequence[tuple[float, Samples]]]], *, level: float = POINT_LEVEL
) -> list[Estimate | None]:
    """Return, for each network, its score after training minus its score before, on the seeds and few-shot samples that
    both have; None for a network whose two scores share none.

    Args:
        pairs: for each network, (scores when trained, scores when untrained, the same difference as a weighted sum of
            scores on single tasks). The last entry serves to compare test images one by one.
        level: confidence level of the intervals.
    """
    both = [difference(trained, untrained) for trained, untrained, _ in pairs]
    pooled = pool(made for made in both if made is not None)
    found: list[Estimate | None] = []
    for made, (_, _, single) in zip(both, pairs, strict=True):
        if made is None:
            found.append(None)
            continue
        e = estimate(made, pooled=pooled, level=level)
        error = contrast_error(single)
        paired = {} if error is None else {IMAGES: z_quantile(level) * error}
        found.append(replace(e, margins={**e.margins, **paired}))
    return found
