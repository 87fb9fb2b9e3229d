"""Families that are compared at equal error, a panel per experiment: solid where it is controlled, dashed elsewhere."""

from __future__ import annotations

import pandas as pd

from bench.analysis.evidence import Evidence
from bench.analysis.matched import Comparison, comparisons
from bench.report.figures import _published, _style
from bench.report.figures.figure import Annotation, Drawing, Figure
from bench.stats.crossing import pareto

TITLE = "Families of published networks, experiment by experiment"
COLUMNS = 3
COLOURS = {"ViT": 0, "Hybrid": 2, "ResNet": 3, "ConvNeXt": 1, "DataComp": 4, "CommonPool": 7, "LAION": 5}
"""Start of a family's name -> its colour's place."""


def draw(evidence: Evidence) -> Drawing:
    """Comparisons of one experiment share a panel."""
    _published.expect_public(evidence)
    panels: dict[str, list[Comparison]] = {}
    for asked in comparisons():
        panels.setdefault(asked.name.partition(", ")[2] + (" " if asked.differs else ""), []).append(asked)
    parts, annotations = [], []
    with _style.context():
        rows = -(-len(panels) // COLUMNS)
        figure = _style.figure(height=2.75 * rows + 0.4)
        grid = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
        for axes in grid[len(panels) :]:
            axes.remove()
        for axes, (name, together) in zip(grid, panels.items(), strict=False):
            controlled = together[0].controlled
            sides = {label: rows for c in together for label, rows in zip((c.first, c.second), c.families, strict=True)}
            for label, networks in sides.items():
                colour = next(_style.COLOURS[at] for start, at in COLOURS.items() if label.startswith(start))
                look = _published.look(colour, controlled=controlled)
                best = networks.iloc[pareto(list(networks["compute"]), list(networks["error"]))]
                axes.plot(best["compute"], best["error"], marker="o", label=label, **look)
                axes.plot(networks["compute"], networks["error"], marker="o", **{**look, "linestyle": ""})
                for row in networks.to_dict("records"):
                    said = (
                        f"{row['model']}\n{row['error']:.1f} % error at {row['compute']:.4g} exaFLOPs\n{row['source']}"
                    )
                    annotations.append(Annotation(axes=axes, x=row["compute"], y=row["error"], text=said))
                about = {"experiment": name.strip(), "controlled": controlled, "family": label}
                parts.append(networks[["model", "compute", "error", "source"]].assign(**about))
            name = name.strip()[0].upper() + name.strip()[1:]
            axes.set_title(
                name if controlled else f"Not controlled:\n{name}", loc="left", fontsize=_style.current().text(9.5)
            )
            _published.error_axis(axes, label="error, %")
            _style.plain_log_x(axes, [x for networks in sides.values() for x in networks["compute"]])
            axes.set_xlabel("exaFLOPs")
            axes.legend(fontsize=_style.current().text(8))
        _style.legend(figure, _published.signs())
    return Drawing(
        figure=figure,
        data=pd.concat(parts),
        annotations=tuple(annotations),
        caption=(
            "Top-1 error on ImageNet (CLIP: zero-shot) against training compute (CLIP: of both towers). Solid lines "
            "join networks that one paper trained alike; dashed ones those whose recipes differ.",
            _published.QUOTED,
        ),
        alt=f"{TITLE}: {len(panels)} panels.",
    )


FIGURE = Figure(title=TITLE, draw=draw)
