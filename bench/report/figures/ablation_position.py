"""Figure that compares position embeddings, by their kind and by where they are added, as the ViT paper's Table 8
does."""

from __future__ import annotations

from bench.analysis.evidence import Evidence
from bench.questions.as_published import Ablations
from bench.report.figures import _variants
from bench.report.figures.figure import Drawing, Figure, NothingToDraw

TITLE = "Position embeddings"
ENCODINGS = {
    "none": "None",
    "learned-1d": "1-D",
    "learned-2d": "2-D",
    "relative": "Relative",
    "sincos-2d": "Sine-cosine",
}
PLACES = {"stem": "At the stem", "every-layer": "At every layer, each its own", "shared": "At every layer, shared"}


def draw(evidence: Evidence) -> Drawing:
    """Draw accuracy with one point per kind of position embedding and place at which it is added."""
    ablations = Ablations(evidence)
    at = ablations.positions()
    if not at:
        raise NothingToDraw("no position embeddings were compared")
    curves = []
    for place, label in PLACES.items():
        points = [(float(x), at[name, place]) for x, name in enumerate(ENCODINGS) if (name, place) in at]
        curves.append(_variants.Curve(label=label, points=tuple(points)))
    return _variants.draw(
        ablations.whole,
        [c for c in curves if c.points],
        measures=_variants.judged_by(ablations.whole, at.values()),
        x_label="Position embedding",
        x_name="encoding",
        ticks=tuple(ENCODINGS.values()),
        alt=f"{TITLE}: accuracy by kind and place.",
        caption=f"{ablations.base} with other position embeddings (the paper's Table 8), all at one learning rate. "
        "Relative positions enter every layer's attention.",
    )


FIGURE = Figure(title=TITLE, draw=draw)
