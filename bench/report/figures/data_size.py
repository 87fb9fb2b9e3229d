"""Accuracy against the number of distinct pre-training images, in the manner of the ViT paper's Figure 4."""

from __future__ import annotations

from bench.analysis.comparisons import size_curves
from bench.analysis.evidence import Evidence
from bench.core.formatting import count, join
from bench.report.figures import _panels, _style
from bench.report.figures._contract import Drawing, NothingToDraw

TITLE = "Accuracy versus number of pre-training images"


def draw(evidence: Evidence) -> Drawing:
    """One line per model; every point of a line has seen equally many images, only fewer or more distinct ones."""
    curves = size_curves(evidence)
    if not curves:
        raise NothingToDraw("no model was trained on two or more numbers of images")
    sizes = _style.marker_sizes([c.points[-1].params for c in curves])
    lines = [
        _panels.Line(
            label=c.label,
            family=c.family,
            points=c.points,
            size=size,
            x=tuple(float(p.unique_images) for p in c.points),
        )
        for c, size in zip(curves, sizes, strict=True)
    ]
    seen = join([f"{c.label} {count(c.points[0].images_seen)}" for c in curves])
    return _panels.draw(
        evidence,
        lines,
        x_label="Distinct pre-training images",
        x_name="distinct_images",
        dodge=True,
        caption=f"Every point of a line has seen equally many images: {seen}.",
        alt=f"{TITLE}: {len(lines)} models, one panel per task.",
    )
