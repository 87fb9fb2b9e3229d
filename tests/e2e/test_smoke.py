"""The main command, end to end, on real images: plan, training, records, tables, figures, report, findings."""

from __future__ import annotations

import json

from bench.store.records import read_record

FAMILIES = {"ViT", "Hybrid", "ResNet", "Pixels"}


def records_of(study):
    return [read_record(path) for path in sorted(study.glob("cells/*/record.json"))]


def test_the_plan_comes_first_and_the_findings_last(smoke):
    text = smoke.output
    assert text.index("To do:") < text.index("Expected:") < text.index("100% done")
    assert "report.html" in text[text.index("100% done") :]


def test_every_cell_left_a_record_with_its_costs_and_scores(smoke):
    records = records_of(smoke.study)
    assert len(records) == 7
    assert {r["model"]["family"] for r in records} == FAMILIES
    for record in records:
        assert record["status"] == "complete"
        trained = record["model"]["family"] != "Pixels"
        assert [row["images_seen"] for row in record["horizons"]] == ([0, 512, 1024] if trained else [0])
        for row in record["horizons"]:
            assert {s["data"] for s in row["scores"] if s["task"] == "fewshot"} == {"fashion-mnist", "digits"}
            assert all(0 <= s["value"] <= 1 and s["num_test"] > 0 for s in row["scores"])
        if trained:
            last = record["horizons"][-1]
            assert last["train_flops"]["dense"] == 1024 * record["model"]["train_flops_per_image"]["dense"]
            assert 0 < last["utilisation"] < 1.5
            assert last["core_days"] > 0
            # the shared trunk is counted once in what was spent, and fully in each row
            spent = sum(row["spent_images"] for row in record["horizons"])
            assert spent == record["cost"]["spent_images"] < 512 + 1024
    assert {r["env"]["commit"] for r in records} == {records[0]["env"]["commit"]}


def test_tables_figures_and_report_are_there(smoke):
    for pattern in ("tables/*.csv", "tables/*.md", "figures/*.png", "figures/*.svg", "figures/*.csv", "report.html"):
        found = list(smoke.study.glob(pattern))
        assert found and all(path.stat().st_size > 0 for path in found), pattern
    assert {path.stem for path in smoke.study.glob("figures/*.png")} >= {"compute", "data-size"}


def test_nothing_is_left_lying_about(smoke):
    names = [path.name for path in smoke.study.rglob("*")]
    assert not [name for name in names if name.endswith(".tmp") or name.startswith(".") or name == "lease.json"]
    assert "step-" not in " ".join(names)  # checkpoints go once the record stands


def test_the_same_command_again_finds_everything_done(smoke, bench):
    before = {p: p.read_bytes() for p in smoke.study.rglob("*") if p.is_file()}
    done = bench("run", "--suite", "smoke", "--results", smoke.results)
    assert done.returncode == 0, done.stderr
    assert "7 done" in done.stdout and "Calibrating" not in done.stdout
    assert {p: p.read_bytes() for p in smoke.study.rglob("*") if p.is_file()} == before


def test_the_plan_alone_writes_nothing_and_speaks_json(smoke, bench, tmp_path):
    done = bench("run", "--suite", "smoke", "--plan", "--json", "--only", "vit-*")
    plan = json.loads(done.stdout)
    assert {c["state"] for c in plan["cells"]} == {"missing"}
    assert all(c["flops"]["dense"] > 0 and c["seconds"] > 0 for c in plan["cells"])
    assert plan["expected_seconds"] > 0
    assert not (tmp_path / "results").exists()


def test_status_says_what_is_done(smoke, bench):
    done = bench("status", "--suite", "smoke", "--results", smoke.results, "--json")
    cells = json.loads(done.stdout)["smoke"]
    assert [cell["state"] for cell in cells] == ["done"] * 7
    assert "7 done" in bench("status", "--results", smoke.results).stdout


def test_a_kept_model_can_be_probed_from_the_shell(smoke, bench):
    """The weights that a study keeps give the score that its record states."""
    (weights,) = smoke.study.glob("cells/vit-pico*1000*/weights/final.safetensors")
    record = read_record(weights.parent.parent / "record.json")
    done = bench(
        "probe", "--checkpoint", weights, "--data", "digits", "--shots", "1,10",
        "--draws", "2", "--option", "test_limit=500", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    probed = {(s["metric"], s["shots"], s["draw"]): s["value"] for s in json.loads(done.stdout)}
    for score in record["horizons"][-1]["scores"]:
        if score["data"] == "digits":
            assert abs(probed[score["metric"], score["shots"], score["draw"]] - score["value"]) < 1e-9
