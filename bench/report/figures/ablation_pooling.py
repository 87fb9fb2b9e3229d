"""Figure that compares reading a ViT at its class token with reading it at the mean over patches: accuracy over epochs
at each learning rate, as in the ViT paper's Figure 9; where runs were evaluated only at their end, over learning
rates."""

from __future__ import annotations

from bench.analysis.evidence import Evidence
from bench.questions.as_published import POOLING, Ablations
from bench.report.figures import _variants
from bench.report.figures.figure import Drawing, Figure, NothingToDraw

TITLE = "Class token or mean pooling"
LABELS = {"cls": "Class token", "mean": "Mean over patch tokens"}


def draw(evidence: Evidence) -> Drawing:
    """Draw accuracy with one line per way to pool (class token, mean over patches), or one per way to pool and learning
    rate."""
    ablations = Ablations(evidence)
    if any(len(setting.series.points) > 1 for setting in ablations.on(POOLING)):
        return _over_epochs(ablations)
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
        measures=_variants.judged_by(ablations.whole, (p for c in curves for _, p in c.points)),
        x_label="Learning rate",
        x_name="learning_rate",
        alt=f"{TITLE}: accuracy against learning rate, a line per way to pool.",
        caption=f"{ablations.base} with learned positions, read at a class token or at the mean over patch tokens (the "
        "paper's Figure 9).",
    )


def _over_epochs(ablations: Ablations) -> Drawing:
    """Draw accuracy against epochs, with one line per training that was evaluated several times before its end."""
    settings = ablations.on(POOLING)
    curves = {}
    for setting in settings:
        pooling, rate = setting.config.pooling, ablations.recipe(setting.point).lr
        points = tuple((p.epochs, p) for p in setting.series.points)
        curves[pooling, -rate] = _variants.Curve(label=f"{LABELS[pooling]}, rate {rate:g}", points=points)
    return _variants.draw(
        ablations.whole,
        [curves[key] for key in sorted(curves)],
        measures=_variants.judged_by(ablations.whole, (p for s in settings for p in s.series.points)),
        x_label="Epochs of training",
        x_name="epochs",
        linear=True,
        alt=f"{TITLE}: accuracy against epochs, a line per way to pool and learning rate.",
        caption=f"{settings[0].base}, read at a class token or at the mean over patch tokens (the paper's Figure 9). "
        "Each line is one training on its way: its rate falls to zero at the end of the line.",
    )


FIGURE = Figure(title=TITLE, draw=draw)
