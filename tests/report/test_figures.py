"""Figures: what is drawn is in the CSV and follows from the evidence, stays legible, and is the same bytes again."""

import argparse
import dataclasses
import io
import math
import re
import statistics
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

from baselines.published import model_name, number, table
from bench.analysis import evidence as evidence_module
from bench.analysis import published, scaling_laws
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.finding import Axis
from bench.analysis.published import VTAB
from bench.analysis.question import load
from bench.analysis.study_data import Records
from bench.core.formatting import short_count
from bench.report import fits, tables
from bench.report.figures import (
    _panels,
    _style,
    compute,
    data_size,
    frontier,
    groups,
    laws,
    learning_curves,
    learning_rates,
    pretraining_data,
)
from bench.report.figures.figure import Drawing, NothingToDraw, RenderedFigure, render
from bench.report.style import PAGE, PHONE, style_named
from bench.study import registry
from bench.study.record import Horizon, LearningCurve, Record, Score
from tests.analysis._records import World, change, map_scores
from tests.analysis._study import read, study, swept

FEW = {"ViT-mini/7": ("ViT", 2.1e5, 3.3e6), "ResNet-small": ("ResNet", 1.6e5, 1.2e7)}
SVG = "{http://www.w3.org/2000/svg}"
KINDS = {"natural": 3, "specialised": 2, "structured": 2}  # tasks per group of a many-task benchmark
FIVE = ("ImageNet", "CIFAR-10", "CIFAR-100", "Pets", "Flowers")
TABLE5 = {
    "imagenet": "ImageNet",
    "cifar-10": "CIFAR-10",
    "cifar-100": "CIFAR-100",
    "pets": "Oxford-IIIT-Pets",
    "flowers": "Oxford-Flowers-102",
    "imagenet-real": "ImageNet-ReaL",
}


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return study(extra=("diverged",))


@pytest.fixture(scope="module", params=[compute, data_size], ids=["compute", "data-size"])
def drawn(request, evidence: Evidence) -> Drawing:
    return request.param.draw(evidence)


@pytest.fixture(scope="module")
def saved(drawn: Drawing) -> tuple[RenderedFigure, ...]:
    return render("f", "title", drawn)


@pytest.fixture(scope="module")
def paper() -> dict[str, Drawing]:
    """The paper's own figures, drawn from its tables by the same code."""
    return {name: registry.load("figure", name).draw(given) for name, given in published.figures().items()}


def panels(drawing: Drawing) -> list[Axes]:
    return [axes for figure in (drawing.figure, drawing.by_task) if figure for axes in figure.axes]


def heading(axes: Axes) -> str:
    return axes.get_title(loc="left")


def legend_of(drawing: Drawing) -> list[str]:
    return [text.get_text() for legend in drawing.figure.legends for text in legend.texts]


def written(drawing: Drawing) -> list[str]:
    return [text.get_text() for axes in panels(drawing) for text in axes.texts]


# -- every figure ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", registry.names("figure"))
def test_no_figure_is_drawn_without_records(name: str) -> None:
    """tests/core/test_contracts.py draws each."""
    with pytest.raises(NothingToDraw):
        registry.load("figure", name).draw(read([]))


@pytest.mark.parametrize("module", [compute, frontier, learning_rates], ids=lambda m: m.__name__.rpartition(".")[2])
def test_rounding_noise_does_not_reach_the_files(module: Any) -> None:
    """Scores that differ in the 13th digit, as sums do between processors, give the same bytes; and nothing else that
    changes (dates, versions, random ids) is inside."""
    world = World(seed=3)
    world.models = FEW
    records = world.records() if module is not learning_rates else swept({1e-3: 0.5, 2e-3: 0.6, 4e-3: 0.55})
    noisy = [map_scores(r, lambda _, s: replace(s, value=s.value * (1 + 1e-13))) for r in records]
    first, second = (render("f", module.TITLE, module.draw(read(given))) for given in (records, noisy))
    assert first == second
    first = first[0]
    body = first.svg[first.svg.index("<svg") :]
    ElementTree.fromstring(first.svg)
    assert b"matplotlib" not in first.png and not re.search("metadata|matplotlib v|dc:date", body)


def test_csv_is_the_data_to_eight_digits(drawn: Drawing, saved: tuple[RenderedFigure, ...]) -> None:
    first, *second = saved
    assert all(not more.csv for more in second)  # of the same data
    read_back = pd.read_csv(io.StringIO(first.csv))
    pd.testing.assert_frame_equal(read_back, drawn.data.replace("", math.nan), check_dtype=False, rtol=1e-7)


def test_every_annotation_is_a_title_on_the_picture(paper: dict[str, Drawing]) -> None:
    for drawing in paper.values():
        saved = render("f", "title", drawing)
        assert sum(one.points for one in saved) == sum(one.pointed for one in saved) == len(drawing.annotations) > 0
        for one in saved:
            root = ElementTree.fromstring(one.svg)
            areas = root.findall(f".//{SVG}a")
            assert len(areas) == one.points and all(area.find(f"{SVG}title").text for area in areas)
            width, height = map(float, root.attrib["viewBox"].split()[2:])
            for area in areas:
                mark = area.find(f".//{SVG}use")
                assert 0 < float(mark.attrib["x"]) < width and 0 < float(mark.attrib["y"]) < height


def test_points_link_to_the_first_record_behind_them(saved: tuple[RenderedFigure, ...]) -> None:
    for one in saved:
        links = re.findall(r'<a xlink:href="([^"]*)">', one.svg)
        assert len(links) == one.points
        assert {link.partition("#")[0] for link in links} == {f"../cells/{names[0]}/record.json" for names in one.cells}


SIZES = {"paper:3.25": (3.25, 8.0), "paper:5.5": (5.5, 8.0), "paper:6.75": (6.75, 8.0), "slide": (40 / 3, 12.0)}


@pytest.mark.parametrize("name", SIZES)
def test_a_style_gives_figures_their_width_and_least_text(evidence: Evidence, name: str) -> None:
    style, (width, least) = style_named(name), SIZES[name]
    for module in (frontier, laws):
        with _style.drawn_as(style):
            drawing = module.draw(evidence)
        for figure in filter(None, (drawing.figure, drawing.by_task)):
            assert figure.get_figwidth() == pytest.approx(width)
            assert name != "slide" or figure.get_figheight() == pytest.approx(7.5)
            sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip()]
            assert len(sizes) > 8 and min(sizes) >= least
            assert name == "slide" or max(sizes) == least
    with _style.drawn_as(style):
        one = render("f", "title", drawing)[0]
    assert (b"/FontFile2" in one.pdf) == name.startswith("paper")
    assert _style.current() is PAGE and style_named("paper").width == 3.25


def test_a_figure_for_a_phone_is_arranged_as_if_it_had_a_png(evidence: Evidence) -> None:
    """The page holds its SVG alone, which is the same."""
    made = []
    for style in (PHONE, replace(PHONE, png=True)):
        with _style.drawn_as(style):
            made.append(render("f", "title", frontier.draw(evidence))[0])
    assert made[0].png == b"" != made[1].png and made[0] == replace(made[1], png=b"")


def test_a_figure_for_a_paper_is_the_same_bytes_again(evidence: Evidence) -> None:
    with _style.drawn_as(style_named("paper:3.25")):
        one, two = (render("f", "title", frontier.draw(evidence))[0] for _ in range(2))
    assert one.pdf == two.pdf != b""


@pytest.mark.parametrize("name", ["poster", "paper:4", ""])
def test_a_style_that_does_not_exist_is_said_to_be_none(name: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"no style: there are paper, page, paper:3\.25, .*, slide"):
        style_named(name)


# -- panels ----------------------------------------------------------------------------------------------------------


def test_every_number_drawn_is_in_the_data(drawn: Drawing) -> None:
    data = drawn.data
    known = {name: set((100 * data[name]).round(6)) for name in ("accuracy", "low", "high")}
    plotted = 0
    for axes in panels(drawn):
        points = [c for c in axes.collections if type(c) is PathCollection]
        lines = [np.asarray(part) for c in axes.collections if type(c) is LineCollection for part in c.get_segments()]
        lines += [np.column_stack(line.get_data()) for line in axes.get_lines() if line.get_linestyle() != "None"]
        intervals = [part for part in lines if len(part) == 2 and part[0, 0] == part[1, 0]]
        for low, high in (part[:, 1].round(6) for part in intervals):
            assert low in known["low"] and high in known["high"]
        values = [float(y) for c in points for y in np.asarray(c.get_offsets())[:, 1]]
        values += [float(y) for part in lines if not any(part is other for other in intervals) for y in part[:, 1]]
        assert {round(y, 6) for y in values} <= known["accuracy"]
        plotted += sum(len(c.get_offsets()) for c in points)
    assert plotted == len(data[data["kind"] == "trained"])


def test_data_agrees_with_the_evidence(evidence: Evidence) -> None:
    data = compute.draw(evidence).data
    row = data[(data["series"] == "ResNet-base") & (data["measure"] == "mnist")].iloc[-1]
    point = next(s for s in evidence.series if s.label == "ResNet-base").last
    e = evidence.estimate(point, "mnist")
    assert e is not None and row["accuracy"] == e.value and row["low"] == e.low
    assert row["compute_TFLOPs"] == pytest.approx(point.train_flops / 1e12)


def test_caption_and_axes_name_what_is_shown(drawn: Drawing) -> None:
    for part in ("10-shot", "2 training seeds × 3 few-shot samples", "test images", "95% intervals", "(rendered)"):
        assert part in " ".join(drawn.caption)
    titles = list(map(heading, panels(drawn)))
    assert len(drawn.figure.axes) == 1  # the average is large; the tasks are a picture of their own
    assert titles[0] == "Average of 2 main tasks" and "mnist (photographs)" in titles
    assert "Test accuracy: glyphs (rendered)" in titles


@pytest.mark.parametrize(
    "task, shown",
    [
        ("fewshot", "10-shot accuracy [%]"),
        ("linear", "Linear-probe accuracy [%]"),
        ("centroid", "Accuracy [%]"),
        ("finetune@56px", "Fine-tuned accuracy [%]"),
    ],
)
def test_an_axis_names_the_task_whatever_the_set_is_called(evidence: Evidence, task: str, shown: str) -> None:
    def changed(_: Horizon, score: Score) -> Score:
        own = "folder:photos:64px:rgb"
        return replace(score, task=task, data=own) if (score.task, score.data) == ("fewshot", "mnist") else score

    made = read([map_scores(record, changed) for record in evidence.records.records])
    (measure,) = (m for m in made.measures if "folder" in m)
    assert _panels.y_label(made, measure) == shown
    assert _panels.y_label(made, "upstream") == "Test accuracy [%]"


def test_text_is_plain_and_does_not_overlap(drawn: Drawing) -> None:
    for figure in (drawn.figure, drawn.by_task):
        figure.draw_without_rendering()
        boxes, canvas = [], figure.bbox
        for axes in figure.axes:
            labels = [label for label in axes.get_xticklabels() if label.get_text() and label.get_visible()]
            assert all(re.fullmatch(r"[\d.,]+[kMG]?", label.get_text()) for label in labels)
            assert all(a.x1 < b.x0 for a, b in pairwise([label.get_window_extent() for label in labels]))
            texts = (axes._left_title, axes.xaxis.label, axes.yaxis.label, *axes.texts)
            boxes += [text.get_window_extent() for text in texts if text.get_text() and text.get_visible()]
        assert not [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.overlaps(b)]
        inside = (canvas.x0 <= b.x0 and b.x1 <= canvas.x1 and canvas.y0 <= b.y0 and b.y1 <= canvas.y1 for b in boxes)
        assert all(inside)


def test_families_have_colours_and_markers_of_their_own_and_models_their_names() -> None:
    families = ("ViT", "Hybrid", "ResNet", "Mixer", "Swin")
    looks = [_style.look(family, families) for family in families]
    assert len({colour for colour, _ in looks}) == len({marker for _, marker in looks}) == 5
    assert _style.look("BiT", families) == _style.look("ResNet", families)
    models = {"ViT-mini/7": ("ViT", 2.1e5, 3.3e6), "ViT-mini/14": ("ViT", 2.2e5, 1.1e6)}
    models |= {"ResNet-mini": FEW["ResNet-small"]}
    drawing = compute.draw(study(models=models, sizes=(30_000,)))
    assert set(models) <= set(written(drawing)) and {"ViT", "ResNet"} <= set(legend_of(drawing))
    many = {f"ViT-{i}/7": ("ViT", 1e5 * (i + 1), 1e6 * (i + 1)) for i in range(20)}
    crowd = compute.draw(study(models=many, sizes=(30_000,), seeds=(0,), draws=(0, 1)))
    assert not set(many) & set(written(crowd)) and len(legend_of(crowd)) < 5


def test_baselines_are_drawn_and_distant_ones_written() -> None:
    drawing = compute.draw(study(models=FEW, horizons=(0, 64_000, 72_000, 300_000)))
    assert set(drawing.data["kind"]) == {"trained", "raw pixels", "untrained"}
    assert any("untrained, below:" in text and "ResNet" in text for text in written(drawing))


def test_an_interval_beyond_the_axis_ends_in_an_arrow() -> None:
    low, high = _style.percent_range([10.0, 48.0, 49.0], [50.0, 52.0, 54.0], [90.0, 56.0, 58.0])
    assert 10.0 < low < 48.0 and 58.0 < high < 90.0
    axes = Figure().subplots()
    axes.set_ylim(low, high)
    _style.arrows_where_cut(axes, [1.0, 2.0], [10.0, 48.0], [90.0, 56.0], ["red", "blue"])
    assert [(line.get_marker(), line.get_color(), *line.get_ydata()) for line in axes.get_lines()] == [
        ("v", "red", low),
        ("^", "red", high),
    ]


def test_names_cover_neither_each_other_nor_points() -> None:
    figure = _style.figure(width=5, height=4)
    axes = figure.subplots()
    axes.set(xlim=(0, 10), ylim=(0, 10))
    places = [(5.0, 5.0), (5.1, 5.1), (5.0, 5.4)]
    _style.name_points(
        axes, [(x, y, f"name {n}", "red") for n, (x, y) in enumerate(places)], curves=[[(0, 5), (10, 5)]]
    )
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text()]
    assert len(boxes) == 3 and not [1 for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.overlaps(b)]
    points = axes.transData.transform(places)
    assert not any(box.contains(*point) for box in boxes for point in points)


def test_a_line_from_a_name_to_its_point_crosses_no_other_point() -> None:
    """All around its point there is something else; the way between two others, below it, is free."""
    figure = _style.figure(width=5, height=4)
    axes = figure.subplots()
    axes.set(xlim=(0, 10), ylim=(0, 10))
    figure.draw_without_rendering()
    middle = axes.transData.transform((5, 5))
    around = [22 * np.array(way) / np.hypot(*way) for way in _style.DIRECTIONS if way != (0, -1)]
    wall = axes.transData.inverted().transform([middle + off for off in (*around, (-8, -22), (8, -22))])
    _style.name_points(axes, [(5.0, 5.0, "name", "red")], curves=[[place] for place in wall])
    name, line = axes.texts
    assert name.get_window_extent().y1 < middle[1] - 22 and not line.get_text()


@pytest.mark.parametrize("drawn", ["intervals", "markers"])
def test_a_key_lies_on_nothing_that_is_drawn(drawn: str) -> None:
    """Intervals are collections of lines, and scattered points collections too."""
    axes = _style.figure(width=5, height=4).subplots()
    axes.set(xlim=(0, 10), ylim=(0, 10))
    for x, y in ((0.5, 0.3), (9.5, 9.7), (0.5, 9.7)):
        axes.vlines([x - 0.5, x, x + 1], y - 1, y + 1) if drawn == "intervals" else axes.scatter(x, y)
    _style.key(axes, {"a name": "red"})
    box = axes.get_legend().get_window_extent().transformed(axes.transData.inverted())
    assert box.x0 > 5 and box.y1 < 5


def test_variants_of_a_model_have_no_familys_colour() -> None:
    assert not {colour for colour, _ in _style.VARIANTS} & {colour for colour, _ in _style.FAMILIES.values()}


def test_images_for_a_target_are_marked_where_the_answer_has_them(evidence: Evidence) -> None:
    assert not list(load("images for a target").ask(evidence))  # no round accuracy is one that all families pass
    worst = min(1 - law.frontier[1].min() for law in scaling_laws.laws(evidence, axis=Axis.IMAGES).values())
    evidence = dataclasses.replace(evidence, targets=(math.floor(1000 * worst) / 1000,))
    needed = [f for f in load("images for a target").ask(evidence) if f.estimate]
    axes = data_size.draw(evidence).figure.axes[0]
    hollow = [line for line in axes.get_lines() if line.get_markerfacecolor() == "white"]
    assert needed and [line.get_xdata()[0] for line in hollow] == pytest.approx([f.estimate for f in needed], rel=1e-5)
    at = 100 * needed[0].evidence[0].accuracy
    assert [line.get_ydata()[0] for line in hollow] == pytest.approx([at] * len(needed))


@pytest.mark.parametrize("models", [1, 2, 9])
def test_points_drawn_apart_stay_near_their_place(models: int) -> None:
    table = pd.DataFrame({"x": [0.0, 1.0] * models, "series": [f"m{n}" for n in range(models) for _ in "ab"]})
    moved = _panels.apart(table, "series") - table["x"]
    assert abs(moved).max() < 0.3 and len(set(moved.round(9))) == models


@pytest.mark.parametrize(
    "values",
    [
        [9.1, 18.2, 36.4, 72.7, 145, 245, 277, 444],
        [1e10, 5e11, 1e20, 4e21],
        [1, 9e6],
        [300, 1_000, 3_000, 12_000, 20_000, 29_000, 30_000],
    ],
)
def test_ticks_of_log_axes_are_few_round_and_where_the_points_are(values: list[float]) -> None:
    axes = Figure().subplots()
    _style.plain_log_x(axes, values)
    (low, high), ticks = axes.get_xlim(), [float(tick) for tick in axes.get_xticks()]
    assert low < min(values) and max(values) < high and 2 <= len(ticks) <= 6
    assert all(f"{tick:.0e}"[0] in "1235" for tick in ticks) or set(ticks) <= set(values)
    if 300 in values:
        assert {300, 1_000, 3_000, 30_000} <= {round(tick) for tick in ticks}


def test_units_reach_beyond_the_largest_budgets_published() -> None:
    assert [_style.tick_text(x) for x in (4.3e21, 1e22, 5e18, 3e4, 0.3)] == ["4.3Z", "10Z", "5E", "30k", "0.3"]


def test_sizes_agree_between_pointer_and_table(evidence: Evidence) -> None:
    """One convention: all parameters, in the same digits."""
    for given in (evidence, published.evidence()):
        sizes = {row["series"]: short_count(row["params"]) for row in tables.models(given).rows}
        pointed = {str(item.lines).partition("\n")[0] for item in compute.draw(given).annotations}
        assert len(sizes) >= 8 and pointed == {f"{model} ({size} parameters)" for model, size in sizes.items()}


# -- single figures --------------------------------------------------------------------------------------------------


def test_the_frontier_is_the_best_within_each_budget(evidence: Evidence) -> None:
    drawing = frontier.draw(evidence)
    column = next(name for name in drawing.data if name.startswith("compute_"))
    for family, points in drawing.data.groupby("family"):
        points = points.sort_values(column)
        alone = points["accuracy"] > points["accuracy"].cummax().shift(fill_value=-1.0)  # no cheaper one is better
        assert alone[points["best"]].all()
        (axes,) = drawing.figure.axes
        colour, _ = _style.look(family, ())
        line = next(x for x in axes.get_lines() if x.get_color() == colour and x.get_linewidth() > 2)
        below = (
            100 * points["accuracy"]
            < np.interp(np.log(points[column]), np.log(line.get_xdata()), line.get_ydata()) - 1e-6
        )
        assert list(points["best"]) == list(~below)  # of another model of the family, between its budgets
        assert max(line.get_ydata()) == pytest.approx(100 * points["accuracy"].max())
        assert max(line.get_xdata()) == pytest.approx(points[column].max())  # the best stays the best


def test_the_figure_of_laws_shows_the_cards(paper: dict[str, Drawing]) -> None:
    drawing, cards = paper["laws"], fits.cards(published.evidence())
    assert len(cards) == 3
    for card in cards:
        mine = drawing.data[drawing.data["family"] == card["family"]]
        assert list(mine.loc[mine["kind"] == "frontier", "error"]) == [p["error"] for p in card["frontier"]]
        low, high = card["card"]["x_range"]
        fitted, beyond = mine[mine["kind"] == "fitted"], mine[mine["kind"] == "extrapolated"]
        assert fitted["x"].max() <= high * 1.001 < beyond["x"].min() * 1.001 and fitted["x"].min() >= low * 0.999
        assert len(beyond) and card["card"]["form"] in " ".join(drawing.caption)
    curve = drawing.data[~drawing.data["kind"].isin(["frontier", "run"])]
    assert (curve["total_low"] <= curve["error"] * 1.001).all()
    assert (curve["error"] <= curve["total_high"] * 1.001).all()
    inside = curve[curve["kind"] == "fitted"]  # beyond the points, past misses alone count
    assert curve.loc[curve["kind"] == "extrapolated", "within_low"].isna().all()
    assert (inside["total_high"] >= 0.999 * inside["within_high"]).all()
    assert (inside["total_low"] <= 1.001 * inside["within_low"]).all()
    lines = [line for line in drawing.figure.axes[0].get_lines() if line.get_linestyle() != "None"]
    assert [line.is_dashed() for line in lines] == [False] * 3 + [True] * 3  # extrapolated: dashed
    with pytest.raises(NothingToDraw, match="No law"):
        laws.draw(study(horizons=(0, 8_000), seeds=(0,), sizes=(30_000,)))


@cache
def with_curves_and_groups() -> Evidence:
    """A study with curves, and with seven tasks in three groups whose accuracy grows with their number."""
    world = World(seed=2)
    world.sizes = (30_000,)
    records, rng = world.records(), np.random.default_rng(0)
    images = (100, 6_000, 7_000, 8_000, 20_000, 24_000)
    curve = LearningCurve(
        images=images,
        losses=tuple(3 - math.log10(x) / 2 for x in images),
        horizons=(None, None, 8_000, 8_000, None, 24_000),
    )
    names = [(group, f"{group}-{n}") for group, size in KINDS.items() for n in range(size)]

    def more(horizon: Horizon) -> Horizon:
        extra = [
            Score(
                task="vtab",
                data=name,
                metric="accuracy",
                value=0.3 + 0.1 * place + rng.normal(0, 0.01),
                stderr=0.01,
                num_test=500,
                num_classes=4,
                chance=0.25,
                detail={"group": group},
            )
            for place, (group, name) in enumerate(names if horizon.images_seen else [])
        ]
        return replace(horizon, scores=(*horizon.scores, *extra))

    return read(
        [replace(r, curve=curve, horizons=tuple(map(more, r.horizons))) if r.model.params_body else r for r in records]
    )


def test_learning_curves_hold_every_point_of_every_seed() -> None:
    drawing = learning_curves.draw(with_curves_and_groups())
    data = drawing.data
    assert set(data["series"]) == set(World().models) and data["cell"].nunique() == 16
    one = data[data["cell"] == data["cell"].iloc[0]]
    assert sorted(set(one["images_seen"])) == [100, 6_000, 7_000, 8_000, 20_000, 24_000]
    assert all(len(item.cells) == 1 for item in drawing.annotations)
    lines = [line for axes in panels(drawing) for line in axes.get_lines() if len(line.get_xdata())]
    parts = data.assign(horizon=data["horizon"].fillna(-1)).groupby(["family", "series", "cell", "horizon"])
    wanted = {tuple(zip(part["images_seen"], part["loss"].round(9), strict=True)) for _, part in parts}
    made = {tuple((round(x), round(y, 9)) for x, y in zip(*line.get_data(), strict=True)) for line in lines}
    assert made == wanted  # no point more, none less
    assert len({line.get_linestyle() for line in lines}) == 2 and {line.get_linewidth() for line in lines} == {1.3, 0.7}


@pytest.mark.parametrize("most, models, runs", [(200, 8, 16), (30, 8, 8), (10, 3, 3)])
def test_of_many_learning_curves_some_are_drawn_and_that_is_said(monkeypatch, most, models, runs) -> None:
    """A large study has thousands: they cannot be told apart, and take minutes."""
    monkeypatch.setattr(learning_curves, "MAX_CURVES", most)
    drawing = learning_curves.draw(with_curves_and_groups())
    lines = [line for axes in panels(drawing) for line in axes.get_lines() if len(line.get_xdata())]
    assert len(lines) <= most and drawing.data["series"].nunique() == models and drawing.data["cell"].nunique() == runs
    caption = " ".join(drawing.caption) if isinstance(drawing.caption, tuple | list) else drawing.caption
    assert ("are drawn" in caption or "not drawn" in caption) == (most < 200)


def test_groups_are_plain_means_over_their_tasks() -> None:
    evidence = with_curves_and_groups()
    data = groups.draw(evidence).data
    assert list(data.groupby("group", sort=False)["tasks"].first()) == [7, 3, 2, 2]
    row = data.iloc[0]
    point = next(s.last for s in evidence.series if s.label == row["series"])
    single = [evidence.estimate(point, f"vtab:{g}-{n}") for g, size in KINDS.items() for n in range(size)]
    assert row["accuracy"] == pytest.approx(np.mean([e.value for e in single if e]))
    assert (data["low"] < data["accuracy"]).all() and set(data["seeds"]) == {2}
    assert row["high"] - row["accuracy"] < max(e.half for e in single if e)  # a mean over tasks is surer than a task


def test_upstream_sets_stand_beside_each_other_small_first() -> None:
    with pytest.raises(NothingToDraw):
        pretraining_data.draw(study(sizes=(30_000,), seeds=(0,)))
    records = []
    for record in World(seed=1).records():
        if record.cell.num_images == 30_000:
            other = change(
                record,
                {
                    "cell.data": "stripes",
                    "data.name": "stripes",
                    "cell.num_images": 900,
                    "data.num_images": 900,
                    "directory": record.directory.replace("glyphs-30000", "stripes-900"),
                },
            )
            records += [record, other]
    evidence = read(records)
    drawing = pretraining_data.draw(evidence)
    ticks = [label.get_text().partition("\n")[0] for label in drawing.figure.axes[0].get_xticklabels()]
    trained = drawing.data[drawing.data["kind"] == "trained"]
    assert ticks == ["stripes", "glyphs"] and set(trained["upstream"]) == {"stripes", "glyphs"}
    assert (trained["place"] == (trained["upstream"] == "glyphs")).all()
    assert "from the worst to the best ResNet" in " ".join(drawing.caption)
    lines = [c for axes in panels(drawing) for c in axes.collections if type(c) is LineCollection]
    assert not any(np.ptp(part[:, 0]) for line in lines for part in line.get_segments())
    for axes in panels(drawing):  # shaded: from the worst to the best ResNet on each set; no line joins the sets
        bands = [band.get_paths()[0].vertices for band in axes.collections if isinstance(band, PolyCollection)]
        measure = next(m for m in set(trained["measure"]) if _panels.title(evidence, m, []) == heading(axes))
        resnets = trained[(trained["family"] == "ResNet") & (trained["measure"] == measure)]
        for (place, values), band in zip(resnets.groupby("place")["accuracy"], bands, strict=True):
            assert band[:, 0].min() < place < band[:, 0].max()
            ends = [100 * values.min(), 100 * values.max()]
            assert [band[:, 1].min(), band[:, 1].max()] == pytest.approx(ends)


def test_a_sweep_shows_every_rate_the_best_one_and_open_ends() -> None:
    highest = swept({1e-3: 0.5, 2e-3: 0.6, 8e-3: 0.7})
    between = swept({1e-3: 0.60, 2e-3: 0.71, 4e-3: 0.70, 8e-3: 0.55}, model="ViT-mini/7")
    inside = swept({1e-3: 0.5, 2e-3: 0.6, 4e-3: 0.5, 1.6e-2: None}, model="ResNet-mini")
    records = [replace(r, horizons=r.horizons[-1:]) for r in (*highest, *between, *inside)]
    drawing = learning_rates.draw(read(records))
    data = drawing.data
    assert dict(data.loc[data["chosen"], ["model", "learning_rate"]].itertuples(index=False)) == {
        "ViT-mini/7": 2e-3,
        "ResNet-mini": 2e-3,
    }
    assert list(data.loc[data["diverged"] > 0, "learning_rate"]) == [1.6e-2] and data["accuracy"].isna().sum() == 1
    rings = {
        float(line.get_xdata()[0])
        for axes in drawing.figure.axes
        for line in axes.get_lines()
        if line.get_fillstyle() == "none" and len(line.get_xdata())
    }
    best = data.drop_duplicates("model")["best_rate"].dropna()
    assert len(rings) == len(best) == 2 and sorted(rings) == pytest.approx(sorted(best), rel=0.05)
    assert any(2e-3 < rate < 4e-3 for rate in rings)  # of the curve, between two rates that were tried
    ends = [text for axes in drawing.figure.axes for text in axes.texts if abs(text.xyann[0]) == 21]
    arrows = {(text.xy[0], np.sign(text.xyann[0])) for text in ends}
    assert arrows == {(8e-3, 1)}  # of the sweep whose answer is "at the edge", and of no other
    for item in drawing.annotations:
        assert item.cells and f"at learning rate {learning_rates.plain(item.x)}" in item.lines
    with pytest.raises(NothingToDraw, match="several learning rates"):
        learning_rates.draw(read(World().records()))


def test_two_budgets_of_a_sweep_are_two_panels() -> None:
    drawing = learning_rates.draw(read(swept({1e-3: 0.5, 2e-3: 0.6, 4e-3: 0.5})))
    titles = [axes.get_title(loc="left") for axes in drawing.figure.axes if axes.get_title(loc="left")]
    assert titles == ["ViT, shortest budget", "ViT, longest budget"]
    assert sorted(drawing.data["images_seen"].unique()) == [8_000, 72_000]


# -- the paper's figures ---------------------------------------------------------------------------------------------


def test_figure_5_has_every_row_of_table_6(paper: dict[str, Drawing]) -> None:
    data = paper["compute"].data
    average = data[data["measure"] == HEADLINE]
    assert set(data["kind"]) == {"published"} and len(average) == 18
    for row in table("table6"):
        mine = average[
            (average["series"] == model_name(row["name"]))
            & (average["compute_EFLOPs"].sub(float(row["exaFLOPs"])).abs() < 1e-6)
        ]
        assert 100 * mine["accuracy"].item() == pytest.approx(statistics.mean(float(row[c]) for c in FIVE))


def test_figure_3_has_every_number_of_table_5(paper: dict[str, Drawing]) -> None:
    data = paper["pretraining-data"].data
    single = data[data["measure"] != HEADLINE].itertuples()
    accuracies = {(row.series, row.upstream, row.measure.rpartition(":")[2]): 100 * row.accuracy for row in single}
    printed = {}
    for row in table("table5"):
        for column, text in row.items():
            value = number(text)[0] if column not in ("pretrain", "dataset") else None
            if value is not None:
                name = next(key for key, title in TABLE5.items() if title == row["dataset"])
                printed[column, row["pretrain"].lower(), name] = value
    assert accuracies == pytest.approx(printed)


def test_figure_2_has_the_means_of_table_9(paper: dict[str, Drawing]) -> None:
    data = paper["groups"].data
    overall = sorted(100 * data.loc[data["tasks"] == 19, "accuracy"])
    assert overall == pytest.approx(sorted(float(row["Mean"]) for row in table("table9")), abs=0.1)
    assert sorted(set(data["tasks"])) == sorted([19, *map(len, VTAB.values())])


def test_published_points_are_hollow_and_have_no_record(paper: dict[str, Drawing]) -> None:
    for drawing in paper.values():
        assert not any(item.cells for item in drawing.annotations) and drawing.annotations
        assert all("published" in item.lines for item in drawing.annotations)
    scatter = [c for axes in paper["compute"].figure.axes for c in axes.collections if c.get_offsets().size > 2]
    faces = [face for c in scatter if hasattr(c, "get_sizes") for face in c.get_facecolor()]
    assert faces and all((face == 1).all() or face[3] == 0 for face in faces)


def at_the_paper_s_scale(records: Sequence[Record], suite: str) -> Evidence:
    """Evidence of a study whose scores are called as those of scale `paper` are, with what the paper printed."""
    names = {"cifar-10": "cifar10", "cifar-100": "cifar100", "flowers": "flowers102:384px", "pets": "pets:384px"}
    names |= {"imagenet": "imagenet:384px", "imagenet-real": "imagenet:384px-real"}

    def called(record: Record) -> Record:
        return map_scores(
            dataclasses.replace(record, suite=suite),
            lambda _, score: dataclasses.replace(score, task="finetune@384px", data=names[score.data]),
        )

    made = Records(suite=suite, records=tuple(map(called, records)))
    headline = registry.load("suite", suite).headline
    return evidence_module.build(made, headline=headline, data_kinds={})


@pytest.mark.parametrize(
    "suite, figure, records", [("scaling", compute, published.table6), ("transfer", pretraining_data, published.table5)]
)
def test_a_study_at_the_paper_s_scale_lies_on_the_paper_s_own_numbers(suite, figure, records) -> None:
    """Figures 5 and 3: a panel for the average of five sets and one for each, every measured point on a hollow one."""
    study_there = at_the_paper_s_scale(records(), suite)
    beside = registry.load("quoted source", "paper").beside(study_there)
    data = figure.draw(dataclasses.replace(study_there, reference=beside)).data
    assert {HEADLINE, "finetune@384px:imagenet:384px", "finetune@384px:flowers102:384px"} <= set(data["measure"])
    x = "compute_EFLOPs" if figure is compute else "place"
    for _, panel in data.groupby("measure"):
        kinds = {
            kind: set(zip(part[x], part["accuracy"].round(9), strict=True)) for kind, part in panel.groupby("kind")
        }
        assert kinds["trained"] == kinds["published"]


def test_a_probe_is_not_laid_beside_fine_tuning() -> None:
    beside = dataclasses.replace(study(sizes=(30_000,), seeds=(0,)), reference=published.figures()["compute"])
    assert _panels.counterpart(beside, "imagenet:224px") is None
    assert _panels.counterpart(beside, "finetune@384px:imagenet:384px") == "finetune:imagenet"
    assert _panels.counterpart(beside, "finetune@384px:imagenet:384px-real") == "finetune:imagenet-real"


def test_published_points_lie_under_the_measured_ones() -> None:
    measured = study(sizes=(30_000,), seeds=(0,))
    plain = compute.draw(measured)
    laid = compute.draw(dataclasses.replace(measured, reference=published.figures()["compute"]))
    kinds = laid.data.groupby("kind").size()
    assert kinds["published"] == 18 and kinds["trained"] == (plain.data["kind"] == "trained").sum()
    assert {"ViT, published", "ResNet, published", "Hybrid, published"} <= set(legend_of(laid))
    average = laid.figure.axes[0]
    low, high = average.get_xlim()
    assert low < 1e12 and high > 4e21
    hollow = [c for c in average.collections if isinstance(c, PathCollection) and not len(c.get_facecolor())]
    assert sum(len(c.get_offsets()) for c in hollow) == 18
