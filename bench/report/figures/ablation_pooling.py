"""Class token against mean pooling across learning rates; the paper's Figure 9."""

from __future__ import annotations

from bench.analysis.evidence import HEADLINE, UPSTREAM, Evidence
from bench.questions.as_published import POOLING, Ablations
from bench.report.figures import _variants
from bench.report.figures.figure import Drawing, Figure, NothingToDraw

TITLE = "Class token or mean pooling"
LABELS = {"cls": "Class token", "mean": "Mean over patch tokens"}


def draw(evidence: Evidence) -> Drawing:
    """A line per way to pool."""
    ablations = Ablations(evidence)
    curves = []
    for setting, sweep in ablations.sweeps(POOLING):
        known = [(t.rate, p) for t in sweep.tried if (p := ablations.at_rate(sweep, t.rate))]
        label = LABELS[setting.config.pooling]
        curves.append(_variants.Curve(label=label, points=tuple(known)))
    if not curves:
        raise NothingToDraw("pooling was not compared")
    return _variants.draw(
        ablations.whole,
        sorted(curves, key=lambda c: c.label),
        measures=(HEADLINE, UPSTREAM),
        x_label="Learning rate",
        x_name="learning_rate",
        alt=f"{TITLE}: accuracy against learning rate, a line per way to pool.",
        caption=f"{ablations.base} with learned positions, read at a class token or at the mean over patch tokens (the "
        "paper's Figure 9).",
    )


FIGURE = Figure(title=TITLE, draw=draw)
