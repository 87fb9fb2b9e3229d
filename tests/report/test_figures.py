"""Figures: the CSV beside a figure is what was drawn, equal records give equal bytes, captions carry n."""

from __future__ import annotations

import io
import math
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection

from bench.analysis.evidence import Evidence
from bench.core import registry
from bench.report.figures import _style, compute, data_size
from bench.report.figures._contract import Drawing, NothingToDraw, Saved, render
from bench.report.figures._panels import _dodge
from tests.analysis._study import read, study


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return study(extra=("diverged",))


@pytest.fixture(scope="module", params=[compute, data_size], ids=["compute", "data-size"])
def drawn(request, evidence: Evidence) -> tuple[Drawing, Saved]:
    drawing = request.param.draw(evidence)
    return drawing, render("figure", request.param.TITLE, drawing)


def test_csv_equals_the_data(drawn: tuple[Drawing, Saved]) -> None:
    drawing, saved = drawn
    pd.testing.assert_frame_equal(
        pd.read_csv(io.StringIO(saved.csv)), drawing.data.replace("", math.nan), check_dtype=False
    )


def test_every_number_drawn_is_in_the_data(drawn: tuple[Drawing, Saved]) -> None:
    drawing, _ = drawn
    known = {name: set((100 * drawing.data[name]).round(6)) for name in ("accuracy", "low", "high")}
    plotted = 0
    for axes in drawing.figure.axes:
        lines = [np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()]
        ends = [values.reshape(-1, 3) for values in lines if np.isnan(values).any()]  # of intervals, with gaps between
        lines = [values for values in lines if not np.isnan(values).any()]
        for low, high in (pair for values in ends for pair in values[:, :2].round(6).tolist()):
            assert low in known["low"] and high in known["high"]
        marks = [np.asarray(c.get_offsets())[:, 1] for c in axes.collections if isinstance(c, PathCollection)]
        assert {round(float(v), 6) for values in [*lines, *marks] for v in values} <= known["accuracy"]
        assert sum(map(len, ends)) == sum(map(len, marks))
        plotted += sum(len(values) for values in marks)
    assert plotted == len(drawing.data[drawing.data["kind"] == "trained"])


def test_data_agrees_with_the_evidence(evidence: Evidence) -> None:
    data = compute.draw(evidence).data
    row = data[(data["series"] == "ResNet-base") & (data["measure"] == "mnist")].iloc[-1]
    point = next(s for s in evidence.series if s.label == "ResNet-base").last
    e = evidence.estimate(point, "mnist")
    assert e is not None and row["accuracy"] == e.value and row["low"] == e.low
    assert row["compute_TFLOPs"] == pytest.approx(point.train_flops / 1e12)


def test_equal_records_give_equal_bytes() -> None:
    first, second = (render("c", compute.TITLE, compute.draw(study(models=FEW))) for _ in range(2))
    assert (first.png, first.svg, first.csv) == (second.png, second.svg, second.csv)


FEW = {"ViT-mini/7": ("ViT", 2.1e5, 3.3e6), "ResNet-small": ("ResNet", 1.6e5, 1.2e7)}


def test_no_dates_versions_or_links_inside(drawn: tuple[Drawing, Saved]) -> None:
    _, saved = drawn
    assert b"Software" not in saved.png and b"matplotlib" not in saved.png
    body = saved.svg[saved.svg.index("<svg") :]
    for word in ("metadata", "matplotlib v", "dc:date"):
        assert word not in body
    ElementTree.fromstring(saved.svg)


def test_caption_and_axes_say_what_is_shown(drawn: tuple[Drawing, Saved]) -> None:
    drawing, _ = drawn
    for part in ("10-shot", "2 training seeds × 3 few-shot draws", "test images", "95% intervals", "(rendered)"):
        assert part in drawing.caption
    titles = [axes.get_title() for axes in drawing.figure.axes]
    assert titles[0] == "Average of 2 headline tasks" and "mnist (photographs)" in titles
    assert "Upstream: glyphs (rendered)" in titles


def test_log_ticks_are_plain_and_do_not_overlap(drawn: tuple[Drawing, Saved]) -> None:
    drawing, _ = drawn
    drawing.figure.draw_without_rendering()
    for axes in _panels(drawing):
        labels = [label for label in axes.get_xticklabels() if label.get_text()]
        assert 2 <= len(labels) <= 7
        assert all(re.fullmatch(r"[\d.,]+[kMG]?", label.get_text()) for label in labels)
        boxes = [label.get_window_extent() for label in labels]
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))


def test_no_text_overlaps_another(drawn: tuple[Drawing, Saved]) -> None:
    drawing, _ = drawn
    drawing.figure.draw_without_rendering()
    boxes = []
    for axes in _panels(drawing):
        boxes += [text.get_window_extent() for text in (axes.title, axes.xaxis.label, axes.yaxis.label)]
    overlapping = [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.overlaps(b)]
    assert not overlapping
    canvas = drawing.figure.bbox
    assert all(canvas.x0 <= b.x0 and b.x1 <= canvas.x1 and canvas.y0 <= b.y0 and b.y1 <= canvas.y1 for b in boxes)


def test_families_differ_in_colour_and_marker() -> None:
    families = ("ViT", "Hybrid", "ResNet", "Mixer", "Swin")
    looks = [_style.look(family, families) for family in families]
    assert len({colour for colour, _ in looks}) == len({marker for _, marker in looks}) == 5
    assert _style.look("BiT", families) == _style.look("ResNet", families)


def test_baselines_are_drawn_and_far_ones_written() -> None:
    drawing = compute.draw(study(models=FEW, horizons=(0, 64_000, 72_000)))
    kinds = set(drawing.data["kind"])
    assert kinds == {"trained", "raw pixels", "untrained"}
    written = [text.get_text() for axes in drawing.figure.axes for text in axes.texts]
    assert any("untrained, below:\n" in text and "ResNet" in text for text in written)


def test_many_models_are_named_by_family() -> None:
    models = {f"ViT-{i}/7": ("ViT", 1e5 * (i + 1), 1e6 * (i + 1)) for i in range(20)}
    drawing = compute.draw(study(models=models, sizes=(30_000,), seeds=(0,), draws=(0, 1)))
    labels = [text.get_text() for text in drawing.figure.axes[-1].get_legend().get_texts()]
    assert "ViT (20 models)" in labels and len(labels) < 6


@pytest.mark.parametrize("name", registry.names("figure"))
def test_every_figure_keeps_the_contract(name: str, evidence: Evidence) -> None:
    module = registry.load("figure", name)
    assert isinstance(module.TITLE, str) and module.TITLE
    for given in (evidence, read([])):
        try:
            drawing = module.draw(given)
        except NothingToDraw as reason:
            assert str(reason)
            continue
        assert isinstance(drawing.data, pd.DataFrame) and len(drawing.data)
        assert drawing.caption and drawing.alt


def _panels(drawing: Drawing) -> list[Axes]:
    return [axes for axes in drawing.figure.axes if axes.get_title()]


@pytest.mark.parametrize("lines", [1, 2, 9, 300])
def test_lines_set_apart_stay_near_their_place(lines: int) -> None:
    factors = np.log(_dodge(lines, 100.0)) / np.log(100.0)  # as shares of the axis
    assert abs(factors).max() <= 0.05 + 1e-9
    assert len(set(factors.round(12))) == lines
