"""Figure of accuracy against relative compute for networks with another depth, width, MLP width or patch size, or all
of these, as the ViT paper's Figure 8."""

from __future__ import annotations

from bench.analysis.evidence import Evidence
from bench.core.by_key import by_key
from bench.questions.as_published import SHAPE, Ablations
from bench.report.figures import _variants
from bench.report.figures.figure import Drawing, Figure, NothingToDraw

TITLE = "Shape of the network"
DIMENSIONS = {
    "all": "All together",
    "depth": "Depth",
    "patch_size": "Patch size",
    "mlp_width": "Width of the MLP",
    "width": "Width",
}


def draw(evidence: Evidence) -> Drawing:
    """Draw accuracy against relative compute, with one line per dimension that was changed; all lines pass through the
    network that the others are changed from."""
    ablations = Ablations(evidence)
    by = by_key((ablations.dimension(setting), setting.point) for setting in ablations.on(SHAPE))
    if "" not in by or len(by) < 2:
        raise NothingToDraw("shapes were not compared")
    (base,) = by.pop("")[:1]
    curves = []
    for name, label in DIMENSIONS.items():
        points = sorted((*by.get(name, ()), base), key=lambda p: p.forward_macs)
        made = tuple((p.forward_macs / base.forward_macs, p) for p in points)
        curves += [_variants.Curve(label=label, points=made)] if len(made) > 1 else []
    return _variants.draw(
        ablations.whole,
        curves,
        measures=[
            m
            for m in _variants.judged_by(ablations.whole, (p for c in curves for _, p in c.points))
            if ablations.whole.estimate(base, m)
        ][:1],
        x_label=f"Compute, relative to {base.model} (all saw as many images)",
        x_name="relative_compute",
        alt=f"{TITLE}: accuracy against relative compute, a line per dimension.",
        caption=f"{base.model} with one dimension changed, or all (the paper's Figure 8), for as many images and "
        "at one learning rate. Black: the network that is changed.",
    )


FIGURE = Figure(title=TITLE, draw=draw)
