"""The paper's own figures, drawn from its tables by the same code: every point as printed, and hollow."""

from __future__ import annotations

import dataclasses
import statistics

import pytest

from baselines.published import model_name, number, table
from baselines.published.transfer import VTAB
from bench.analysis import published
from bench.analysis.evidence import HEADLINE
from bench.core import registry
from bench.report.figures import _reference, compute
from bench.report.figures._contract import Drawing, render
from tests.analysis._study import study

FIVE = ("ImageNet", "CIFAR-10", "CIFAR-100", "Pets", "Flowers")
TABLE5 = {"imagenet": "ImageNet", "cifar-10": "CIFAR-10", "cifar-100": "CIFAR-100", "pets": "Oxford-IIIT-Pets",
          "flowers": "Oxford-Flowers-102", "imagenet-real": "ImageNet-ReaL"}  # fmt: skip


@pytest.fixture(scope="module")
def drawn() -> dict[str, Drawing]:
    return {name: registry.load("figure", name).draw(evidence) for name, evidence in published.figures().items()}


def test_figure_5_has_every_row_of_table_6(drawn: dict[str, Drawing]) -> None:
    data = drawn["compute"].data
    average = data[data["measure"] == HEADLINE]
    assert set(data["kind"]) == {"published"} and len(average) == 18
    for row in table("table6"):
        mine = average[(average["series"] == model_name(row["name"]))
                       & (average["compute_EFLOPs"].sub(float(row["exaFLOPs"])).abs() < 1e-6)]  # fmt: skip
        assert 100 * mine["accuracy"].item() == pytest.approx(statistics.mean(float(row[c]) for c in FIVE))


def test_figure_3_has_every_number_of_table_5(drawn: dict[str, Drawing]) -> None:
    data = drawn["pretraining-data"].data
    single = data[data["measure"] != HEADLINE].itertuples()
    found = {(row.model, row.upstream, row.measure.rpartition(":")[2]): 100 * row.accuracy for row in single}
    printed = {}
    for row in table("table5"):
        for column, text in row.items():
            value = number(text)[0] if column not in ("pretrain", "dataset") else None
            if value is not None:
                name = next(key for key, title in TABLE5.items() if title == row["dataset"])
                printed[column, row["pretrain"].lower(), name] = value
    assert found == pytest.approx(printed)


def test_figure_2_has_the_means_of_table_9(drawn: dict[str, Drawing]) -> None:
    data = drawn["groups"].data
    overall = sorted(100 * data.loc[data["tasks"] == 19, "accuracy"])
    assert overall == pytest.approx(sorted(float(row["Mean"]) for row in table("table9")), abs=0.1)
    assert sorted(set(data["tasks"])) == sorted([19, *map(len, VTAB.values())])


def test_published_marks_are_hollow_and_have_no_record(drawn: dict[str, Drawing]) -> None:
    for drawing in drawn.values():
        assert not any(mark.cells for mark in drawing.marks) and drawing.marks
        assert all("published" in (mark.text if isinstance(mark.text, str) else mark.text()) for mark in drawing.marks)
    scatter = [c for axes in drawn["compute"].figure.axes for c in axes.collections if c.get_offsets().size > 2]
    assert scatter and all((c.get_facecolor() == 1).all() for c in scatter if hasattr(c, "get_sizes"))


def test_reference_lays_published_points_under_the_measured_ones() -> None:
    measured = study(sizes=(30_000,), seeds=(0,))
    plain = compute.draw(measured)
    laid = compute.draw(dataclasses.replace(measured, reference=published.figures()["compute"]))
    kinds = laid.data.groupby("kind").size()
    assert kinds["published"] == 18 and kinds["trained"] == (plain.data["kind"] == "trained").sum()
    labels = [text.get_text() for text in laid.figure.axes[-1].get_legend().get_texts()]
    assert {"ViT, published", "ResNet, published", "Hybrid, published"} <= set(labels)
    assert "other tasks" in laid.caption and "Hollow" in laid.caption and "Hollow" not in plain.caption
    average = laid.figure.axes[0]
    low, high = average.get_xlim()
    assert low < 1e12 and high > 4e21
    hollow = [line for line in average.get_lines() if line.get_color() == _reference.GREY]
    assert hollow and all(line.get_markerfacecolor() == "none" for line in hollow)


def test_spots_lie_on_the_picture(drawn: dict[str, Drawing]) -> None:
    for name, drawing in drawn.items():
        saved = render(name, name, drawing)
        assert len(saved.spots) == len(drawing.marks)
        assert all(0 < spot.x < 1 and 0 < spot.y < 1 for spot in saved.spots)
