"""Figures: what is drawn is in the CSV and follows from the evidence, stays legible, and is the same bytes again."""

from __future__ import annotations

import dataclasses
import io
import math
import re
import statistics
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.figure import Figure

from baselines.published import model_name, number, table
from bench.analysis import published
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.published import VTAB
from bench.core import registry
from bench.core.formatting import short_count
from bench.core.record import Horizon, LearningCurve, Record, Score
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
from bench.report.figures._contract import Drawing, NothingToDraw, render
from tests.analysis._records import World, change, map_scores
from tests.analysis._study import read, study, swept

FEW = {"ViT-mini/7": ("ViT", 2.1e5, 3.3e6), "ResNet-small": ("ResNet", 1.6e5, 1.2e7)}
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
def paper() -> dict[str, Drawing]:
    """The paper's own figures, drawn from its tables by the same code."""
    return {name: registry.load("figure", name).draw(given) for name, given in published.figures().items()}


def titled(drawing: Drawing) -> list[Axes]:
    return [axes for axes in drawing.figure.axes if axes.get_title()]


def legend_of(drawing: Drawing) -> list[str]:
    return [text.get_text() for axes in drawing.figure.axes if (legend := axes.get_legend()) for text in legend.texts]


# -- every figure ----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("module", [compute, frontier, learning_rates], ids=lambda m: m.__name__.rpartition(".")[2])
def test_rounding_noise_does_not_reach_the_files(module: Any) -> None:
    """Scores that differ in the 13th digit, as sums do between processors, give the same bytes; and nothing else that
    changes (dates, versions, random ids) is inside."""
    world = World(seed=3)
    world.models = FEW
    records = world.records() if module is not learning_rates else swept({1e-3: 0.5, 2e-3: 0.6, 4e-3: 0.55})
    noisy = [map_scores(r, lambda _, s: replace(s, value=s.value * (1 + 1e-13))) for r in records]
    first, second = (render("f", module.TITLE, module.draw(read(given))) for given in (records, noisy))
    assert (first.png, first.svg, first.csv) == (second.png, second.svg, second.csv)
    body = first.svg[first.svg.index("<svg") :]
    ElementTree.fromstring(first.svg)
    assert b"matplotlib" not in first.png and not re.search("metadata|matplotlib v|dc:date", body)


def test_csv_is_the_data_to_eight_digits(drawn: Drawing) -> None:
    saved = render("f", "title", drawn)
    read_back = pd.read_csv(io.StringIO(saved.csv))
    pd.testing.assert_frame_equal(read_back, drawn.data.replace("", math.nan), check_dtype=False, rtol=1e-7)


def test_hover_points_lie_on_the_picture(paper: dict[str, Drawing]) -> None:
    for drawing in paper.values():
        saved = render("f", "title", drawing)
        assert len(saved.hover_points) == len(drawing.annotations) == saved.annotations > 0
        assert all(0 < point.x < 1 and 0 < point.y < 1 for point in saved.hover_points)


# -- panels ----------------------------------------------------------------------------------------------------------


def test_every_number_drawn_is_in_the_data(drawn: Drawing) -> None:
    known = {name: set((100 * drawn.data[name]).round(6)) for name in ("accuracy", "low", "high")}
    plotted = 0
    for axes in drawn.figure.axes:
        lines = [np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()]
        ends = [values.reshape(-1, 3) for values in lines if np.isnan(values).any()]  # of intervals, with gaps between
        lines = [values for values in lines if not np.isnan(values).any()]
        for low, high in (pair for values in ends for pair in values[:, :2].round(6).tolist()):
            assert low in known["low"] and high in known["high"]
        points = [np.asarray(c.get_offsets())[:, 1] for c in axes.collections if isinstance(c, PathCollection)]
        assert {round(float(v), 6) for values in [*lines, *points] for v in values} <= known["accuracy"]
        assert sum(map(len, ends)) == sum(map(len, points))
        plotted += sum(len(values) for values in points)
    assert plotted == len(drawn.data[drawn.data["kind"] == "trained"])


def test_data_agrees_with_the_evidence(evidence: Evidence) -> None:
    data = compute.draw(evidence).data
    row = data[(data["series"] == "ResNet-base") & (data["measure"] == "mnist")].iloc[-1]
    point = next(s for s in evidence.series if s.label == "ResNet-base").last
    e = evidence.estimate(point, "mnist")
    assert e is not None and row["accuracy"] == e.value and row["low"] == e.low
    assert row["compute_TFLOPs"] == pytest.approx(point.train_flops / 1e12)


def test_caption_and_axes_name_what_is_shown(drawn: Drawing) -> None:
    for part in ("10-shot", "2 training seeds × 3 few-shot draws", "test images", "95% intervals", "(rendered)"):
        assert part in drawn.caption
    titles = [axes.get_title() for axes in drawn.figure.axes]
    assert titles[0] == "Average of 2 headline tasks" and "mnist (photographs)" in titles
    assert "Upstream: glyphs (rendered)" in titles


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
    assert _panels.y_label(made, "upstream") == "Upstream accuracy [%]"


def test_text_is_plain_and_does_not_overlap(drawn: Drawing) -> None:
    drawn.figure.draw_without_rendering()
    boxes, canvas = [], drawn.figure.bbox
    for axes in titled(drawn):
        labels = [label for label in axes.get_xticklabels() if label.get_text()]
        assert 2 <= len(labels) <= 7
        assert all(re.fullmatch(r"[\d.,]+[kMG]?", label.get_text()) for label in labels)
        assert all(a.x1 < b.x0 for a, b in pairwise([label.get_window_extent() for label in labels]))
        boxes += [text.get_window_extent() for text in (axes.title, axes.xaxis.label, axes.yaxis.label)]
    assert not [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.overlaps(b)]
    assert all(canvas.x0 <= b.x0 and b.x1 <= canvas.x1 and canvas.y0 <= b.y0 and b.y1 <= canvas.y1 for b in boxes)


def test_families_and_models_of_one_size_are_distinguished() -> None:
    families = ("ViT", "Hybrid", "ResNet", "Mixer", "Swin")
    looks = [_style.look(family, families) for family in families]
    assert len({colour for colour, _ in looks}) == len({marker for _, marker in looks}) == 5
    assert _style.look("BiT", families) == _style.look("ResNet", families)
    models = {"ViT-mini/7": ("ViT", 2.1e5, 3.3e6), "ViT-mini/14": ("ViT", 2.2e5, 1.1e6)}
    models |= {"ResNet-mini": FEW["ResNet-small"]}
    drawing = compute.draw(study(models=models, sizes=(30_000,)))
    legend = next(legend for axes in drawing.figure.axes if (legend := axes.get_legend()))
    lines = {t.get_text().split(",")[0]: line for t, line in zip(legend.texts, legend.get_lines(), strict=True)}
    one, other = lines["ViT-mini/7"], lines["ViT-mini/14"]
    assert (one.get_color(), one.get_marker()) == (other.get_color(), other.get_marker())
    assert one.is_dashed() != other.is_dashed() and one.get_fillstyle() != other.get_fillstyle()
    many = {f"ViT-{i}/7": ("ViT", 1e5 * (i + 1), 1e6 * (i + 1)) for i in range(20)}
    labels = legend_of(compute.draw(study(models=many, sizes=(30_000,), seeds=(0,), draws=(0, 1))))
    assert "ViT (20 models)" in labels and len(labels) < 6


def test_baselines_are_drawn_and_distant_ones_written() -> None:
    drawing = compute.draw(study(models=FEW, horizons=(0, 64_000, 72_000)))
    assert set(drawing.data["kind"]) == {"trained", "raw pixels", "untrained"}
    written = [text.get_text() for axes in drawing.figure.axes for text in axes.texts]
    assert any("untrained, below:\n" in text and "ResNet" in text for text in written)


@pytest.mark.parametrize("lines", [1, 2, 9, 300])
def test_lines_drawn_apart_stay_near_their_place(lines: int) -> None:
    moved = np.log(_panels.apart([[1.0, 100.0]] * lines)) / np.log(100.0) - [0.0, 1.0]  # as shares of the axis
    assert abs(moved).max() <= 0.05 + 1e-9 and len(set(moved[:, 0].round(12))) == lines


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


def test_sizes_agree_between_legend_pointer_and_table(evidence: Evidence) -> None:
    """One convention: all parameters, in the same digits. Many models have no legend entry each: the paper's 18."""
    for given, named in ((evidence, True), (published.evidence(), False)):
        sizes = {row["series"]: short_count(row["params"]) for row in tables.models(given).rows}
        drawing = compute.draw(given)
        pointed = {str(item.lines).partition("\n")[0] for item in drawing.annotations}
        entries = {f"{model}, {size} params" for model, size in sizes.items()}
        assert len(sizes) >= 8 and (entries <= set(legend_of(drawing))) == named
        assert pointed == {f"{model} ({size} parameters)" for model, size in sizes.items()}


# -- single figures --------------------------------------------------------------------------------------------------


def test_the_frontier_is_the_best_within_each_budget(evidence: Evidence) -> None:
    drawing = frontier.draw(evidence)
    column = next(name for name in drawing.data if name.startswith("compute_"))
    for family, points in drawing.data.groupby("family"):
        points = points.sort_values(column)
        assert list(points["best"]) == list(points["accuracy"] > points["accuracy"].cummax().shift(fill_value=-1.0))
        (axes,) = drawing.figure.axes
        colour, _ = _style.look(family, ())
        line = next(x for x in axes.get_lines() if x.get_color() == colour and x.get_linewidth() > 2)
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
        assert len(beyond) and card["card"]["form"] in drawing.caption
    curve = drawing.data[~drawing.data["kind"].isin(["frontier", "run"])]
    unknown = curve["total_low"].isna()  # beyond the points of a law without a record
    assert (curve.loc[unknown, "kind"] == "extrapolated").all()
    curve = curve[~unknown]
    assert (curve["total_low"] <= curve["error"] * 1.001).all()
    assert (curve["error"] <= curve["total_high"] * 1.001).all()
    assert (curve["total_high"] >= 0.999 * curve["within_high"]).all()
    assert (curve["total_low"] <= 1.001 * curve["within_low"]).all()
    lines = [line for line in drawing.figure.axes[0].get_lines() if line.get_linestyle() != "None"]
    assert [line.is_dashed() for line in lines] == [False, True] * 3  # what is extrapolated is dashed
    with pytest.raises(NothingToDraw, match="No law"):
        laws.draw(study(horizons=(0, 8_000), seeds=(0,), sizes=(30_000,)))


def with_curves_and_groups() -> list[Record]:
    """A study with curves, and with seven tasks in three groups whose accuracy grows with their number."""
    world = World(seed=2)
    world.sizes = (30_000,)
    found, rng = world.records(), np.random.default_rng(0)
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

    return [replace(r, curve=curve, horizons=tuple(map(more, r.horizons))) if r.model.params_body else r for r in found]


def test_learning_curves_hold_every_point_of_every_seed() -> None:
    drawing = learning_curves.draw(read(with_curves_and_groups()))
    data = drawing.data
    assert set(data["series"]) == set(World().models) and data["cell"].nunique() == 16
    one = data[data["cell"] == data["cell"].iloc[0]]
    assert sorted(set(one["images_seen"])) == [100, 6_000, 7_000, 8_000, 20_000, 24_000]
    assert all(len(item.cells) == 1 for item in drawing.annotations)


def test_groups_are_plain_means_over_their_tasks() -> None:
    evidence = read(with_curves_and_groups())
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
    found = []
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
            found += [record, other]
    drawing = pretraining_data.draw(read(found))
    ticks = [label.get_text().partition("\n")[0] for label in drawing.figure.axes[0].get_xticklabels()]
    trained = drawing.data[drawing.data["kind"] == "trained"]
    assert ticks == ["stripes", "glyphs"] and set(trained["upstream"]) == {"stripes", "glyphs"}
    assert (trained["place"] == (trained["upstream"] == "glyphs")).all()
    assert legend_of(drawing).count("range of the ResNets") == 1
    for axes in titled(drawing):  # the band: from the worst to the best ResNet on each set
        (path,) = (band.get_paths()[0] for band in axes.collections if isinstance(band, PolyCollection))
        measure = next(m for m in set(trained["measure"]) if _panels.title(read(found), m, []) == axes.get_title())
        resnets = trained[(trained["family"] == "ResNet") & (trained["measure"] == measure)]
        for place, values in resnets.groupby("place")["accuracy"]:
            drawn = path.vertices[path.vertices[:, 0] == place, 1]
            assert [drawn.min(), drawn.max()] == pytest.approx([100 * values.min(), 100 * values.max()])


def test_a_sweep_shows_every_rate_the_chosen_one_and_open_ends() -> None:
    highest = swept({1e-3: 0.5, 2e-3: 0.6, 8e-3: 0.7})
    lowest = swept({1e-3: 0.70, 2e-3: 0.71, 4e-3: 0.60}, model="ViT-mini/7")  # the lowest is chosen, not the best
    inside = swept({1e-3: 0.5, 2e-3: 0.6, 4e-3: 0.5, 1.6e-2: None}, model="ResNet-mini")
    drawing = learning_rates.draw(read([*highest, *lowest, *inside]))
    data = drawing.data
    assert dict(data.loc[data["chosen"], ["model", "learning_rate"]].itertuples(index=False)) == {
        "ViT-nano/7": 8e-3,
        "ViT-mini/7": 1e-3,
        "ResNet-mini": 2e-3,
    }
    assert list(data.loc[data["diverged"] > 0, "learning_rate"]) == [1.6e-2] and data["accuracy"].isna().sum() == 1
    rings = {
        (float(line.get_xdata()[0]), round(float(line.get_ydata()[0]), 3))
        for axes in drawing.figure.axes
        for line in axes.get_lines()
        if line.get_fillstyle() == "none" and len(line.get_xdata())
    }
    chosen = data[data["chosen"]]
    assert rings == set(zip(chosen["learning_rate"], (100 * chosen["accuracy"]).round(3), strict=True))
    arrows = {(text.xy[0], np.sign(text.xyann[0])) for axes in drawing.figure.axes for text in axes.texts}
    assert arrows == {(8e-3, 1), (1e-3, -1)}
    for item in drawing.annotations:
        assert item.cells and f"at learning rate {learning_rates.plain(item.x)}" in item.lines
    with pytest.raises(NothingToDraw, match="several learning rates"):
        learning_rates.draw(read(World().records()))


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
    found = {(row.series, row.upstream, row.measure.rpartition(":")[2]): 100 * row.accuracy for row in single}
    printed = {}
    for row in table("table5"):
        for column, text in row.items():
            value = number(text)[0] if column not in ("pretrain", "dataset") else None
            if value is not None:
                name = next(key for key, title in TABLE5.items() if title == row["dataset"])
                printed[column, row["pretrain"].lower(), name] = value
    assert found == pytest.approx(printed)


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
    assert scatter and all((c.get_facecolor() == 1).all() for c in scatter if hasattr(c, "get_sizes"))


def test_published_points_lie_under_the_measured_ones() -> None:
    measured = study(sizes=(30_000,), seeds=(0,))
    plain = compute.draw(measured)
    laid = compute.draw(dataclasses.replace(measured, reference=published.figures()["compute"]))
    kinds = laid.data.groupby("kind").size()
    assert kinds["published"] == 18 and kinds["trained"] == (plain.data["kind"] == "trained").sum()
    assert {"ViT, published", "ResNet, published", "Hybrid, published"} <= set(legend_of(laid))
    assert "other tasks" in laid.caption and "Hollow" in laid.caption and "Hollow" not in plain.caption
    average = laid.figure.axes[0]
    low, high = average.get_xlim()
    assert low < 1e12 and high > 4e21
    hollow = [line for line in average.get_lines() if line.get_color() == _style.PUBLISHED_COLOUR]
    assert hollow and all(line.get_markerfacecolor() == "none" for line in hollow)
