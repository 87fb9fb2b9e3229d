"""Computes the gap between two models of different families at equal compute, over the number of pre-training images.

A run that sees fewer images than its data set holds would be the same on any larger set, because every image is new to
it. Such a run on the largest set therefore stands for all set sizes above the number of images that it saw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from bench.analysis.begun import loss_of_guessing
from bench.analysis.budgets import ONE_BUDGET, budgets, one_budget
from bench.analysis.comparisons import Gap, below_pixels
from bench.analysis.contrast import contrast
from bench.analysis.evidence import HEADLINE, Evidence, Point, family_rank
from bench.analysis.finding import TREND_POINTS


@dataclass(frozen=True, kw_only=True)
class EqualComputePoint(Gap):
    """The gap between two families at one number of images and at equal compute. `x`: distinct images seen, the larger
    number of the two runs; `first`, `second`: these runs."""

    first: Point
    second: Point


@dataclass(frozen=True, kw_only=True)
class GapSeries:
    """The gap between two models of different families at one compute budget, over sizes of the data set.

    Attributes:
        families, models: names of the families, and of the models.
        alone: whether each model is the only one of its family on the data-size axis.
        flops: the budget, in FLOP.
        places: one gap for each size, the largest size last.
    """

    families: tuple[str, str]
    models: tuple[str, str]
    alone: bool
    flops: float
    places: tuple[EqualComputePoint, ...]

    @property
    def names(self) -> tuple[str, str]:
        """Names of the two sides: of the families if each has only one model here, otherwise of the models."""
        return self.families if self.alone else self.models


def gap_series(evidence: Evidence) -> tuple[GapSeries, ...]:
    """Return a series of gaps for every two models of different families that were trained with equal FLOPs on at least
    `TREND_POINTS` sizes of the data set.

    Pairs of families are ordered: the first family with the last, then with the last but one, and so on. Within a pair,
    the largest budgets come first, and at one budget the models with the highest accuracy.
    """
    models: dict[str, dict[str, list[Point]]] = {}
    for series in evidence.on_axis("data_size"):
        if any("data_size" in p.axes for p in series.points):
            models.setdefault(series.family, {}).setdefault(series.last.model, []).extend(series.points)
    lines: list[GapSeries] = []
    names = sorted(models, key=family_rank)
    pairs = [(a, b) for n, a in enumerate(names) for b in reversed(names[n + 1 :])]
    for families in pairs:
        alone = all(len(models[name]) == 1 for name in families)
        for (first, of_first), (second, of_second) in product(*(models[name].items() for name in families)):
            for budget in sorted({p.train_flops for p in of_first}, reverse=True):
                sides = [[p for p in side if one_budget(p.train_flops, budget)] for side in (of_first, of_second)]
                places = _equal_compute_points(evidence, sides[0], sides[1])
                if len(places) >= TREND_POINTS:
                    lines.append(
                        GapSeries(families=families, models=(first, second), alone=alone, flops=budget, places=places)
                    )
    at = budgets([line.flops for line in lines])
    order = sorted(
        range(len(lines)), key=lambda n: (pairs.index(lines[n].families), -at[n], -lines[n].places[-1].accuracy)
    )
    return tuple(lines[n] for n in order)


def _equal_compute_points(
    evidence: Evidence, first: Sequence[Point], second: Sequence[Point]
) -> tuple[EqualComputePoint, ...]:
    made: dict[float, EqualComputePoint] = {}
    for size in sorted({p.num_images for p in (*first, *second)}):
        a, b = _point_on(first, size), _point_on(second, size)
        of_a, of_b = (evidence.samples(p, HEADLINE) if p else None for p in (a, b))
        made_of = contrast(evidence, [(1.0, a)], [(1.0, b)], HEADLINE) if a and b else None
        if a and b and of_a and of_b and made_of:
            gap, paired = made_of
            x = float(max(min(p.num_images, p.images_seen) for p in (a, b)))  # as planned; actually up to a batch off
            made[x] = EqualComputePoint(
                x=x,
                first=a,
                second=b,
                first_model=a.series,
                second_model=b.series,
                estimate=gap,
                paired=paired,
                accuracy=(of_a.mean + of_b.mean) / 2,
                below=below_pixels(evidence, ((a.family, [(1.0, a)]), (b.family, [(1.0, b)])), HEADLINE),
            )
    return tuple(made[x] for x in sorted(made))


def _point_on(points: Sequence[Point], size: int) -> Point | None:
    """Return the point that was trained on `size` images. If there is none, return the point on the most images among
    those whose run saw too few images for the size to make a difference; None if there are none of these either."""
    exact = [p for p in points if p.num_images == size]
    fresh = [p for p in points if p.images_seen <= min(p.num_images, size)]
    return exact[0] if exact else max(fresh, key=lambda p: p.num_images, default=None)


@dataclass(frozen=True, kw_only=True)
class StillFalling:
    """How much the training loss of a model on all images still fell during the last doubling of images seen before a
    budget.

    Attributes:
        model: name of the model.
        flops: the budget, in FLOP.
        nats: fall of the loss, in nats.
        share: fall of the loss as a fraction of the loss of guessing.
    """

    model: str
    flops: float
    nats: float
    share: float


def still_falling(evidence: Evidence) -> tuple[StillFalling, ...]:
    """Return by how much the training loss still fell before each budget, for every model of every gap series. The
    losses are those at the end of the cool-down that every budget has."""
    falling: dict[tuple[float, str], StillFalling] = {}
    table = evidence.horizons[evidence.horizons["status"] == "complete"]
    every = gap_series(evidence)
    for line, at in zip(every, budgets([line.flops for line in every]).tolist(), strict=True):
        for label in {p.series for place in line.places for p in (place.first, place.second)}:
            mine = table[table["series"] == label]
            mine = mine[mine["num_images"] == mine["num_images"].max()]
            spent = mine[f"train_flops_{evidence.convention}"]
            mine = mine[(spent > 0) & (spent < ONE_BUDGET * line.flops)]
            loss = mine.groupby("images_seen")["final_train_loss"].mean().dropna()
            if len(loss) > 1:
                (seen, before), (most, last) = loss.iloc[-2:].items()
                nats = float((before - last) * math.log(2) / math.log(most / seen))
                guessing = loss_of_guessing(float(mine["num_classes"].iloc[0]))
                falling[at, label] = StillFalling(model=label, flops=at, nats=nats, share=nats / guessing)
    return tuple(falling[key] for key in sorted(falling))
