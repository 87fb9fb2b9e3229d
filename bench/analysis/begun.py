"""Whether a network has begun to learn at a point. One that has not says nothing of its family: what is left of its
score is that of its initialisation, and a "lead" over it is a difference of initialisations. Such points are drawn
hollow, and enter no comparison, no law, no crossing and no sentence; `Evidence.on_axis` leaves them out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from bench.stats.intervals import IMAGES, POINT_LEVEL, SEEDS, Estimate, Samples, difference, estimate, pool, z_quantile
from bench.stats.paired import contrast_error

NEAR_GUESSING = 0.9
"""The share of the loss of guessing above which a network has not left it. A loss stays on a plateau there for many
steps and then falls within few, so that the share hardly matters; the noise of a mean over a few batches does."""


class NotBegun(StrEnum):
    """Why a point counts as one that has not begun to learn."""

    LOSS = "loss of chance"  # the training loss lies within a tenth of that of guessing
    SCORE = "score of the untrained network"  # the score is not above it beyond the interval of the difference


def not_begun(*, loss: float, guessing: float, gain: Estimate | None) -> NotBegun | None:
    """Why a point has not begun to learn; None where it has, or where its record holds neither loss nor gain (numbers
    that others published).

    The loss comes first since it is measured on thousands of images and is not what is compared. It does not suffice:
    a network may learn its upstream set and still offer a probe no more than its initialisation did.

    Args:
        loss: the mean training loss of the last steps; NaN where it is unknown, or not one of classes.
        guessing: the loss of guessing (`loss_of_guessing`).
        gain: score minus that of the same network before training; None where either was not measured.
    """
    if loss > NEAR_GUESSING * guessing:
        return NotBegun.LOSS
    # An interval without chance of training says little of a single run: one that is no worse than it began stays.
    if gain is not None and (gain.value < 0 if SEEDS in gain.excluded else gain.value <= gain.half):
        return NotBegun.SCORE
    return None


def loss_of_guessing(classes: float, *, sigmoid: bool = False) -> float:
    """The loss, in nats, of a network that gives every class its share (sigmoid: summed over the classes)."""
    if not classes > 1:
        return math.nan
    return math.log(classes) + ((classes - 1) * math.log(classes / (classes - 1)) if sigmoid else 0.0)


def gains(
    pairs: Sequence[tuple[Samples, Samples, Sequence[tuple[float, Samples]]]], *, level: float = POINT_LEVEL
) -> list[Estimate | None]:
    """Each first minus its second on the same seeds and draws; None where they share none.

    Args:
        pairs: trained, untrained, and the same two as a weighted sum over single tasks, whose test images are paired.
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
