"""Draws the finding that titles a study, where no figure of the study shows it: as the differences of accuracy that it
rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from bench.analysis import wording
from bench.analysis.finding import Difference, Finding
from bench.analysis.question import question_of
from bench.core.formatting import join
from bench.report.figures import _style
from bench.report.figures.figure import Drawing, NothingToDraw

ROW, FRAME = 0.28, 1.1  # inches of one row, and of axis and title together


def draw(findings: Sequence[Finding], families: Sequence[str]) -> Drawing:
    """Draw findings as differences of accuracy with their intervals: for each finding a row for the mean difference and
    a row for every model behind it, with a line at zero.

    Args:
        findings: answers to one question; first the answer that titles the study.
        families: all families of the study, which decide the colours.

    Raises:
        NothingToDraw: the findings do not rest on differences of models.
    """
    rows = [row for f in findings for row in _rows(f)]
    if not rows:
        raise NothingToDraw("the answer rests on no differences of models")
    table, question = pd.DataFrame(rows), question_of(findings[0])
    with _style.context():
        figure = _style.figure(height=ROW * len(rows) + FRAME, columns=1)
        axes = figure.subplots()
        axes.axvline(0, color=_style.INK, linewidth=1)
        for place, row in enumerate(rows):
            colour, marker = _style.look(row["family"], families) if row["model"] else (_style.INK, "D")
            low, value, high = (100 * row[name] for name in ("low", "difference", "high"))
            axes.plot([low, high], [place, place], color=colour, linewidth=1.6, zorder=2)
            axes.plot(value, place, color=colour, marker=marker, markersize=7.5, markeredgecolor="white", zorder=3)
        axes.set_yticks(
            range(len(rows)),
            [row["model"].replace(" on ", ", pre-trained on ", 1) or row["subject"] for row in rows],
            fontsize=_style.text(_style.LABEL_SIZE),
        )
        for label, row in zip(axes.get_yticklabels(), rows, strict=True):
            label.set_fontweight("normal" if row["model"] else "bold")
        less, more = (f"{question.no} ← ", f" → {question.yes}") if "{}" not in question.yes + question.no else ("", "")
        axes.set(ylim=(len(rows) - 0.4, -0.6), xlabel=f"{less}difference{more}\nof accuracies [points]")
        for place, row in enumerate(rows[1:], 1):
            if not row["model"]:
                axes.axhline(place - 0.5, color=_style.GREY, linewidth=0.6)
        axes.grid(axis="y", visible=False)
    return Drawing(
        figure=figure,
        data=table,
        caption=(
            f"{question.text} Bold: means over the models below, which are paired by seed.",
            f"{findings[0].level or 0:.0%} intervals.",
        ),
        alt=f"{question.text} {join([f'{question.subject(f)}: {wording.number(f).text}' for f in findings])}.",
    )


def _rows(f: Finding) -> list[dict[str, Any]]:
    """Return the rows of the figure's table for one finding: its mean difference, then the difference of each model
    behind it; empty if it does not rest on differences of models."""
    models = [d for d in wording.every(f, Difference) if d.measure == f.measure and d.model]
    if not models or f.estimate is None or f.low is None or f.high is None:
        return []
    subject = question_of(f).subject(f)
    mean = {"subject": subject, "model": "", "family": ""}
    compared: list[tuple[dict[str, str], Finding | Difference]] = [(mean, f)]
    compared += [({"subject": subject, "model": d.model, "family": d.family}, d) for d in models]
    return [about | {"difference": of.estimate, "low": of.low, "high": of.high} for about, of in compared]
