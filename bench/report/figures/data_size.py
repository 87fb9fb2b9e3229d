"""Accuracy against the number of distinct pre-training images, in the manner of the ViT paper's Figure 4."""

from __future__ import annotations

from bench.analysis.comparisons import size_curves
from bench.analysis.evidence import Evidence
from bench.core.formatting import count, join
from bench.report.figures import _panels
from bench.report.figures.figure import Drawing, Figure, NothingToDraw

TITLE = "Accuracy versus number of pre-training images"


def draw(evidence: Evidence) -> Drawing:
    """One line per model; every point of a line has seen equally many images, only fewer or more distinct ones."""
    curves = size_curves(evidence)
    if not curves:
        raise NothingToDraw("no model was trained on two or more numbers of images")
    lines = [
        _panels.ModelPoints(
            label=c.label, family=c.family, points=c.points, x=tuple(float(p.unique_images) for p in c.points)
        )
        for c in curves
    ]
    seen = join([f"{c.label} {count(c.points[0].images_seen)}" for c in curves])
    return _panels.draw(
        evidence,
        lines,
        _panels.XAxis(label="Distinct pre-training images", column="distinct_images", trend=True),
        caption=(f"Every point of a line has seen equally many images: {seen}.", "Bands are the points' intervals."),
        alt=f"{TITLE}: {len(lines)} models.",
    )


FIGURE = Figure(title=TITLE, draw=draw)
