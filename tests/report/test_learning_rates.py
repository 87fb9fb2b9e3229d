"""The figure of a sweep says what bench.analysis.rates chose, holds the table's numbers, and can be read."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import same_color, to_rgb
from matplotlib.patches import Rectangle

from bench.analysis import evidence as evidence_module
from bench.analysis import rates, records
from bench.analysis.evidence import Evidence
from bench.core.formatting import percent
from bench.report import build as report
from bench.report.figures import learning_rates
from bench.report.figures._contract import Drawing, NothingToDraw, render
from tests.analysis._records import World, write
from tests.analysis._study import read
from tests.analysis.test_rates import REFERENCE, WITHIN, swept
from tests.conftest import PROJECT

INSIDE, HIGHEST, LOWEST = {1e-3: 0.5, 2e-3: 0.6, 4e-3: 0.5}, {1e-3: 0.5, 2e-3: 0.6, 8e-3: 0.7}, {1e-3: 0.7, 2e-3: 0.6}
FLAT = {1e-3: 0.70, 2e-3: 0.71, 4e-3: 0.60}  # the lowest is chosen, though the best is higher
Place = tuple[str, float]  # model, rate


def again(made: list[dict[str, Any]], diverged: Sequence[float]) -> list[dict[str, Any]]:
    """The same with another seed, which diverges at some rates."""
    others = copy.deepcopy(made)
    for record in others:
        record["directory"] += "-again"
        record["cell"]["seed"] = 1
        if record["cell"]["recipe"]["lr"] in diverged:
            record |= {"status": "diverged", "reason": "not finite", "horizons": record["horizons"][:1]}
    return made + others


@pytest.fixture(scope="module")
def mixed() -> Evidence:
    """Edges on both sides, a rate at which all runs diverged, and one at which one of two did."""
    return read([
        *swept(HIGHEST), *swept(LOWEST, model="ViT-mini/7"), *swept(FLAT, model="ViT-small/7"),
        *again(swept(INSIDE | {1.6e-2: None}, model="ResNet-mini"), [1e-3, 1.6e-2]),
        *swept({**INSIDE, 1.6e-2: None}, model="R-mini+ViT-nano/2"),
    ])  # fmt: skip


@pytest.fixture(scope="module")
def reference() -> Evidence:
    return evidence_module.build(records.load(REFERENCE, suite="rates"))


@pytest.fixture(scope="module", params=["mixed", "reference"])
def study(request) -> tuple[Evidence, Drawing]:
    evidence = request.getfixturevalue(request.param)
    drawing = learning_rates.draw(evidence)
    drawing.figure.draw_without_rendering()
    return evidence, drawing


def heat(drawing: Drawing) -> Axes:
    return next(axes for axes in drawing.figure.axes if axes.get_xlabel() == "Learning rate")


def at(axes: Axes, x: float, y: float) -> Place:
    """The model and rate of the square that holds a place, by the labels of the axes."""
    rate = axes.get_xticklabels()[int(np.floor(x))].get_text()
    return axes.get_yticklabels()[int(np.floor(y))].get_text(), float(rate)


def written(axes: Axes) -> dict[Place, str]:
    return {at(axes, *text.get_position()): text.get_text() for text in axes.texts}


def rectangles(axes: Axes, colour: str, *, fill: bool) -> set[Place]:
    found = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_fill() is fill]
    look = Rectangle.get_facecolor if fill else Rectangle.get_edgecolor
    return {at(axes, p.get_x() + 0.5, p.get_y() + 0.5) for p in found if same_color(look(p), colour)}


def triangles(axes: Axes) -> dict[Place, tuple[str, str]]:
    """Sign and fill of every triangle, by where it lies."""
    lines = [line for line in axes.get_lines() if line.get_marker() in ("<", ">")]
    found = {}
    for line in lines:
        pixels = line.get_transform().transform(line.get_xydata()[0])
        found[at(axes, *axes.transData.inverted().transform(pixels))] = (line.get_marker(), line.get_fillstyle())
    return found


def test_the_outlined_are_the_chosen(study: tuple[Evidence, Drawing]) -> None:
    evidence, drawing = study
    found = rates.sweeps(evidence)
    chosen = {(s.model, s.chosen.rate) for s in found}
    assert rectangles(heat(drawing), learning_rates.INK, fill=False) == chosen and len(chosen) == len(found)
    told = drawing.data[drawing.data["chosen"]]
    assert set(zip(told["model"], told["learning_rate"], strict=True)) == chosen
    assert [label.get_text() for label in heat(drawing).get_yticklabels()] == [s.model for s in found]


def test_the_numbers_are_those_of_the_table(study: tuple[Evidence, Drawing]) -> None:
    evidence, drawing = study
    table = rates.table(evidence)
    assert table is not None
    texts = written(heat(drawing))
    assert texts.keys() == {(row["model"], row["rate"]) for row in table.rows}  # blank where there was no run
    for row in table.rows:
        number = percent(row["accuracy"].value) if row["accuracy"] else ""
        runs = row["diverged"] or 0
        text = texts[row["model"], row["rate"]]
        assert text.startswith(number) and ("diverged" in text) == bool(runs)
        assert not re.search(r"\d+ diverged", text) or f"{runs} diverged" in text
    by_place = {(row["model"], row["learning_rate"]): row for row in drawing.data.to_dict("records")}
    assert all(by_place[row["model"], row["rate"]]["accuracy"] == row["accuracy"].value
               for row in table.rows if row["accuracy"])  # fmt: skip


def test_divergence_is_written_on_grey_and_edges_point_beyond(mixed: Evidence) -> None:
    axes = heat(learning_rates.draw(mixed))
    texts = written(axes)
    spoilt = {("ResNet-mini", 1e-3), ("ResNet-mini", 1.6e-2), ("R-mini+ViT-nano/2", 1.6e-2)}
    assert rectangles(axes, learning_rates.SPOILT, fill=True) == spoilt
    assert [texts[place] for place in sorted(spoilt)] == ["diverged", "50.0\n1 diverged", "2 diverged"]
    assert triangles(axes) == {
        ("ViT-nano/7", 8e-3): (">", "full"), ("ViT-mini/7", 1e-3): ("<", "full"), ("ViT-small/7", 1e-3): ("<", "none"),
    }  # fmt: skip
    assert not triangles(heat(learning_rates.draw(read(swept(WITHIN)))))


def test_what_is_pointed_at_names_its_run(study: tuple[Evidence, Drawing]) -> None:
    evidence, drawing = study
    known = {record["directory"]: record for record in evidence.records.records}
    for mark in drawing.marks:
        model, rate = at(mark.axes, mark.x, mark.y)
        cells = [known[name]["cell"] for name in mark.cells]
        assert cells and all(cell["model"] == model and cell["recipe"]["lr"] == rate for cell in cells)
        assert f"{model} at learning rate {rate:g}" in str(mark.text)


def test_nothing_is_written_over_anything_else(study: tuple[Evidence, Drawing]) -> None:
    _, drawing = study
    axes = heat(drawing)
    for text in axes.texts:
        box = text.get_window_extent().transformed(axes.transData.inverted())
        x, y = text.get_position()
        assert int(x) <= min(box.x0, box.x1) and max(box.x0, box.x1) <= int(x) + 1
        assert int(y) <= min(box.y0, box.y1) and max(box.y0, box.y1) <= int(y) + 1
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
    legends = [place.get_legend() for place in drawing.figure.axes if place.get_legend()]
    (bar,) = (inset for place in drawing.figure.axes for inset in place.child_axes)
    assert len(legends) == 2 and bar.get_xlabel().endswith("[%]")
    boxes = [axes.get_tightbbox(), bar.get_tightbbox(), *(legend.get_window_extent() for legend in legends)]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    page = drawing.figure.bbox
    assert all(page.x0 <= b.x0 and b.x1 <= page.x1 and page.y0 <= b.y0 and b.y1 <= page.y1 for b in boxes)


def luminance(colour: np.ndarray) -> float:
    """Relative luminance of sRGB, as WCAG 2 defines it."""
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def in_the_dark(colour: np.ndarray) -> np.ndarray:
    """The page's invert(.91) hue-rotate(180deg), by the matrix of the Filter Effects specification."""
    grey = np.array([0.213, 0.715, 0.072])
    turned = 2 * grey - np.eye(3)  # the specification's matrix at cos = −1, sin = 0
    return np.clip(turned @ (0.91 - 0.82 * colour), 0, 1)


def test_numbers_stand_out_by_day_and_by_night() -> None:
    assert "invert(.91) hue-rotate(180deg)" in (PROJECT / "bench/report/_style.css").read_text()
    accuracies = {1e-3 * 1.1**n: 0.9 * (n + 1) / 40 for n in range(40)}
    axes = heat(learning_rates.draw(read(swept(accuracies))))
    axes.collections[0].update_scalarmappable()
    faces = axes.collections[0].get_facecolors()[:, :3]
    assert len(faces) == len(axes.texts) == 40
    for face, text in zip(faces, axes.texts, strict=True):
        for view in (lambda colour: colour, in_the_dark):
            low, high = sorted(luminance(view(np.asarray(c))) for c in (face, to_rgb(text.get_color())))
            assert (high + 0.05) / (low + 0.05) > 3.3
    shades = [luminance(face) for face in faces]
    assert shades == sorted(shades)  # by lightness alone the better of two can be told


def test_rows_are_told_apart_by_what_differs_but_never_by_the_rate() -> None:
    both = swept(HIGHEST) + swept(LOWEST, weight_decay=0.1)
    labels = [label.get_text() for label in heat(learning_rates.draw(read(both))).get_yticklabels()]
    assert sorted(labels) == ["ViT-nano/7 (weight decay 0.1)", "ViT-nano/7 (weight decay None)"]


def test_equal_records_give_equal_bytes_and_leave_no_figure_open(mixed: Evidence) -> None:
    from matplotlib import pyplot

    made = [render("r", learning_rates.TITLE, learning_rates.draw(given)) for given in (mixed, read(
        [copy.deepcopy(record) for record in mixed.records.records]))]  # fmt: skip
    assert made[0].files(Path()) == made[1].files(Path()) and pyplot.get_fignums() == []


@pytest.mark.parametrize("made", [[], World().records(), swept({1e-3: None, 2e-3: None})], ids=["none", "one", "lost"])
def test_without_a_sweep_there_is_nothing_to_draw(made: list[dict[str, Any]]) -> None:
    with pytest.raises(NothingToDraw, match="several learning rates"):
        learning_rates.draw(read(made))


def test_any_suites_report_draws_a_sweep_and_is_silent_without_one(tmp_path: Path) -> None:
    for name, made in (("swept", swept(HIGHEST)), ("plain", swept(HIGHEST)[:1])):
        write([record | {"suite": "presets"} for record in made], tmp_path / name)
        report.build(tmp_path / name, suite="presets")  # a suite without figures of its own
    pages = {name: (tmp_path / name / "report.html").read_text() for name in ("swept", "plain")}
    texts = {name: (tmp_path / name / "report.md").read_text() for name in pages}
    assert (tmp_path / "swept/figures/learning-rates.svg").is_file()
    assert learning_rates.TITLE in texts["swept"] and 'id="figure-learning-rates"' in pages["swept"]
    assert "Figures" not in texts["plain"] and 'id="figures"' not in pages["plain"]
    assert learning_rates.TITLE not in texts["plain"] + pages["plain"]
