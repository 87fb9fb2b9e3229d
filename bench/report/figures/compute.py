"""Performance against pre-training compute, in the manner of the ViT paper's Figure 5."""

from __future__ import annotations

from collections.abc import Sequence

from bench.analysis.evidence import Evidence, Series
from bench.core.formatting import flop_unit
from bench.report.figures import _panels, _style
from bench.report.figures._contract import Drawing, NothingToDraw

TITLE = "Performance versus pre-training compute"


def draw(evidence: Evidence) -> Drawing:
    """One line per model through its horizons; x is each point's own full compute, as if trained alone."""
    series = _with_compute(evidence)
    if not series:
        raise NothingToDraw("no trained model with a compute count")
    quoted = _with_compute(evidence.reference) if evidence.reference else []
    flops = [p.train_flops for s in [*series, *quoted] for p in s.points if p.train_flops > 0]
    scale, unit = flop_unit((min(flops) * max(flops)) ** 0.5) if not quoted else (1.0, "FLOP")  # decades: ticks say k…E
    lines, reference = _lines(series, scale), _lines(quoted, scale)
    return _panels.draw(
        evidence,
        lines,
        reference=reference,
        x_label=f"Pre-training compute [{unit}s]",
        x_name=f"compute_{unit}s",
        caption=(
            "Faint lines join one model's horizons (they are not fits); larger markers are larger models"
            f"{_panels.distinguished(lines)}. {counted(evidence)}"
        ),
        alt=f"{TITLE}: {len(lines)} models, one panel per task.",
    )


def counted(evidence: Evidence) -> str:
    """What the axis of compute counts."""
    convention = "convolutions without zero-padded taps" if evidence.convention == "paper" else "dense convolutions"
    ended = "" if evidence.published else "; each point is cooled down to zero learning rate"
    return f"Compute: forward and backward, 2 FLOPs per multiply-add, {convention}{ended}."


def _with_compute(evidence: Evidence) -> list[Series]:
    return [s for s in evidence.on_axis("compute") if any(p.train_flops > 0 for p in s.points)]


def _lines(series: Sequence[Series], scale: float) -> list[_panels.Line]:
    """Lines with x in units of `scale` FLOP; marker by size."""
    sizes = _style.marker_sizes([s.last.params for s in series])
    lines = []
    for s, size in zip(series, sizes, strict=True):
        points = tuple(p for p in s.points if p.train_flops > 0)
        x = tuple(p.train_flops / scale for p in points)
        lines.append(_panels.Line(label=s.label, family=s.family, points=points, x=x, size=size))
    return lines
