"""Figure of accuracy against pre-training compute, in the manner of the ViT paper's Figure 5."""

from __future__ import annotations

from collections.abc import Sequence

from bench.analysis.evidence import Evidence, Series
from bench.core.formatting import common_flop_unit
from bench.report.figures import _panels
from bench.report.figures.figure import Drawing, Figure, NothingToDraw

TITLE = "Performance versus pre-training compute"
ONE_UNIT = 1e6  # largest over smallest compute up to which one unit suits a study and published points beside it
LEAST_SPAN = 4.0  # largest over smallest compute below which there is nothing to see along the axis


def draw(evidence: Evidence) -> Drawing:
    """Draw one point for each horizon (budget at which it was evaluated) of a model. Its x is the compute of a training
    to this horizon alone, even if horizons shared a part of their training."""
    series = _with_compute(evidence)
    if not series:
        raise NothingToDraw("no trained model with a compute count")
    measured = [p.train_flops for s in series for p in s.points if p.train_flops > 0]
    if max(measured) < LEAST_SPAN * min(measured) and not evidence.reference:
        raise NothingToDraw(f"the largest compute is less than {LEAST_SPAN:g} times the smallest")
    quoted = _with_compute(evidence.reference) if evidence.reference else []
    theirs = [p.train_flops for s in quoted for p in s.points if p.train_flops > 0]
    one_unit = max([*measured, *theirs]) < ONE_UNIT * min([*measured, *theirs])
    scale, unit = common_flop_unit(measured) if one_unit or not quoted else (1.0, "FLOP")  # ticks say k…E
    lines = _lines(series, scale)
    return _panels.draw(
        evidence,
        lines,
        _panels.XAxis(label=f"Pre-training compute [{unit}s]", column=f"compute_{unit}s"),
        reference=_lines(quoted, scale),
        caption=("Faint lines join one model's budgets; they are not fits.", counted(evidence)),
        alt=f"{TITLE}: {len(lines)} models.",
    )


def counted(evidence: Evidence) -> str:
    """Return a sentence for the caption on which operations the compute axis counts."""
    convention = "convolutions without zero-padded taps" if evidence.convention == "paper" else "dense convolutions"
    ended = "" if evidence.published else "; learning rates end at zero"
    return f"Compute: forward and backward, 2 FLOPs per multiply-add, {convention}{ended}."


def _with_compute(evidence: Evidence) -> list[Series]:
    return [s for s in evidence.on_axis("compute", every=True) if any(p.train_flops > 0 for p in s.points)]


def _lines(series: Sequence[Series], scale: float) -> list[_panels.ModelPoints]:
    """Return one line of points per series (a model with its recipe), with x in units of `scale` FLOP."""
    lines = []
    for s in series:
        points = tuple(p for p in s.points if p.train_flops > 0)
        x = tuple(p.train_flops / scale for p in points)
        lines.append(_panels.ModelPoints(label=s.label, family=s.family, points=points, x=x))
    return lines


FIGURE = Figure(title=TITLE, draw=draw)
