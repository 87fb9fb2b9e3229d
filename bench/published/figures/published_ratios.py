"""How many times the compute one published family took for the error of another, comparison by comparison."""

from __future__ import annotations

from textwrap import fill

import pandas as pd

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.core.formatting import significant
from bench.published import drawing
from bench.published.matched import matched
from bench.published.wording import CHANCE
from bench.report.figures import _style
from bench.report.figures.figure import Annotation, Drawing, Figure

LINE_INCHES = 0.15  # inches that a line of a row's name takes
LETTERS_PER_INCH = 7.5  # per inch of the figure, of a row's name
TITLE = "Training compute for the same ImageNet top-1 error"


def draw(evidence: Evidence) -> Drawing:
    """A row per comparison: its mean with the interval, and its networks as small marks."""
    asked = [(comparison, matched(comparison)) for comparison in drawing.expect_compared(evidence)]
    rows = [
        {
            "comparison": c.name,
            "controlled": c.controlled,
            "network": r.model,
            "ratio": r.ratio,
            "low": r.low,
            "high": r.high,
        }
        for c, ratios in asked
        for r in ratios
    ]
    annotations = []
    with _style.context():
        letters = int(LETTERS_PER_INCH * _style.current().width)
        names = [
            "\n".join((fill(f"{c.second} against {c.first}", letters), fill(c.name.partition(", ")[2], letters)))
            for c, _ in asked
        ]
        lines = 1 + max(name.count("\n") for name in names)
        height = max(0.5, LINE_INCHES * lines) * len(asked) + 1.3
        figure = _style.figure(height=height, width=0.86 * _style.current().single[0])
        axes = figure.subplots()
        for place, (comparison, (*networks, mean)) in enumerate(asked):
            single = [r.ratio for r in networks if r.ratio]
            axes.plot(single, [place] * len(single), "|", color=_style.GREY, markersize=7)
            colour = _style.COLOURS[0] if comparison.controlled else _style.INK
            line = drawing.look(colour, controlled=comparison.controlled)
            low, ratio, high = (wording.or_nan(x) for x in (mean.low, mean.ratio, mean.high))
            axes.plot([low, high], [place, place], **{**line, "linewidth": 2})
            axes.plot(ratio, place, marker="o", markersize=8, zorder=4, **line)
            number = "{}× [{}, {}]".format(*map(significant, (ratio, low, high)))
            axes.annotate(
                number,
                (ratio, place),
                (0, 8),
                textcoords="offset points",
                ha="center",
                fontsize=_style.text(8.5),
                bbox={**_style.BEHIND_TEXT, "alpha": 1.0},
            )
            said = "\n".join(filter(None, (comparison.name, number, comparison.differs)))
            annotations.append(Annotation(axes=axes, x=ratio, y=place, text=said))
        axes.axvline(1, color=_style.INK, linewidth=1)
        axes.set_yticks(range(len(asked)), names, fontsize=_style.text(8.5))
        axes.set_ylim(len(asked) - 0.4, -0.8)
        axes.grid(axis="y", visible=False)
        shown = [x for _, (*networks, mean) in asked for x in (mean.low, mean.high, *(r.ratio for r in networks)) if x]
        _style.plain_log_x(axes, [0.3, *shown], text=lambda value: f"{value:g}×")
        over = "the first's training compute over the\nsecond's, at equal ImageNet error"
        axes.set_xlabel(f"← first cheaper · second cheaper →\n{over}")
        _style.legend(
            figure,
            [*drawing.signs(), *_style.handles({"single networks": (_style.GREY, "|")}, hollow=True)],
            columns=1,
        )
    return Drawing(
        figure=figure,
        data=pd.DataFrame(rows),
        annotations=tuple(annotations),
        caption=(
            "Right of 1× the family named first needs more compute. Dots: geometric means over networks, whose own "
            f"ratios are the ticks. {CHANCE}",
            drawing.QUOTED,
        ),
        alt=f"{TITLE}: {len(asked)} comparisons, {sum(c.controlled for c, _ in asked)} of them controlled.",
    )


FIGURE = Figure(title=TITLE, draw=draw)
