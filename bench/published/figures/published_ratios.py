"""Figure: the training compute of one published family divided by that of another at equal error, with a row for each
comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill

import pandas as pd

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.published import drawing
from bench.published.matched import IMAGENET, Comparison, Ratio, matched
from bench.published.wording import CHANCE, REAL
from bench.report.figures import _style
from bench.report.figures.figure import Annotation, Drawing, Figure

LINE_INCHES = 0.15  # inches that a line of a row's name takes
LETTERS_PER_INCH = 7.5  # letters of a row's name per inch of the figure's width
TITLE = "Training compute for the same ImageNet top-1 error"
GROUPS = {"networks": "Networks, on the same images", "images": "Images, for the same networks"}
"""What a comparison compares (`Comparison.compares`) -> heading of its rows."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the figure: a comparison of two families at equal error by one metric.

    Attributes:
        metric: "ImageNet", or "ReaL" for ImageNet with ReaL labels.
        networks: the ratio at the error of each network of the first family.
        mean: their geometric mean.
    """

    comparison: Comparison
    metric: str
    networks: tuple[Ratio, ...]
    mean: Ratio

    @property
    def name(self) -> tuple[str, str]:
        """The names of the two families, and the setting in which they are compared."""
        where = self.comparison.name.partition(", ")[2]
        by = "" if self.metric == IMAGENET else f", by {self.metric} labels"
        return f"{self.comparison.second} against {self.comparison.first}", f"{where}{by}"


def draw(evidence: Evidence) -> Drawing:
    """Draw a row per comparison, first comparisons of networks, then of images: the mean ratio with its interval, and
    the ratios of single networks as small marks. A comparison whose errors on ReaL labels are known has a second row
    for these.

    Raises:
        NothingToDraw: the evidence is not that of published networks.
    """
    asked = sorted(drawing.expect_compared(evidence), key=lambda c: list(GROUPS).index(c.compares))
    rows = [row for comparison in asked for row in _rows(comparison)]
    of_group = [[row for row in rows if row.comparison.compares == group] for group in GROUPS]
    annotations = []
    with _style.context():
        letters = int(LETTERS_PER_INCH * _style.current().width)
        names = ["\n".join(fill(part, letters) for part in row.name) for row in rows]
        lines = 1 + max(name.count("\n") for name in names)
        height = max(0.5, LINE_INCHES * lines) * (len(rows) + len(GROUPS)) + 1.3
        figure = _style.figure(height=height, width=0.86 * _style.current().single[0])
        axes = figure.subplots()
        places: list[int] = []
        for heading, group in zip(GROUPS.values(), of_group, strict=True):
            if not group:
                continue
            top = places[-1] + 2 if places else 1
            places += range(top, top + len(group))
            axes.text(
                0.01,
                top - 0.75,
                heading,
                transform=axes.get_yaxis_transform(),
                fontsize=_style.text(8.5),
                weight="bold",
                va="center",
                bbox={**_style.BEHIND_TEXT, "alpha": 1.0},
            )
        for place, row in zip(places, rows, strict=True):
            single = [r.ratio for r in row.networks if r.ratio]
            axes.plot(single, [place] * len(single), "|", color=_style.GREY, markersize=7)
            colour = _style.COLOURS[0] if row.comparison.controlled else _style.INK
            line = drawing.look(colour, controlled=row.comparison.controlled)
            low, ratio, high = (wording.or_nan(x) for x in (row.mean.low, row.mean.ratio, row.mean.high))
            axes.plot([low, high], [place, place], **{**line, "linewidth": 2})
            axes.plot(ratio, place, marker="o", markersize=8, zorder=4, **line)
            number = "{}× [{}, {}]".format(*map(_factor, (ratio, low, high)))
            axes.annotate(
                number,
                (ratio, place),
                (0, 8),
                textcoords="offset points",
                ha="center",
                fontsize=_style.text(8.5),
                bbox={**_style.BEHIND_TEXT, "alpha": 1.0},
            )
            said = "\n".join(filter(None, (", ".join(row.name), number, row.comparison.differs)))
            annotations.append(Annotation(axes=axes, x=ratio, y=place, text=said))
        axes.axvline(1, color=_style.INK, linewidth=1)
        axes.set_yticks(places, names, fontsize=_style.text(8.5))
        axes.set_ylim(places[-1] + 0.6, -0.2)
        axes.grid(axis="y", visible=False)
        ends = [x for row in rows for x in (row.mean.low, row.mean.high, *(r.ratio for r in row.networks)) if x]
        _style.plain_log_x(axes, [0.3, *ends], text=lambda value: f"{value:g}×")
        over = "the first's training compute over the\nsecond's, at equal error"
        axes.set_xlabel(f"← first cheaper · second cheaper →\n{over}")
        _style.legend(
            figure,
            [*drawing.signs(), *_style.handles({"single networks": (_style.GREY, "|")}, hollow=True)],
            columns=1,
        )
    return Drawing(
        figure=figure,
        data=_data(rows),
        annotations=tuple(annotations),
        caption=(
            "Right of 1× the family named first needs more compute. Dots: geometric means over networks, whose own "
            f"ratios are the ticks. {CHANCE}",
            drawing.QUOTED,
        ),
        alt=f"{TITLE}: {len(asked)} comparisons, {sum(c.controlled for c in asked)} of them controlled.",
    )


def _rows(comparison: Comparison) -> Iterator[Row]:
    for metric in (IMAGENET, REAL) if comparison.is_of_table_6 else (IMAGENET,):
        *networks, mean = matched(comparison, metric)
        yield Row(comparison=comparison, metric=metric, networks=tuple(networks), mean=mean)


def _data(rows: Sequence[Row]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "comparison": row.comparison.name,
            "controlled": row.comparison.controlled,
            "metric": row.metric,
            "network": ratio.model,
            "ratio": ratio.ratio,
            "low": ratio.low,
            "high": ratio.high,
        }
        for row in rows
        for ratio in (*row.networks, row.mean)
    )


def _factor(value: float) -> str:
    """Return a factor as text with two decimals, or one decimal from ten on, so that all rows have three digits."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


FIGURE = Figure(title=TITLE, draw=draw)
