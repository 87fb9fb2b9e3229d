"""Reading records: damaged ones are named, newer ones refused, nothing is silently dropped."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
import pytest

from bench.analysis import processes, records, table
from bench.analysis import validity as checks
from bench.core.errors import UserError
from bench.report.tables import scores_csv
from bench.store.records import DamagedRecord, read_record, write_record
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


def test_many_processes_read_what_one_does(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = sorted(results.glob("cells/*/record.json"))
    paths[0].unlink()
    paths[3].write_text("{")
    alone = records.load(results)
    monkeypatch.setattr(records, "CHUNK", 1)
    monkeypatch.setattr(processes, "MANY_CHUNKS", 1)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    together = records.load(results)
    assert (together.records, together.damaged, together.unfinished) == (
        alone.records, alone.damaged, alone.unfinished)  # fmt: skip
    assert len(together.records) == 4 and together.damaged and together.unfinished
    assert alone.scores is not None and together.scores is not None
    pd.testing.assert_frame_equal(together.scores, alone.scores)
    body = json.loads(paths[1].read_text())
    paths[1].write_text(json.dumps(body | {"schema": 99}))
    with pytest.raises(UserError, match="newer version"):
        records.load(results)


def test_scores_move_to_the_table_and_nothing_is_lost(results: Path) -> None:
    found = records.load(results)
    raw = [json.loads(path.read_text()) for path in sorted(results.glob("cells/*/record.json"))]
    assert not any("scores" in horizon for record in found.records for horizon in record["horizons"])
    assert found.scores is not None
    pd.testing.assert_frame_equal(found.scores, table.score_table(raw))


def test_a_score_from_before_a_number_was_kept_lacks_that_number_alone(results: Path) -> None:
    raw = [json.loads(path.read_text()) for path in sorted(results.glob("cells/*/record.json"))]
    whole = table.score_table(raw)
    for score in raw[1]["horizons"][-1]["scores"][:3]:
        del score["chance"]
    found = table.score_table(raw)
    assert found["chance"].isna().sum() == 3
    pd.testing.assert_frame_equal(found.drop(columns="chance"), whole.drop(columns="chance"))


@pytest.mark.parametrize("change", [lambda text: text.replace('"seed":0', '"seed":1', 1),
    lambda text: text.replace("2030", "2031", 1), lambda text: text.replace('"digest":"', '"digest":"0', 1),
    lambda text: text.replace('Example CPU', 'Example \\"CPU', 1)])  # fmt: skip
def test_any_change_is_seen_by_the_digest_of_the_text(results: Path, change) -> None:
    path = sorted(results.glob("cells/*/record.json"))[1]
    text = path.read_text()
    assert change(text) != text
    path.write_text(change(text))
    with pytest.raises(DamagedRecord):
        read_record(path)
    path.write_text(json.dumps(json.loads(text)))  # the same record, written otherwise, is still whole
    assert read_record(path) == json.loads(text)


def test_a_record_with_quotation_marks_is_whole(results: Path, tmp_path: Path) -> None:
    body = json.loads(sorted(results.glob("cells/*/record.json"))[0].read_text())
    body["reason"] = 'it said "a": b, "digest": "x"\nand went'
    write_record(tmp_path / "record.json", body)
    assert read_record(tmp_path / "record.json")["reason"] == body["reason"]
