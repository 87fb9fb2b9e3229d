"""Reading records: damaged ones are named, newer ones refused, nothing is silently dropped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.analysis import checks, records, table
from bench.analysis.tables import scores_csv
from bench.errors import UserError
from tests.analysis._records import World, write
from tests.analysis._study import read


@pytest.fixture
def results(tmp_path: Path) -> Path:
    world = World()
    world.sizes, world.draws = (30_000,), (0, 1)
    return write([*world.records()[:4], world.diverged(), world.pixels()], tmp_path / "scaling")


def test_all_are_read_in_order(results: Path) -> None:
    found = records.load(results)
    names = [record["directory"] for record in found.records]
    assert names == sorted(names) and len(names) == 6 and found.suite == "scaling"


def test_a_damaged_record_is_named_and_left_out(results: Path) -> None:
    path = sorted(results.glob("cells/*/record.json"))[1]
    text = path.read_text()
    path.write_text(text.replace("0.31", "0.99", 1))
    found = records.load(results)
    assert len(found.records) == 5
    assert found.damaged[0].directory == path.parent.name and "digest" in found.damaged[0].reason
    assert str(results) not in found.damaged[0].reason
    path.write_text(text[: len(text) // 2])
    assert "JSON" in records.load(results).damaged[0].reason


def test_a_newer_record_is_refused(results: Path) -> None:
    path = sorted(results.glob("cells/*/record.json"))[0]
    body = json.loads(path.read_text())
    path.write_text(json.dumps(body | {"schema": 99}))
    with pytest.raises(UserError, match="newer version"):
        records.load(results)


def test_an_unfinished_cell_is_listed(results: Path) -> None:
    path = sorted(results.glob("cells/*/record.json"))[0]
    path.unlink()
    assert records.load(results).unfinished == (path.parent.name,)


def test_no_results_is_one_clear_message(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There are no results"):
        records.load(tmp_path / "nothing")


def test_tables_hold_every_horizon_and_score() -> None:
    world = World()
    all_records = world.records()
    horizons, scores = table.horizon_table(all_records), table.score_table(all_records)
    assert len(horizons) == sum(len(r["horizons"]) for r in all_records)
    assert len(scores) == sum(len(h["scores"]) for r in all_records for h in r["horizons"])
    assert horizons["train_flops_paper"].dtype == "float64"  # products of counts overflow 64-bit integers
    assert set(scores["measure"]) == {"fashion-mnist", "mnist", "digits", "upstream"}


def test_seeds_are_repeats_and_recipes_are_not() -> None:
    world = World()
    a, b = world.records()[:2]
    assert table.variant_of(a) == table.variant_of(b)
    b["cell"]["recipe"]["lr"] = 0.003
    assert table.variant_of(a) != table.variant_of(b)
    labels = set(table.horizon_table([a, b])["series"])
    assert labels == {"ViT-nano/7 (lr 0.001)", "ViT-nano/7 (lr 0.003)"}


def test_a_missing_score_is_missing_not_zero() -> None:
    world = World()
    found = world.records()
    for record in found:
        for horizon in record["horizons"]:
            for score in horizon["scores"]:
                if score["data"] == "mnist" and record["cell"]["model"] == "ViT-nano/7":
                    score["value"] = score["stderr"] = None
    evidence = read(found)
    nano = next(s for s in evidence.series if s.label == "ViT-nano/7")
    assert evidence.estimate(nano.last, "mnist") is None
    assert evidence.estimate(nano.last, "headline") is None  # never an average over fewer tasks
    assert evidence.estimate(nano.last, "fashion-mnist") is not None


def test_checks_speak_up() -> None:
    world = World()
    world.seeds, world.horizons = (0,), (0, 8_000, 16_000)
    found = [*world.records(), world.diverged()]
    found[0]["env"] = found[0]["env"] | {"commit": "f" * 40, "cpu": "Another CPU"}
    names = {check.name for check in checks.run(read(found))}
    assert {"one seed", "diverged", "mixed commits", "mixed processors", "repeated data", "narrow compute"} <= names


def test_a_clean_study_gets_no_warning_about_seeds_or_commits(evidence) -> None:
    assert not {"one seed", "mixed commits", "diverged"} & {check.name for check in checks.run(evidence)}


def test_other_metrics_are_kept_apart_from_accuracy() -> None:
    """A second metric of the same task goes to scores.csv; it is neither averaged nor drawn."""
    found = World().records()
    for record in found:
        for horizon in record["horizons"]:
            extra = [dict(s, metric="accuracy_fixed", value=0.1) for s in horizon["scores"] if s["task"] == "fewshot"]
            horizon["scores"] += extra
    evidence = read(found)
    assert evidence.measures == ("fashion-mnist", "mnist", "digits", "upstream")
    assert "mnist accuracy_fixed" in evidence.all_measures and "mnist accuracy_fixed" in scores_csv(evidence)
    assert evidence.estimate(evidence.series[0].last, "mnist").value > 0.3
