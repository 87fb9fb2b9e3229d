"""Figure: zero-shot error of published CLIP networks against training compute, by data set."""

from __future__ import annotations

import numpy as np

from bench.analysis.evidence import Evidence
from bench.core.formatting import significant
from bench.published import drawing
from bench.published.clip import SETS, networks, power_law
from bench.report.figures import _style
from bench.report.figures.figure import Annotation, Drawing, Figure

TITLE = "CLIP: zero-shot error against compute, by data set: not controlled"


def draw(evidence: Evidence) -> Drawing:
    """Draw each network as a point, and the power law that fits the networks of a data set as a dashed line within
    their range.

    Raises:
        NothingToDraw: the evidence is not that of published networks.
    """
    drawing.expect_public(evidence)
    table = networks()
    annotations = []
    with _style.context():
        figure = _style.figure(height=_style.current().single[1] + 1.2, width=_style.current().single[0] + 1)
        axes = figure.subplots()
        for name, (colour, marker) in zip(SETS, _style.VARIANTS, strict=True):
            rows = table[table["upstream"] == name]
            factor, exponent, low, high = power_law(rows["compute"], rows["error"])
            x = np.geomspace(rows["compute"].min(), rows["compute"].max(), 30)
            look = drawing.look(colour, controlled=False)
            label = f"{name}: compute^{_signed(-exponent)} [{_signed(-high)}, {_signed(-low)}]"
            axes.plot(x, factor * x**-exponent, **look)
            axes.plot(
                rows["compute"],
                rows["error"],
                marker=marker,
                label=label,
                **{**look, "linestyle": ""},
            )
            for row in rows.to_dict("records"):
                said = f"{row['model']}\n{row['error']:.1f} % error at {significant(row['compute'])} exaFLOPs"
                annotations.append(Annotation(axes=axes, x=row["compute"], y=row["error"], text=said))
        drawing.error_axis(axes, label="Zero-shot error on ImageNet [%]")
        _style.plain_log_x(axes, list(table["compute"]))
        axes.set_xlabel("Training compute of both towers [exaFLOPs]")
        _style.legend(figure, axes.get_lines()[1::2], columns=1)  # every second line is a law
    return Drawing(
        figure=figure,
        data=table[["model", "upstream", "compute", "error", "images_seen", "source"]],
        annotations=tuple(annotations),
        caption=(
            "Plain ViTs, without those near chance. Dashed: power laws by least squares in logarithms, exponents with "
            "95 % intervals. DataComp is the best part of CommonPool. Batches, numbers of samples differ between sets.",
            drawing.QUOTED,
        ),
        alt=f"{TITLE}: {table['upstream'].nunique()} sets, {len(table)} networks.",
    )


def _signed(exponent: float) -> str:
    return f"{exponent:.2f}".replace("-", "−")


FIGURE = Figure(title=TITLE, draw=draw)
