"""Figure: error against training compute of families that one paper trained alike, with a panel per experiment. Other
comparisons are in the figure `published-ratios`."""

from __future__ import annotations

from typing import Any

import pandas as pd

from bench.analysis.evidence import Evidence
from bench.core.by_key import by_key
from bench.published import drawing
from bench.report.figures import _style
from bench.report.figures.figure import Annotation, Drawing, Figure, NothingToDraw
from bench.stats.pareto import pareto

TITLE = "Families that one paper trained alike"
COLUMNS = 2
COLOURS = {"ViT": 0, "Hybrid": 2, "ResNet": 3, "ConvNeXt": 1, "DataComp": 4, "CommonPool": 7, "LAION": 5}
"""Beginning of a family's label -> index of its colour."""


def draw(evidence: Evidence) -> Drawing:
    """Draw a panel per experiment, with its controlled comparisons. Other comparisons are left out, because they show
    differences of recipes as well as of families.

    Raises:
        NothingToDraw: the evidence has no controlled comparison of published families.
    """
    asked = [c for c in drawing.expect_compared(evidence) if c.controlled]
    if not asked:
        raise NothingToDraw("no families were trained alike")
    panels = by_key((c.name.partition(", ")[2] + (" " if c.differs else ""), c) for c in asked)
    parts, annotations, names = [], [], dict[Any, tuple[list[Any], list[Any]]]()
    with _style.context():
        columns = _style.columns(COLUMNS)
        rows = -(-len(panels) // columns)
        figure = _style.figure(height=_style.current().panel_height * rows)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes in grid[len(panels) :]:
            axes.remove()
        for axes, (name, together) in zip(grid, panels.items(), strict=False):
            named, curves = names[axes] = [], []
            sides = {label: rows for c in together for label, rows in zip((c.first, c.second), c.families, strict=True)}
            for label, networks in sides.items():
                colour = next(_style.COLOURS[at] for start, at in COLOURS.items() if label.startswith(start))
                look = drawing.look(colour, controlled=True)
                best = networks.iloc[pareto(list(networks["compute"]), list(networks["error"]))]
                axes.plot(best["compute"], best["error"], marker="o", **look)
                curves.append(list(zip(best["compute"], best["error"], strict=True)))
                named.append((*curves[-1][len(best) // 2], label, colour))
                axes.plot(networks["compute"], networks["error"], marker="o", **{**look, "linestyle": ""})
                for row in networks.to_dict("records"):
                    said = (
                        f"{row['model']}\n{row['error']:.1f} % error at {row['compute']:.4g} exaFLOPs\n{row['source']}"
                    )
                    annotations.append(Annotation(axes=axes, x=row["compute"], y=row["error"], text=said))
                about = {"experiment": name.strip(), "family": label}
                parts.append(networks[["model", "compute", "error", "source"]].assign(**about))
            name = name.strip()[0].upper() + name.strip()[1:]
            axes.set_title(name, loc="left", fontsize=_style.text(9.5))
            drawing.error_axis(axes, label="Error [%]")
            _style.plain_log_x(
                axes, [x for networks in sides.values() for x in networks["compute"]], text=_style.tick_text
            )
            axes.set_xlabel("Training compute [exaFLOPs]")
        for axes, (named, curves) in names.items():
            _style.name_points(axes, named, curves=curves)
    return Drawing(
        figure=figure,
        data=pd.concat(parts),
        annotations=tuple(annotations),
        caption=(
            "Top-1 error on ImageNet (CLIP: zero-shot) against training compute (CLIP: of both towers). Lines "
            "join the best of each family, which one paper trained alike.",
            drawing.QUOTED,
        ),
        alt=f"{TITLE}: {len(panels)} panels.",
    )


FIGURE = Figure(title=TITLE, draw=draw)
