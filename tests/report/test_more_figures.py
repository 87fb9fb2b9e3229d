"""Learning curves, groups of tasks and upstream sets: what is drawn is what the records hold."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

from bench.analysis.curves import Curve, curve_of
from bench.report.figures import groups, learning_curves, pretraining_data
from bench.report.figures._contract import NothingToDraw
from tests.analysis._records import World
from tests.analysis._study import read, study

KINDS = {"natural": 3, "specialised": 2, "structured": 2}


def points(*parts: tuple[int | None, list[int]]) -> list[dict[str, Any]]:
    return [{"images": x, "loss": 3 - math.log10(x) / 2, "horizon": owner} for owner, places in parts for x in places]


def records() -> list[dict[str, Any]]:
    """A study with curves, and with seven tasks in three groups whose accuracy is their number in the list."""
    world = World(seed=2)
    world.sizes = (30_000,)
    found = world.records()
    rng = np.random.default_rng(0)
    for record in found:
        if not record["model"]["params_body"]:
            continue
        record["curve"] = points((None, [100, 6_000]), (8_000, [7_000, 8_000]), (None, [20_000]), (24_000, [24_000]))
        for horizon in record["horizons"]:
            names = [(group, f"{group}-{n}") for group, size in KINDS.items() for n in range(size)]
            for number, (group, name) in enumerate(names if horizon["images_seen"] else []):
                value = 0.3 + 0.1 * number + rng.normal(0, 0.01)
                horizon["scores"].append({
                    "task": "vtab", "data": name, "metric": "accuracy", "value": value,
                    "stderr": 0.01, "num_test": 500, "num_classes": 4, "chance": 0.25, "shots": None, "draw": None,
                    "detail": {"group": group}})  # fmt: skip
    return found


def test_a_cool_down_starts_where_its_trunk_was_left() -> None:
    stretches = ((None, [100, 6_000]), (8_000, [7_000, 8_000]), (None, [20_000]), (24_000, [24_000]))
    curve = curve_of({"curve": points(*stretches)})
    assert isinstance(curve, Curve) and curve_of({"curve": curve}) is curve and curve_of({}) is None
    parts = curve.parts()
    assert [(owner, images) for owner, images, _ in parts] == [
        (None, [100, 6_000]), (8_000, [6_000, 7_000, 8_000]), (None, [6_000, 20_000]), (24_000, [20_000, 24_000])
    ]  # fmt: skip


def test_learning_curves_hold_every_point_of_every_seed() -> None:
    drawing = learning_curves.draw(read(records()))
    data = drawing.data
    assert set(data["series"]) == set(World().models) and data["cell"].nunique() == 16
    one = data[data["cell"] == data["cell"].iloc[0]]
    assert sorted(set(one["images_seen"])) == [100, 6_000, 7_000, 8_000, 20_000, 24_000]
    assert all(len(mark.cells) == 1 for mark in drawing.marks)
    with pytest.raises(NothingToDraw, match="no learning curves"):
        learning_curves.draw(study(sizes=(30_000,), seeds=(0,)))


def test_groups_are_plain_means_over_their_tasks() -> None:
    evidence = read(records())
    data = groups.draw(evidence).data
    assert list(data.groupby("group", sort=False)["tasks"].first()) == [7, 3, 2, 2]
    row = data.iloc[0]
    point = next(s.last for s in evidence.series if s.label == row["series"])
    single = [evidence.estimate(point, f"vtab:{g}-{n}") for g, size in KINDS.items() for n in range(size)]
    assert row["accuracy"] == pytest.approx(np.mean([e.value for e in single if e]))
    assert (data["low"] < data["accuracy"]).all() and set(data["seeds"]) == {2}
    wide = max(e.half for e in single if e)
    assert row["high"] - row["accuracy"] < wide  # a mean over tasks is surer than a task


def test_upstream_sets_stand_beside_each_other_small_first() -> None:
    with pytest.raises(NothingToDraw):
        pretraining_data.draw(study(sizes=(30_000,), seeds=(0,)))
    found = []
    for record in World(seed=1).records():
        if record["cell"]["num_images"] == 30_000:
            other = copy.deepcopy(record)
            other["cell"]["data"], other["data"]["name"] = "stripes", "stripes"
            other["cell"]["num_images"] = other["data"]["num_images"] = 900
            other["directory"] = record["directory"].replace("glyphs-30000", "stripes-900")
            found += [record, other]
    drawing = pretraining_data.draw(read(found))
    ticks = [label.get_text().partition("\n")[0] for label in drawing.figure.axes[0].get_xticklabels()]
    assert ticks == ["stripes", "glyphs"] and set(drawing.data["upstream"]) == {"stripes", "glyphs"}
    legend = [text.get_text() for text in drawing.figure.axes[-1].get_legend().get_texts()]
    assert "range of the ResNets" in legend and len(legend) == 9
