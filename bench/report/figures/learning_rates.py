"""Figure of a sweep of learning rates: accuracy on the pre-training set of every model at every rate, the curve through
the runs around the best rate, and that rate with its interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from scipy import special

from bench.analysis import lr_sweep
from bench.analysis.evidence import Evidence
from bench.analysis.lr_sweep import Sweep, Tried, judged_on
from bench.analysis.study_data import without
from bench.core.formatting import count, interval, join, plural
from bench.report.figures import _panels, _style
from bench.report.figures.figure import Annotation, Drawing, Figure, NothingToDraw
from bench.stats.intervals import POINT_LEVEL, contents

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Accuracy on the pre-training set against learning rate"
SHORTEST, LONGEST = "shortest budget", "longest budget"
MAX_FAMILIES = 6  # rows of panels that a page holds
CURVE_POINTS = 60  # points by which a curve through the runs is drawn


def draw(evidence: Evidence) -> Drawing:
    """Draw a panel per family (and per budget, where sweeps were evaluated at two), with points per model. A ring on
    the curve through the runs is the best rate, a bar its interval; an arrow marks a sweep whose best rate lies at its
    end."""
    longest = lr_sweep.sweeps(evidence)
    if not longest:
        raise NothingToDraw("no model was trained at several learning rates")
    labels = _labels(evidence, longest)
    families = list(dict.fromkeys(s.family for s in longest))
    if len(families) > MAX_FAMILIES:
        raise NothingToDraw(f"{len(families)} families, and there is room for {MAX_FAMILIES}; the tables have all")
    several = any(s.shorter for s in longest)
    drawn_sweeps = [
        (sweep, label, f"{sweep.family}, {budget}" if several else sweep.family)
        for whole, label in zip(longest, labels, strict=True)
        for sweep, budget in ((whole.shorter, SHORTEST), (whole, LONGEST))
        if sweep is not None
    ]
    sweeps = [sweep for sweep, _, _ in drawn_sweeps]
    panels_wanted = [
        panel
        for family in families
        for panel in ((f"{family}, {SHORTEST}", f"{family}, {LONGEST}") if several else (family,))
        if any(panel == of for _, _, of in drawn_sweeps)
    ]
    table = pd.DataFrame(_row(label, s, t) | {"panel": panel} for s, label, panel in drawn_sweeps for t in s.tried)
    colours: dict[str, Any] = {}
    for family in families:
        mine = [label for s, label in zip(longest, labels, strict=True) if s.family == family]
        colours |= dict(zip(mine, _style.shades(_style.look(family, families)[0], len(mine)), strict=True))
    looks = {
        label: (colours[label], _style.look(s.family, families)[1]) for s, label in zip(longest, labels, strict=True)
    }
    drawn = _panels.in_percent(table.rename(columns={"panel": "measure"}).assign(at=table["learning_rate"]))
    axis = _panels.XAxis(label="Learning rate", column="learning_rate")
    diverged = any(tried.diverged for sweep in sweeps for tried in sweep.tried)  # a cross at 0
    lowest = -3.0 if diverged else max(-3.0, 100 * table["low"].min() - 25.0)  # room for the legend below
    annotations: list[Annotation] = []
    with _style.context():
        columns = _style.columns(2 if several else len(families))
        figure = _style.figure(columns=columns, height=3.6 * -(-len(panels_wanted) // columns) + 0.3)
        panels = _panels.seaborn_panels(
            figure, drawn.dropna(subset=["accuracy"]), panels_wanted, axis, looks, by="series", columns=columns
        )
        for panel, axes in panels.items():
            _panels.scale_x(axes, axis, list(table["learning_rate"]), text=plain)
            axes.set_ylim(lowest, min(101.0, 106 * table["high"].max()))  # one scale for all, so that families compare
            axes.set_title(panel, loc="left")
            axes.set_ylabel("Accuracy [%]")
            members = [(s, label) for s, label, of in drawn_sweeps if of == panel]
            for sweep, label in members:
                _mark(axes, sweep, colours[label])
                for tried in sweep.tried:
                    height = 100 * tried.accuracy.value if tried.accuracy else 0.0
                    text = _explained(label, sweep, tried)
                    annotations.append(Annotation(axes=axes, x=tried.rate, y=height, cells=tried.cells, text=text))
            _style.key(axes, {label: colours[label] for _, label in members})
        _style.legend(figure, [*_style.family_handles(families), *_signs(sweeps)])
    return Drawing(
        figure=figure,
        data=table.drop(columns="panel"),
        annotations=tuple(annotations),
        caption=_caption(sweeps),
        alt=_alt(longest),
    )


def plain(rate: float) -> str:
    """Return a learning rate as text without an exponent: 0.00001."""
    return np.format_float_positional(float(f"{rate:g}"), trim="-")


def _mark(axes: Axes, sweep: Sweep, colour: Any) -> None:
    """Draw a sweep's curve, a ring at the best learning rate and a bar for its interval; an arrow where the best rate
    lies at an end of the sweep; and a cross at each rate where a run diverged."""
    best = sweep.best
    assert best.accuracy
    if sweep.optimum is not None:
        height = 100 * best.accuracy.value
        if sweep.peak is not None:
            height = 100 * float(special.expit(sweep.peak.at(np.log2(sweep.optimum))))
            low, high = sweep.interval or (sweep.optimum, sweep.optimum)
            ends = np.log2([max(sweep.tried[0].rate, sweep.optimum / 4), min(sweep.tried[-1].rate, sweep.optimum * 4)])
            x = np.linspace(float(ends[0]), float(ends[1]), CURVE_POINTS)
            y = 100 * special.expit([sweep.peak.at(float(each)) for each in x])
            axes.plot(2.0**x, y, color=colour, linestyle=":", linewidth=1.2, zorder=3)
            if not _covers(sweep, low, high):  # a bar over the whole panel would hide the others
                axes.plot([low, high], [height, height], color=colour, linewidth=4.0, alpha=0.45, zorder=3)
        axes.plot(
            sweep.optimum,
            height,
            linestyle="",
            marker="o",
            markersize=12,
            fillstyle="none",
            color="black",
            markeredgewidth=1.6,
            zorder=4,
        )
    if sweep.edge:
        axes.annotate(
            "",
            (best.rate, 100 * best.accuracy.value),
            xytext=(21 if sweep.edge == "highest" else -21, 0),
            textcoords="offset points",
            zorder=5,
            arrowprops={"arrowstyle": "<|-", "color": "black", "linewidth": 1.3, "shrinkB": 8},
        )
    for tried in sweep.tried:
        if tried.diverged:
            axes.plot(
                tried.rate,
                0.0,
                linestyle="",
                marker="x",
                markersize=7,
                color=colour,
                zorder=5,
                markeredgewidth=1.8,
            )


def _covers(sweep: Sweep, low: float, high: float) -> bool:
    """Return whether the interval from `low` to `high` holds every learning rate that was tried."""
    return low <= sweep.tried[0].rate and high >= sweep.tried[-1].rate


def _signs(sweeps: Sequence[Sweep]) -> list[Line2D]:
    ring: dict[str, Any] = {"marker": "o", "markersize": 11, "fillstyle": "none", "markeredgewidth": 1.6}
    signs = (
        ("best rate, by the dotted curve", ring | {"color": "black"}, any(s.optimum for s in sweeps)),
        (
            "its interval",
            {"marker": "_", "markersize": 14, "color": "#777777", "markeredgewidth": 4, "alpha": 0.6},
            any(s.interval for s in sweeps),
        ),
        (
            "best at the edge: none is chosen",
            {"marker": r"$\rightarrow$", "markersize": 12, "color": "black"},
            any(s.edge for s in sweeps),
        ),
        (
            "a run diverged: not chosen",
            {"marker": "x", "markersize": 7, "color": "#555555", "markeredgewidth": 1.8},
            any(t.diverged for s in sweeps for t in s.tried),
        ),
    )
    return [Line2D([], [], linestyle="", label=label, **look) for label, look, shown in signs if shown]


def _labels(evidence: Evidence, sweeps: Sequence[Sweep]) -> list[str]:
    """Return a label for each sweep: the model's name as other figures show it. It includes other settings in which the
    sweeps differ, but not the learning rate."""
    horizons = (evidence.swept or evidence).horizons
    horizons = horizons[horizons["directory"].isin([name for s in sweeps for name in s.chosen.cells])]
    others = [replace(recipe, lr=0.0) for recipe in horizons["recipe"]]
    named = without(horizons.assign(recipe=others), frozenset())
    series = dict(zip(named["directory"], named["series"], strict=True))
    labels = [next((series[name] for name in s.chosen.cells if name in series), s.model) for s in sweeps]
    shared = Counter(labels)
    return [
        f"{label}, {count(s.num_images)} images" if shared[label] > 1 and s.num_images else label
        for label, s in zip(labels, sweeps, strict=True)
    ]


def _explained(label: str, sweep: Sweep, tried: Tried) -> str:
    e = tried.accuracy
    lines = [
        f"{label} at learning rate {plain(tried.rate)}",
        f"{interval(e.value, e.low, e.high)} % of {sweep.data} after {count(sweep.images_seen)} images seen"
        if e
        else "",
        e.counts if e else "no run finished",
        f"{plural(tried.diverged, 'run')} diverged" if tried.diverged else "",
        ("the best" + (f", the {sweep.edge} tried" if sweep.edge else "")) if tried is sweep.best else "",
        f"the nearest to the best rate, {plain(sweep.rate)}" if tried is sweep.chosen and sweep.rate else "",
    ]
    return "\n".join(line for line in lines if line)


def _row(label: str, sweep: Sweep, tried: Tried) -> dict[str, Any]:
    e = tried.accuracy
    return {
        "series": label,
        "model": sweep.model,
        "family": sweep.family,
        "data": sweep.data,
        "num_images": sweep.num_images,
        "images_seen": sweep.images_seen,
        "learning_rate": tried.rate,
        "accuracy": e.value if e else np.nan,
        "low": e.low if e else np.nan,
        "high": e.high if e else np.nan,
        "seeds": e.num_seeds if e else 0,
        "test_images": e.num_test if e else 0,
        "diverged": tried.diverged,
        "chosen": tried is sweep.chosen and not sweep.edge,
        "best_rate": sweep.rate if sweep.rate else np.nan,
        "best_rate_low": sweep.interval[0] if sweep.interval else np.nan,
        "best_rate_high": sweep.interval[1] if sweep.interval else np.nan,
        "best": tried is sweep.best,
        "edge": (tried is sweep.best and sweep.edge) or "",
    }


def _caption(sweeps: Sequence[Sweep]) -> str:
    estimates = [t.accuracy for s in sweeps for t in s.tried if t.accuracy]
    seeds, tests = {e.num_seeds for e in estimates}, {e.num_test for e in estimates}
    sizes = {(s.data, s.num_images or 0) for s in sweeps}
    said = (
        f"Accuracy on {join(sorted({s.data for s in sweeps}))}, {judged_on(sweeps)}, after "
        f"{_span({s.images_seen for s in sweeps})} images seen; n: {_span(seeds)} seed{'s' * (max(seeds) > 1)} per "
        f"rate, {_span(tests)} images. Ringed: the best rate, the maximum of the dotted curve through the runs "
        f"(log-odds over log rate), with its {POINT_LEVEL:.0%} interval as a bar.",
        any(s.interval and _covers(s, *s.interval) for s in sweeps) and "Without a bar, every rate tried is within it.",
        any(s.edge for s in sweeps)
        and "An arrow marks a best rate at or beyond the edge of its sweep: none is chosen.",
        any(t.diverged for s in sweeps for t in s.tried)
        and "A cross marks a rate at which a run diverged; it is not chosen.",
        contents(estimates, trained_on=sizes),
    )
    return " ".join(str(sentence) for sentence in said if sentence)


def _span(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return count(low) if low == high else f"{count(low)} to {count(high)}"


def _alt(sweeps: Sequence[Sweep]) -> str:
    tried = sorted({t.rate for s in sweeps for t in s.tried})
    named = join([f"{s.model} {plain(s.rate)}" if s.rate else f"{s.model} none" for s in sweeps])
    return (
        f"{TITLE}: {plural(len(sweeps), 'model')} at {plural(len(tried), 'rate')} from {plain(tried[0])} to "
        f"{plain(tried[-1])}. Best: {named}."
    )


FIGURE = Figure(title=TITLE, draw=draw)
