"""Published points under measured ones: hollow, grey, named in the legend, never joined with what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from matplotlib.lines import Line2D

from baselines.published import SOURCE
from bench.analysis.evidence import HEADLINE, UPSTREAM, Evidence
from bench.report.figures import _style
from bench.report.figures._contract import Mark
from bench.report.figures._marks import point_text
from bench.stats.intervals import Estimate, contents

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bench.report.figures._panels import Line

GREY = "#8A8A8A"


@dataclass(kw_only=True)
class Laid:
    """What was drawn: places on the x axis, rows of the CSV, marks."""

    x: list[float] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)


def counterpart(evidence: Evidence, measure: str) -> str | None:
    """The published measure that belongs beside a measured one: the average beside the average, else the same set."""
    published = evidence.reference
    if published is None or measure == UPSTREAM:
        return None
    if measure == HEADLINE:
        return HEADLINE
    data = measure.rpartition(":")[2]
    return next((m for m in published.measures if m.rpartition(":")[2] == data), None)


def overlay(
    axes: Axes, evidence: Evidence, lines: Sequence[Line], measure: str, families: Sequence[str], x_name: str
) -> Laid:
    """Draw the published points of one panel and widen its y range for them."""
    laid, theirs, published = Laid(), counterpart(evidence, measure), evidence.reference
    if theirs is None or published is None:
        return laid
    for line in lines:
        found = [(x, p, e) for x, p in zip(line.x, line.points, strict=True) if (e := published.estimate(p, theirs))]
        if not found:
            continue
        _, marker = _style.look(line.family, families)
        xs, ys = [x for x, _, _ in found], [100 * e.value for _, _, e in found]
        axes.plot(xs, ys, color=GREY, linestyle=":", linewidth=0.9, marker=marker, markersize=line.size,
                  markerfacecolor="none", markeredgecolor=GREY, markeredgewidth=1.0, zorder=1.5)  # fmt: skip
        laid.x += xs
        for x, p, e in found:
            laid.marks.append(Mark(axes=axes, x=x, y=100 * e.value,
                                   text=point_text(published, p, theirs, e, label=line.label)))  # fmt: skip
            laid.rows.append({
                "measure": measure, "kind": "published", "series": line.label, "family": line.family,
                "params": p.params, "params_body": p.params_body, "num_images": p.num_images,
                "unique_images": p.unique_images, "images_seen": p.images_seen,
                "train_flops": p.train_flops, "accuracy": e.value, x_name: x,
            })  # fmt: skip
    values = [mark.y for mark in laid.marks]
    if values:
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, min(values) - 2), min(100.8, max(high, max(values) + 2)))
    return laid


def handles(evidence: Evidence, lines: Sequence[Line], families: Sequence[str]) -> list[Line2D]:
    """Legend entries: one per published family."""
    made = []
    for family in dict.fromkeys(line.family for line in lines):
        _, marker = _style.look(family, families)
        made.append(Line2D([], [], color=GREY, linestyle=":", linewidth=0.9, marker=marker, markersize=7.0,
                           markerfacecolor="none", markeredgecolor=GREY, label=f"{family}, published"))  # fmt: skip
    return made


def sentences(evidence: Evidence, measures: Sequence[str], lines: Sequence[Line]) -> list[str]:
    """What the hollow points are, for the caption."""
    published = evidence.reference
    shown = [m for m in measures if counterpart(evidence, m)] if lines else []
    if published is None or not shown:
        return []
    average = f"in the average panel they are means over {', '.join(map(_set, published.headline))}: other tasks"
    text = f"Hollow, grey: published points ({SOURCE}), fine-tuned at full scale"
    return [f"{text}; {average}." if HEADLINE in shown else f"{text}."]


def what_is_quoted(evidence: Evidence, measures: Sequence[str], estimates: Sequence[Estimate]) -> str:
    """The caption's second half where every point is quoted."""
    average = f" The average is over {', '.join(map(_set, evidence.headline))}." if HEADLINE in measures else ""
    return f"Hollow: published points, quoted from {SOURCE}, nothing measured here.{average} {contents(estimates)}"


def _set(measure: str) -> str:
    return measure.rpartition(":")[2]
