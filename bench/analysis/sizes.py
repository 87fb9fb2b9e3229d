"""Curves over the number of distinct pre-training images at equal images seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bench.analysis.evidence import Evidence, Point, Series, family_rank


@dataclass(frozen=True, kw_only=True)
class SizeCurve:
    """One model at one number of images seen, over nested subsets; points in order of distinct images."""

    label: str
    family: str
    points: tuple[Point, ...]

    @property
    def decades(self) -> float:
        """Range of distinct images in powers of ten."""
        return math.log10(self.points[-1].unique_images / self.points[0].unique_images)


def size_curves(evidence: Evidence) -> tuple[SizeCurve, ...]:
    """For each model of the data-size axis, its points at the longest horizon that most of its sizes reached."""
    groups: dict[tuple[str, str], list[Series]] = {}
    for series in evidence.on_axis("data_size"):
        groups.setdefault((series.label, series.last.data), []).append(series)
    curves = []
    for (label, _), members in groups.items():
        reached: dict[int, dict[int, Point]] = {}  # images seen -> distinct images -> point
        for series in members:
            for point in series.points:
                reached.setdefault(point.images_seen, {})[point.unique_images] = point
        best = max(reached, key=lambda seen: (len(reached[seen]), seen))
        points = tuple(reached[best][n] for n in sorted(reached[best]) if n > 0)
        if len(points) > 1:
            curves.append(SizeCurve(label=label, family=points[0].family, points=points))
    return tuple(sorted(curves, key=lambda c: (family_rank(c.family), c.points[-1].forward_macs, c.label)))
