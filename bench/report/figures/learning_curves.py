"""Figure of training loss against images seen: each run's trunk (the part at constant learning rate, which its budgets
share) and the cool-downs that branch from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.lines import Line2D

from bench.analysis.evidence import Evidence, Series
from bench.core.by_key import by_key
from bench.core.formatting import count, plural
from bench.report.figures import _style
from bench.report.figures.figure import Annotation, Drawing, Figure, NothingToDraw
from bench.study.record import LearningCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Learning curves"
LOOKS: dict[str, Any] = {"trunk": "", "cool-down": (3, 1.2)}  # dashes
WIDTHS = {True: 1.3, False: 0.7}  # points: width of the lines of a model's first run, and of its others
Member = tuple[Series, list[tuple[str, LearningCurve]]]  # a model, and the name and curve of each of its cells
MAX_MODELS = 6  # models of a family that are drawn, from the smallest to the largest
MAX_CURVES = 200  # trunks and cool-downs in all: more cannot be told apart, and take minutes to draw


def draw(evidence: Evidence) -> Drawing:
    """Draw training loss against images seen: a panel per family, with darker lines for larger models. Trunks are
    solid, and cool-downs to a learning rate of zero are dashed."""
    everything = _curves(evidence)
    if not everything:
        raise NothingToDraw("the records hold no learning curves")
    chosen = _chosen(everything)
    shown, total = (sum(map(len, members.values())) for members in (chosen, everything))
    runs = {series.label: len(curves) for mine in chosen.values() for series, curves in mine}
    made = {series.label: len(curves) for mine in everything.values() for series, curves in mine}
    every = sum(made[label] for label in runs)
    members = [member for family in chosen.values() for member in family]
    rows = [row for series, curves in members for row in _rows(series, curves)]
    table = pd.DataFrame(rows)
    drawn = table.assign(
        phase=np.where(table["horizon"].isna(), *LOOKS),
        part=table["cell"] + table["horizon"].fillna(-1).astype(int).astype(str),
        strength=table["cell"].isin([curves[0][0] for _, curves in members]),
    )
    colours: dict[str, Any] = {}
    for family, mine in chosen.items():
        shades = _style.shades(_style.look(family, chosen)[0], len(mine))
        colours |= {series.label: shade for (series, _), shade in zip(mine, shades, strict=True)}
    with _style.context():
        columns = _style.columns(len(chosen))
        figure = _style.figure(height=3.4 * -(-len(chosen) // columns) + 0.3)
        grid = figure.subplots(-(-len(chosen) // columns), columns, sharex=True, sharey=True, squeeze=False).ravel()
        for empty in grid[len(chosen) :]:
            empty.remove()
        panels = dict(zip(chosen, grid, strict=False))
        for family, axes in panels.items():
            sns.lineplot(
                drawn[drawn["family"] == family],
                x="images_seen",
                y="loss",
                hue="series",
                palette=colours,
                style="phase",
                dashes=LOOKS,
                size="strength",
                sizes=WIDTHS,
                units="part",
                estimator=None,
                legend=False,
                ax=axes,
            )
            axes.set(xlabel="Images seen", ylabel="Training loss [nats]")
            axes.label_outer()
            _style.plain_log_x(axes, list(table["images_seen"]))
            _style.plain_log_y(axes)
            axes.set_title(family, loc="left")
            _style.key(axes, {s.label: colours[s.label] for s, _ in chosen[family]})
        grey: dict[str, Any] = {"color": _style.GREY, "linewidth": 1.3}
        _style.legend(
            figure,
            [
                Line2D([], [], **grey, label="constant rate, before cool-downs"),
                Line2D([], [], **grey, linestyle=(0, LOOKS["cool-down"]), label="cool-down"),
            ],
        )
    annotations = [
        annotation
        for family, mine in chosen.items()
        for series, curves in mine
        for annotation in _annotations(panels[family], series, curves)
    ]
    return Drawing(
        figure=figure,
        data=table,
        annotations=tuple(annotations),
        alt=f"{TITLE}: {plural(shown, 'model')}.",
        caption="Each point is the mean training loss since the point before, augmentation included: not an accuracy, "
        "and not comparable between recipes. Every seed is a line of its own; no interval is drawn."
        + (f" {plural(total - shown, 'more model')} not drawn." if total > shown else "")
        + (f" Of their {every:,} runs, {sum(runs.values()):,} are drawn." if every > sum(runs.values()) else ""),
    )


def _curves(evidence: Evidence) -> dict[str, list[Member]]:
    """Return family -> its models on the compute axis, each with the name and learning curve of every of its cells
    (training runs)."""
    records = {record.directory: record for record in evidence.records.records}
    members = (
        (s, [(name, curve) for name in evidence.cells.get(s.variant, ()) if (curve := records[name].curve) is not None])
        for s in evidence.on_axis("compute", every=True)
    )
    return by_key((series.family, (series, curves)) for series, curves in members if curves)


def _rows(series: Series, curves: Sequence[tuple[str, LearningCurve]]) -> Iterator[dict[str, Any]]:
    for name, curve in curves:
        for horizon, images, losses in curve.parts():
            about = {"series": series.label, "family": series.family, "cell": name, "horizon": horizon}
            yield from (about | {"images_seen": x, "loss": y} for x, y in zip(images, losses, strict=True))


def _annotations(axes: Axes, series: Series, curves: Sequence[tuple[str, LearningCurve]]) -> Iterator[Annotation]:
    """Yield a tooltip for the last point of the trunk and of every cool-down of a model's curves, given as (name of the
    cell, curve)."""
    for name, curve in curves:
        for horizon, images, losses in curve.parts():
            part = "trunk" if horizon is None else f"cool-down at {count(horizon)} images"
            text = f"{series.label}\n{part}\nloss {losses[-1]:.3f} after {count(images[-1])} images"
            yield Annotation(axes=axes, x=images[-1], y=losses[-1], text=text, cells=(name,))


def _chosen(everything: dict[str, list[Member]]) -> dict[str, list[Member]]:
    """Return the curves to draw, at most `MAX_CURVES` lines: of up to `MAX_MODELS` models of each family as many runs
    as fit, or of fewer models if not even one run of each fits."""
    for models in range(MAX_MODELS, 0, -1):
        spread = {family: _spread(members, models) for family, members in everything.items()}
        lines = [
            [len(set(curve.horizons)) for _, curve in curves] for members in spread.values() for _, curves in members
        ]
        most = max(map(len, lines))
        fitting = [n for n in range(1, most + 1) if sum(sum(one[:n]) for one in lines) <= MAX_CURVES]
        if fitting or models == 1:
            runs = max(fitting, default=1)
            return {f: [(series, curves[:runs]) for series, curves in members] for f, members in spread.items()}
    raise AssertionError("unreachable")


def _spread(members: list[Any], most: int) -> list[Any]:
    """Return at most `most` of the members, evenly spaced from the first to the last."""
    if len(members) <= most:
        return members
    return [members[round(place)] for place in np.linspace(0, len(members) - 1, most)]


FIGURE = Figure(title=TITLE, draw=draw)
