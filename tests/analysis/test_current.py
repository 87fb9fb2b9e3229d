"""Only what the study now asks for is reported, and nothing is pooled that was not made alike."""

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.analysis import evidence, lr_sweep
from bench.analysis.check import checks
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck
from bench.analysis.study_data import Records
from bench.report import tables
from bench.store.grid import WantedCells
from bench.store.prediction_bits import to_detail
from bench.study.cell import TaskSpec
from bench.study.record import Record, Score
from tests.analysis._records import World, change, map_scores
from tests.analysis._study import read, swept

MODEL = "ViT-nano/7"


def world(**changes: Any) -> list[Record]:
    """Cells of one model, one per seed."""
    made = World(seed=5)
    made.models = {MODEL: made.models[MODEL]}
    for name, value in changes.items():
        setattr(made, name, value)
    return [record for record in made.records() if record.cell.model == MODEL]


def scored(record: Record, value: float, *, revision: int, name: str, ended: str = "2030") -> Record:
    """The same cell under another revision of the probe, which gives `value` everywhere."""
    changes = {"directory": name, "environment.time_end": ended}
    made = change(record, changes | {"revisions": {**record.revisions, "task:fewshot": revision}})
    return map_scores(made, lambda _, s: replace(s, value=value) if s.task == "fewshot" else s)


def revised(record: Record, revisions: dict[str, int]) -> Record:
    return replace(record, revisions={**record.revisions, **revisions})


def on_mnist(record: Record, changed: Callable[[Score], Score]) -> Record:
    return map_scores(record, lambda _, s: changed(s) if s.data == "mnist" else s)


def study(records: list[Record], planned: tuple[str, ...] | None = None) -> Evidence:
    wanted = WantedCells(suite="s", scale="cpu", names=planned) if planned else None
    ordered = tuple(sorted(records, key=lambda record: record.directory))
    return lr_sweep.without_rejected(
        evidence.build(Records(suite="s", records=ordered, wanted=wanted), headline=("mnist",))
    )


def shown(evidence_of: Evidence, measure: str = "mnist") -> float:
    (series,) = evidence_of.series
    return evidence_of.estimates(measure)[series.last.key].value


def of_kind(evidence_of: Evidence, *kinds: str) -> list[ValidityCheck]:
    return [check for check in checks(evidence_of) if check.kind in kinds]


@pytest.mark.parametrize("names", [("cell-a", "cell-b"), ("cell-b", "cell-a")])
def test_a_newer_revision_stands_whatever_its_folder_is_called(names) -> None:
    (record,) = world(seeds=(0,))
    old, new = scored(record, 0.10, revision=1, name=names[0]), scored(record, 0.90, revision=2, name=names[1])
    kept = study([old, new])
    assert shown(kept) == pytest.approx(0.90) and kept.series[0].last.seeds == (0,)
    (check,) = of_kind(kept, "superseded")
    assert check.names == (names[0],) and ("fewshot", ("digits", "fashion-mnist", "mnist")) in check.groups
    assert of_kind(study([new]), "superseded") == [] == of_kind(kept, "mixed revisions")


def test_more_data_sets_are_no_newer_revision() -> None:
    """The older record was also judged on other sets, each of which has a revision."""
    (record,) = world(seeds=(0,))
    more = {f"data:{name}": 2 for name in ("pets", "dtd", "eurosat")}
    old = revised(scored(record, 0.10, revision=1, name="b", ended="2029"), more)
    kept = study([old, scored(record, 0.90, revision=2, name="a")])
    assert shown(kept) == pytest.approx(0.90)
    (check,) = of_kind(kept, "superseded")
    assert check.names == ("b",)


def test_a_cell_of_the_untrained_network_supersedes_no_trained_one() -> None:
    """It may be evaluated in another way, as by longer fine-tuning: it is a point of its own."""
    (trained,) = world(seeds=(0,))
    longer = (TaskSpec(task="fewshot", data="mnist", options={"steps": 300}),)
    untrained = change(trained, {"directory": "untrained", "cell.horizons": (0,), "cell.tasks": longer})
    kept = study(
        [
            replace(trained, horizons=trained.horizons[1:]),
            replace(untrained, horizons=trained.horizons[:1]),
        ]
    )
    assert not of_kind(kept, "superseded")
    assert set(kept.scores["images_seen"]) == {h.images_seen for h in trained.horizons}


def test_the_grid_asked_for_last_decides_before_age_and_revision() -> None:
    (record,) = world(seeds=(0,))
    one, other = scored(record, 0.1, revision=2, name="a", ended="2031"), scored(record, 0.9, revision=1, name="b")
    assert shown(study([one, other])) == pytest.approx(0.1)
    assert shown(study([one, other], planned=("b",))) == pytest.approx(0.9)
    assert shown(study([one, other], planned=("a",))) == pytest.approx(0.1)


def test_seeds_of_another_revision_or_with_other_options_are_no_repeats() -> None:
    first, second = world(seeds=(0, 1))
    pooled = study([scored(first, 0.2, revision=1, name="a"), scored(second, 0.8, revision=2, name="b")])
    assert shown(pooled) == pytest.approx(0.8)
    optional = [scored(first, 0.2, revision=1, name="a"), scored(second, 0.8, revision=1, name="b", ended="2031")]
    tasks = [(TaskSpec(task="fewshot", data="mnist", options=(("test_limit", limit),)),) for limit in (500, 2000)]
    optional = [change(record, {"cell.tasks": task}) for record, task in zip(optional, tasks, strict=True)]
    assert shown(study(optional)) == pytest.approx(0.8)


def test_scores_that_nobody_supersedes_stand_beside_the_new_ones() -> None:
    """A task that was run alone later, on the same model: both are shown."""
    (record,) = world(seeds=(0,))
    first = map_scores(replace(record, directory="a"), lambda _, s: s if s.data != "digits" else None)
    later = map_scores(replace(record, directory="b"), lambda _, s: s if s.data == "digits" else None)
    for records in ([first, later], [later, first]):
        kept = study(records, planned=("b",))
        assert {"mnist", "digits"} <= set(kept.measures) and kept.estimates("mnist") and kept.estimates("digits")
        assert kept.set_aside == {}


def test_models_that_different_revisions_judged_are_named() -> None:
    made = world(seeds=(0,)) + [r for r in World(seed=5).records() if r.cell.model == "ResNet-mini"]
    made[0] = revised(made[0], {"task:fewshot": 2})
    (check,) = of_kind(study(made), "mixed revisions")
    assert check.groups == (("task fewshot", ("1", "2")),)
    made[1:] = [revised(record, {"model": 2}) for record in made[1:]]  # another family: its own count
    assert of_kind(study(made), "mixed revisions") == [check]
    made[1:] = [revised(record, {"recipe": 2, "task:fewshot": 2}) for record in made[1:]]
    (check,) = of_kind(study(made), "mixed revisions")
    assert check.groups == (("recipe", ("1", "2")),)


def test_seeds_trained_on_other_images_under_the_same_name_are_not_pooled() -> None:
    first, second = world(seeds=(0, 1))
    assert study([first, second]).series[0].last.seeds == (0, 1)
    second = change(second, {"data.content_hash": "d" * 64})
    kept = study([first, second])
    assert [s.last.seeds for s in kept.series] == [(0,), (1,)]
    assert sorted(s.label for s in kept.series) == [f"{MODEL} (images cccccccc)", f"{MODEL} (images dddddddd)"]
    (check,) = of_kind(kept, "other training images")
    assert (check.names, check.count) == (("glyphs",), 30_000)
    assert check.groups == (("", ("cccccccc", "dddddddd")),)


def test_scores_of_other_test_images_are_not_pooled() -> None:
    made = world(seeds=(0, 1))
    for number, digest in enumerate(("e" * 64, "f" * 64)):
        detail = dict([to_detail(np.ones(8, dtype=bool), content_hash=digest)])
        made[number] = on_mnist(made[number], lambda s, detail=detail: replace(s, detail=detail))
    kept = study(made)
    (series,) = kept.series
    assert kept.samples(series.last, "mnist").seeds == (1,) and kept.samples(series.last, "digits").seeds == (0, 1)
    assert len(kept.set_aside) == 1


def test_rejected_rates_are_in_no_table_answer_or_curve() -> None:
    """1e-2 is the best downstream and rejected upstream; its name alone would do."""
    analysed = read(swept({1e-3: 0.60, 2e-3: 0.71, 1e-2: 0.4}))
    (series,) = analysed.series
    assert series.label == MODEL
    (kept,) = analysed.cells[series.variant]
    assert kept.endswith("-0.002")
    for chosen in (tables.longest(analysed), analysed.on_axis("compute")):
        assert [s.variant for s in chosen] == [series.variant]
    for table in tables.build(analysed):
        if table.name not in ("rates", "coverage"):
            assert len(table.rows) <= len(series.points) + 10 and "lr 0.01" not in table.csv()
    assert len(lr_sweep.sweeps(analysed)[0].tried) == 3
    assert [check.count for check in of_kind(analysed, "rejected rates")] == [2]
    assert of_kind(analysed, "recipes between families", "recipes within families") == []


def test_the_rate_that_was_asked_for_since_stands() -> None:
    made = swept({1e-3: 0.60, 2e-3: 0.71, 1e-2: 0.4})
    names = {r.cell.recipe.lr: r.directory for r in made}
    for planned, kept in (((names[1e-3],), 1e-3), (tuple(names.values()), 2e-3)):
        analysed = study(made, planned=planned)
        assert [analysed.cells[s.variant] for s in analysed.series] == [(names[kept],)]


def test_choosing_on_images_that_are_reported_on_is_said() -> None:
    made = swept({1e-3: 0.60, 2e-3: 0.71})
    assert of_kind(read(made), "chosen on test images") == []
    made = [on_mnist(record, lambda s: replace(s, data="glyphs")) for record in made]
    assert [check.names for check in of_kind(read(made), "chosen on test images")] == [("glyphs",)]


def test_sizes_of_a_set_say_that_the_choice_of_images_is_left_out() -> None:
    said = "choice of the pre-training images"
    full = read(World(seed=1).records())
    horizons = next(t for t in tables.build(full) if t.name == "horizons")
    models = next(t for t in tables.build(full) if t.name == "models")
    assert said in horizons.note and said not in models.note


def test_accuracy_without_copies_is_in_the_table_of_scores() -> None:
    (record,) = world(seeds=(0,))
    heads = next(csv.reader(io.StringIO(tables.scores_csv(study([record])))))
    assert "accuracy_without_duplicates" not in heads
    copies = {"num_duplicates": 3}
    less = on_mnist(record, lambda s: replace(s, detail=copies | {"value_without_duplicates": s.value - 0.001}))
    analysed = study([less])
    rows = list(csv.DictReader(io.StringIO(tables.scores_csv(analysed))))
    for row in rows:
        if row["measure"] == "mnist":
            assert row["num_duplicates"] == "3"
            assert float(row["accuracy_without_duplicates"]) == pytest.approx(float(row["accuracy"]) - 0.001)
        else:
            assert row["num_duplicates"] == ""
    (check,) = of_kind(analysed, "duplicates")
    assert (check.names, check.count, check.limit) == (("mnist",), 3, 2000) and check.high == pytest.approx(0.001)


def test_recipes_of_one_model_are_columns_of_their_own() -> None:
    made = swept({1e-3: 0.6}, clip=0.0) + swept({1e-3: 0.7}, clip=1.0)
    compared = next(t for t in tables.build(read(made)) if t.name == "comparison")
    assert [c.heading for c in compared.columns[2:]] == [f"{MODEL} (clip 0.0)", f"{MODEL} (clip 1.0)"]
