"""What a mark says when it is pointed at."""

from __future__ import annotations

from bench.analysis.evidence import Evidence, Point
from bench.core.formatting import count, flops, interval, short_count
from bench.stats.intervals import Estimate


def point_text(evidence: Evidence, point: Point, measure: str, e: Estimate, *, label: str) -> str:
    """The run: model, size, data, compute; then its score with interval and n. Lines of plain text."""
    size = f" ({short_count(point.params)} parameters)" if point.params == point.params else ""
    lines = [
        f"{label}{size}",
        f"{count(point.unique_images)} images of {point.data}"
        + (f", {count(point.images_seen)} seen" if point.epochs == point.epochs else ""),
        f"{flops(point.train_flops)} of training" if point.train_flops > 0 else "",
        f"{evidence.name(measure, [point])}: {interval(e.value, e.half)} %",
        "published" if evidence.published else e.counts,
    ]
    return "\n".join(line for line in lines if line)
