"""Computes a weighted sum of the scores of two sides' points, such as the mean difference along a range or its slope,
with an interval.

The error is computed from the sum itself, so that noise that points share cancels or adds up as it does in the sum:

- training seeds: trunks (training runs) are independent. Budgets of one trunk share some of its random deviation
  (correlation `ADJACENT` from one budget to the next), which matters for means and slopes over budgets;
- few-shot samples: the error is the spread of the sum over the samples that all points have;
- test images: the error is computed image by image, if the records hold which images were right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from bench.analysis.comparisons import on_the_same_images
from bench.analysis.evidence import Evidence, Point
from bench.stats.intervals import (
    CHANGE,
    DRAWS,
    IMAGES,
    SEEDS,
    SHARE,
    UNBOUNDED,
    Estimate,
    Samples,
    common_labels,
    moderated_variance,
    sum_of_errors,
    t_quantile,
)
from bench.stats.moderated import ADJACENT

Parts = Sequence[tuple[float, Point]]
"""A weighted sum of points: (weight, point)."""


def contrast(evidence: Evidence, first: Parts, second: Parts, measure: str) -> tuple[Estimate, bool] | None:
    """Return the weighted sum of scores of the first side minus that of the second, with its interval, and whether test
    images were compared one by one. None if a point has no score, or if the points have no seed or no few-shot sample
    in common. The interval excludes training noise if that is unknown at some point.

    Args:
        first, second: (weight, point) of each term.
        measure: name of the score.
    """
    weight_of: dict[Point, float] = {}
    for sign, side in ((1.0, first), (-1.0, second)):
        for weight, point in side:
            weight_of[point] = weight_of.get(point, 0.0) + sign * weight
    weights = {point: weight for point, weight in weight_of.items() if weight}
    samples = {point: evidence.samples(point, measure) for _, point in (*first, *second)}
    known = {point: s for point, s in samples.items() if s is not None}
    if len(known) < len(samples) or not known:
        return None
    seeds = common_labels([s.seeds for s in known.values()])
    draws = common_labels([s.draws for s in known.values()])
    if seeds is None or draws is None:
        return None
    values_SD = np.zeros((max(1, len(seeds)), max(1, len(draws))))
    for point, weight in weights.items():
        values_SD = values_SD + weight * _on(known[point], seeds, draws)
    margins: dict[str, float] = {}
    excluded: list[str] = []
    error, df = _seed_error(evidence, weights, known, max(1, len(seeds)), measure)
    if df:
        margins[SEEDS] = t_quantile(df, evidence.level) * error
    elif seeds:
        excluded.append(SEEDS)
    if len(draws) > 1:
        spread = float(values_SD.mean(axis=0).std(ddof=1))
        margins[DRAWS] = t_quantile(len(draws) - 1, evidence.level) * spread / math.sqrt(len(draws))
    elif draws:
        excluded.append(DRAWS)
    sides = [[(weight, known[point]) for weight, point in side] for side in (first, second)]
    error_of_images = _as_two_sets(*sides)
    image_df = min(s.image_df for s in known.values())
    if math.isnan(error_of_images):
        excluded.append(IMAGES)
    else:
        margins[IMAGES] = t_quantile(image_df, evidence.level) * error_of_images
    anyone = next(iter(known.values()))
    made = Estimate(
        value=float(values_SD.mean()),
        margins=margins,
        excluded=tuple(excluded),
        moderated=df > 0,
        num_seeds=len(seeds),
        num_draws=len(draws),
        num_test=min(s.num_test for s in known.values()),
        tasks=anyone.tasks,
        level=evidence.level,
        seed_df=df,
        image_df=image_df,
        bounds=CHANGE if anyone.bounds == SHARE else UNBOUNDED,
    )
    paired = on_the_same_images(evidence, made, [(weight, point) for point, weight in weights.items()], measure)
    return (made, False) if paired is None else (replace(paired, image_df=math.inf), True)


def slope_weights(x: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return weights, (N,), such that the weighted sum of N values at `x` is their least-squares slope over log10 x."""
    log_x = np.log10(x)
    return np.asarray((log_x - log_x.mean()) / ((log_x - log_x.mean()) ** 2).sum())


def _on(samples: Samples, seeds: tuple[int, ...], draws: tuple[int, ...]) -> np.ndarray:
    rows = [samples.seeds.index(seed) for seed in seeds] if samples.seeds else [0] * max(1, len(seeds))
    columns = [samples.draws.index(draw) for draw in draws] if samples.draws else [0] * max(1, len(draws))
    return np.asarray(samples.values_SD[np.ix_(rows, columns)])


def _seed_error(
    evidence: Evidence, weights: Mapping[Point, float], known: Mapping[Point, Samples], seeds: int, measure: str
) -> tuple[float, float]:
    """Return the standard error over training seeds of a weighted sum of scores, and its degrees of freedom; (NaN, 0)
    if the error of some point is unknown.

    Args:
        weights: weight of each point.
        known: scores of each point.
        seeds: number of seeds that all points have.
        measure: name of the score.
    """
    pooled, places = evidence.pool(measure), _places(evidence)
    by_trunk: dict[object, list[tuple[int, float, Samples, float]]] = {}
    for point, weight in weights.items():
        samples = known[point]
        if samples.seeds:
            variance, df = moderated_variance(samples, pooled)
            if not df:
                return math.nan, 0.0
            by_trunk.setdefault(samples.trunk, []).append(
                (places.get(point.key, 0), weight * math.sqrt(variance), samples, df)
            )
    errors, models = [], []
    for parts in by_trunk.values():
        at, sd = np.array([part[0] for part in parts]), np.array([part[1] for part in parts])
        variance = float(sd @ ADJACENT ** np.abs(at[:, None] - at) @ sd)
        errors.append((math.sqrt(max(0.0, variance) / seeds), min(part[3] for part in parts)))
        models.append(parts[0][2].model)
    return sum_of_errors(errors, models) if errors else (math.nan, 0.0)


@lru_cache(maxsize=4)
def _places(evidence: Evidence) -> Mapping[tuple[str, int], int]:
    """Return the position of every trained point among the budgets of its trunk, by the point's key: 0 for the first
    budget, 1 for the next, …"""
    return {point.key: place for series in evidence.series for place, point in enumerate(series.points)}


def _as_two_sets(first: Sequence[tuple[float, Samples]], second: Sequence[tuple[float, Samples]]) -> float:
    """Return the standard error over test images of a difference between two weighted sums of scores, if it is unknown
    which images were right; NaN if the error of some point is unknown.

    It is the larger of two: one takes the errors of the points of a side as fully correlated and the sides as
    independent, the other takes all points as independent.
    """
    together = math.hypot(*(sum(weight * s.image_error for weight, s in side) for side in (first, second)))
    apart = math.hypot(*(weight * s.image_error for weight, s in (*first, *second)))
    return math.nan if math.isnan(together + apart) else max(together, apart)
