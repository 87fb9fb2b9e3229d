"""Figures 3, 4, 5 and 9 of the paper from a study at its scale: the paper's panels and units, beside its own numbers.

Records are made from the suite's own cells; their compute is counted, and every score is the same.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from baselines import published
from bench.analysis.evidence import HEADLINE, Evidence
from bench.cost import flops
from bench.report import build
from bench.report.figures.figure import Drawing
from bench.study import registry
from bench.study.cell import Cell, TaskSpec
from bench.study.record import Horizon, Operations, Record, Score
from bench.study.registry import directory_name
from bench.suites._paper import PUBLIC
from tests.analysis._records import World, write
from tools.paper_table import WHOLE

SHOWN = {"compute", "data_size", "upstream", "bit", "pooling"}
VALUE = 0.8
AT = "imagenet:384px"


@cache
def cost(model: str, options: tuple[tuple[str, object], ...]) -> flops.ModelCost:
    """Counted with the classes of JFT-300M."""
    sizes = {"image_size": 224, "channels": 3, "num_classes": 18_291}
    return flops.count(model, model_options=options, activations=False, **sizes)


def scores(spec: TaskSpec) -> list[Score]:
    tuned = spec.task == "finetune"
    size = spec.kwargs.get("nominal_size", spec.kwargs.get("image_size"))
    name = f"finetune@{size}px" if tuned else spec.task
    about = {"task": name, "data": spec.data, "metric": "accuracy", "value": VALUE, "num_test": 10_000}
    about |= {"stderr": 0.004, "num_classes": 10, "chance": 0.1, "shots": None if tuned else 5}
    return [Score(**about, draw=draw) for draw in range(3)]


def record(cell: Cell) -> Record:
    counted = cost(cell.model, cell.model_options)
    world = World()
    world.models = {cell.model: (registry.family_label(cell.model), counted.params, counted.forward_macs["paper"])}
    images = {"imagenet": 1_281_167, "imagenet-21k": 14_000_000, "jft-300m": 303_000_000}[cell.data]
    horizons = [
        Horizon(
            images_seen=seen,
            unique_images=min(seen, cell.num_images or images),
            epochs=seen / images,
            train_flops=Operations(**{key: 6 * macs * seen for key, macs in counted.forward_macs.items()}),
            scores=tuple(one for spec in cell.tasks for one in scores(spec)),
        )
        for seen in cell.horizons
    ]
    made = world.made(cell.model, cell.num_images or images, 0, cell.axes, horizons)
    facts = replace(made.data, name=cell.data, kind="photographs", num_images=cell.num_images or images)
    model = replace(made.model, forward_macs=Operations(**counted.forward_macs))
    return replace(made, directory=directory_name(cell), cell=cell, data=facts, model=model)


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Evidence]:
    """Each figure's evidence, as a report of the suite with --reference paper has it."""
    cells = [cell for cell in WHOLE.cells() if SHOWN & {*cell.axes}]
    folder: Path = write([record(cell) for cell in cells], tmp_path_factory.mktemp("whole") / "whole-paper")
    return build.measured(folder, "whole-paper", "paper")[1]


def drawn(figures: dict[str, Evidence], name: str) -> Drawing:
    return registry.load("figure", name).draw(figures[name])


def test_figure_5_has_average_5_and_each_set_against_exaflops_beside_table_6(figures: dict[str, Evidence]) -> None:
    table = drawn(figures, "compute").data
    printed = published.table("table6")
    theirs = table[(table["kind"] == "published") & (table["measure"] == HEADLINE)]
    five = ("ImageNet", "CIFAR-10", "CIFAR-100", "Pets", "Flowers")
    expected = sorted((float(row["exaFLOPs"]), sum(float(row[name]) for name in five) / 500) for row in printed)
    assert [*zip(theirs["compute_EFLOPs"], theirs["accuracy"], strict=True)] != []
    assert sorted(zip(theirs["compute_EFLOPs"], theirs["accuracy"], strict=True)) == [
        pytest.approx(pair) for pair in expected
    ]
    ours = table[(table["kind"] == "trained") & (table["measure"] == HEADLINE)]
    for row in printed:  # the paper's own contradictions apart, computes differ by less than the width of a point
        mine = ours[ours["series"].str.startswith(published.model_name(row["name"]))]
        nearest = (mine["compute_EFLOPs"] / float(row["exaFLOPs"]) - 1).abs().min()
        assert nearest < 0.035, row["name"]
    on_imagenet = table[(table["kind"] == "published") & (table["measure"] == f"finetune@384px:{AT}")]
    assert sorted(on_imagenet["accuracy"]) == pytest.approx(sorted(float(row["ImageNet"]) / 100 for row in printed))


def test_figure_3_has_imagenet_by_the_set_that_was_trained_on_beside_table_5(figures: dict[str, Evidence]) -> None:
    drawing = drawn(figures, "pretraining-data")
    table = drawing.data[drawing.data["measure"] == f"finetune@384px:{AT}"]
    theirs = table[table["kind"] == "published"]
    sets = ("ImageNet", "ImageNet-21k", "JFT-300M")
    rows = {row["pretrain"]: row for row in published.table("table5") if row["dataset"] == "ImageNet"}
    expected = {
        (model, place): float(rows[name][model]) / 100
        for place, name in enumerate(sets)
        for model in rows[name]
        if model.startswith("ViT") and rows[name][model]
    }
    assert {(row.series, int(row.place)): row.accuracy for row in theirs.itertuples()} == pytest.approx(expected)
    ours = table[table["kind"] == "trained"]
    assert {"R50x1", "R152x4"} <= {name.partition(" on ")[0] for name in ours["series"]}, "the ends of BiT's band"
    assert drawing.by_task is not None
    titles = [axes.get_title(loc="left") for axes in drawing.by_task.axes]
    assert len(titles) >= len(PUBLIC) and any("imagenet" in title.lower() for title in titles)


def test_figure_4_has_5_shot_imagenet_against_the_images_of_jft(figures: dict[str, Evidence]) -> None:
    table = drawn(figures, "data-size").data
    shown = table[(table["measure"] == "imagenet:224px") & (table["kind"] == "trained")]
    assert {name.partition(" on ")[0] for name in shown["series"]} == {
        "ViT-b/32",
        "ViT-B/32",
        "ViT-L/32",
        "ViT-L/16",
        "R50x1",
        "R152x2",
    }
    assert {*shown["distinct_images"]} == {9e6, 30e6, 90e6, 303e6}
    assert not (table["kind"] == "published").any(), "the paper prints none"


def test_figure_9_has_5_shot_imagenet_over_seven_epochs(figures: dict[str, Evidence]) -> None:
    table = drawn(figures, "ablation-pooling").data
    shown = table[table["measure"] == "imagenet:224px"]
    assert shown["curve"].nunique() == 4
    assert shown.groupby("curve")["epochs"].apply(list).map(lambda epochs: epochs == [1, 2, 3, 4, 5, 6, 7]).all()
