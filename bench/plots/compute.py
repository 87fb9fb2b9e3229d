"""Performance against pre-training compute, in the manner of the ViT paper's Figure 5."""

from __future__ import annotations

from bench.analysis.evidence import Evidence
from bench.analysis.words import flop_unit
from bench.plots import _panels, _style
from bench.plots._contract import Drawing, NothingToDraw

TITLE = "Performance versus pre-training compute"


def draw(evidence: Evidence) -> Drawing:
    """One line per model through its horizons; x is each point's own full compute, as if trained alone."""
    series = [s for s in evidence.on_axis("compute") if any(p.train_flops > 0 for p in s.points)]
    if not series:
        raise NothingToDraw("no trained model with a compute count")
    flops = [p.train_flops for s in series for p in s.points if p.train_flops > 0]
    scale, unit = flop_unit((min(flops) * max(flops)) ** 0.5)
    sizes = _style.marker_sizes([s.last.params_body for s in series])
    lines = []
    for s, size in zip(series, sizes, strict=True):
        points = tuple(p for p in s.points if p.train_flops > 0)
        x = tuple(p.train_flops / scale for p in points)
        lines.append(_panels.Line(label=s.label, family=s.family, points=points, x=x, size=size))
    counted = "convolutions without zero-padded taps" if evidence.convention == "paper" else "dense convolutions"
    return _panels.draw(
        evidence, lines, x_label=f"Pre-training compute [{unit}s]", x_name=f"compute_{unit}s",
        caption=(
            "Faint lines join one model's horizons (they are not fits); larger markers are larger models. Compute: "
            f"forward and backward, 2 FLOPs per multiply-add, {counted}; each point is cooled down to zero rate."
        ),
        alt=f"{TITLE}: {len(lines)} models, one panel per task, with raw pixels and untrained networks as baselines.",
    )  # fmt: skip
