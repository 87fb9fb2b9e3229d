"""The main command, end to end, on real images: plan, training, records, tables, figures, report, findings.

The one finished run of the smoke suite is shared by all tests (tests/conftest.py).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bench import SCHEMA_VERSION
from bench.plan import estimate
from bench.plan.cost_model import NOTHING_MEASURED
from bench.store import faults, planned
from bench.store.records import read_record
from tests.conftest import PROJECT
from tests.e2e.test_bad_input import refused
from tests.reliability.storms import timeless, until

# -- the main command, end to end, on real images: plan, training, records, tables, figures, report, findings ----------


FAMILIES = {"ViT", "Hybrid", "ResNet", "Pixels"}


def records_of(study):
    return [read_record(path) for path in sorted(study.glob("cells/*/record.json"))]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_plan_comes_first_and_the_findings_last(smoke):
    text = smoke.output
    assert text.index("To do:") < text.index("Expected:") < text.index("100% done")
    assert "report.html" in text[text.index("100% done") :]


def test_every_cell_left_a_record_with_its_costs_and_scores(smoke):
    records = records_of(smoke.study)
    assert len(records) == 7
    assert {r.model.family for r in records} == FAMILIES
    for record in records:
        assert record.status == "complete"
        trained = record.model.family != "Pixels"
        assert [row.images_seen for row in record.horizons] == ([0, 512, 1024] if trained else [0])
        for row in record.horizons:
            assert {s.data for s in row.scores if s.task == "fewshot"} == {"fashion-mnist", "digits"}
            assert all(0 <= s.value <= 1 and s.num_test > 0 for s in row.scores)
        if trained:
            last = record.horizons[-1]
            assert last.train_flops == record.model.train_flops_per_image.times(1024)
            assert 0 < last.utilisation < 1.5
            assert last.core_days > 0
            # the shared trunk is counted once in what was spent, and fully in each row
            spent = sum(row.spent_images for row in record.horizons)
            assert spent == record.cost.spent_images < 512 + 1024
    assert {r.environment.commit for r in records} == {records[0].environment.commit}


def test_tables_figures_and_report_are_there(smoke):
    folders = ("tables/*.csv", "tables/*.md", "tables/*.tex", "figures/*.png", "figures/*.svg", "figures/*.csv")
    for pattern in (*folders, "report.html", "report.md", "findings.json", "fits.json"):
        files = list(smoke.study.glob(pattern))
        assert files and all(path.stat().st_size > 0 for path in files), pattern
    assert {path.stem for path in smoke.study.glob("figures/*.png")} >= {"compute", "data-size"}


def test_nothing_is_left_lying_about(smoke):
    names = [path.name for path in smoke.study.rglob("*")]
    assert not [name for name in names if name.endswith(".tmp") or name.startswith(".") or name == "lease.json"]
    assert "step-" not in " ".join(names)  # checkpoints go once the record stands


def test_the_same_command_again_finds_everything_done(smoke, verb, tmp_path):
    shutil.copytree(smoke.results, tmp_path / "results")
    before = contents(tmp_path / "results")
    done = verb("run", "--suite", "smoke")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "results") == before


def test_the_plan_alone_writes_nothing_and_speaks_json(smoke, verb, tmp_path):
    done = verb("run", "--suite", "smoke", "--plan", "--json", "--models", "ViT-pico/14")
    plan = json.loads(done.stdout)
    assert {c["state"] for c in plan["cells"]} == {"missing"}
    assert all(c["seconds"] > 0 for c in plan["cells"])
    assert all(c["flops"]["dense"] > 0 for c in plan["cells"] if c["cell"]["model"] != "pixels")
    assert plan["expected_seconds"] > 0
    assert not (tmp_path / "results").exists()


def test_status_says_what_is_done(smoke, verb):
    done = verb("status", "--suite", "smoke", "--results", smoke.results, "--json")
    cells = json.loads(done.stdout)["smoke"]
    assert [cell["state"] for cell in cells] == ["done"] * 7
    assert all(cell["planned_seconds"] > 0 and cell["seconds"] > 0 for cell in cells)


def test_what_was_planned_is_kept_and_compared(smoke):
    plans, records = planned.read(smoke.study), records_of(smoke.study)
    assert plans.cells.keys() == {record.directory for record in records}
    (run,) = plans.runs
    assert run.cells == 7 and run.planned > 0
    assert run.took > max(record.cost.seconds.total for record in records)
    assert all(0 < record.cost.processor_seconds < run.took for record in records)
    table = pd.read_csv(smoke.study / "tables" / "planned.csv")
    assert table["cells"].sum() == 7
    took = sum(record.cost.seconds.total for record in records)
    assert (table["took"] * table["cells"]).sum() == pytest.approx(took)
    assert "took" in smoke.output[smoke.output.index("100% done") :]


@pytest.mark.gate
def test_a_kept_model_can_be_probed_from_the_shell(smoke, bench):
    """The weights that a study keeps give the score that its record states, on any number of threads."""
    (weights,) = smoke.study.glob("cells/vit-pico*1000*/weights/final.safetensors")
    record = read_record(weights.parent.parent / "record.json")
    done = bench(
        "probe",
        "--checkpoint",
        weights,
        "--data",
        "digits",
        "--shots",
        "1,10",
        "--draws",
        "2",
        "--option",
        "test_limit=500",
        "--json",
        OMP_NUM_THREADS="2",
    )
    assert done.returncode == 0, done.stderr
    probed = {(s["metric"], s["shots"], s["draw"]): s["value"] for s in json.loads(done.stdout)}
    for score in record.horizons[-1].scores:
        if score.data == "digits":
            assert abs(probed[score.metric, score.shots, score.draw] - score.value) < 1e-9


def test_a_record_from_a_newer_version(smoke, verb, tmp_path):
    shutil.copytree(smoke.results, tmp_path / "results")
    record = next((tmp_path / "results").glob("smoke/cells/vit*/record.json"))
    record.write_text(json.dumps(json.loads(record.read_text()) | {"schema": SCHEMA_VERSION + 1}))
    refused(verb("run", "--suite", "smoke"), "newer version", "record.json")
    refused(verb("report", "--suite", "smoke"), "newer version", "record.json")


@pytest.mark.gate
def test_a_damaged_record_is_repeated_and_kept(smoke, verb, tmp_path):
    shutil.copytree(smoke.results, tmp_path / "results")
    record = next((tmp_path / "results").glob("smoke/cells/pixels*/record.json"))
    whole = record.read_bytes()
    record.write_bytes(whole[: len(whole) // 2])
    states = [cell["state"] for cell in json.loads(verb("status", "--json").stdout)["smoke"]]
    assert sorted(states) == ["damaged", *["done"] * 6]
    verb("report", "--suite", "smoke")
    assert record.parent.name in (tmp_path / "results/smoke/report.html").read_text()  # not silently left out
    done = verb("run", "--suite", "smoke")
    assert done.returncode == 0, done.stderr
    assert "is damaged" in done.stdout
    assert list(record.parent.glob("record.damaged-*.json"))
    scores = [json.loads(text)["horizons"][0]["scores"] for text in (whole, record.read_bytes())]
    assert scores[0] == scores[1]


def tree(process: int) -> list[int]:
    """A process and all its descendants."""
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True).stdout
    return [process] + [p for child in children.split() for p in tree(int(child))]


def stay_on_two_cores() -> None:
    """So that workers have one thread each, as that of the finished run has, on any machine."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


@pytest.mark.gate
def test_sigkill_of_the_main_command(tmp_path, smoke):
    """In the smoke suite: first of all its processes at once, then of the one that the user sees. Workers stop
    themselves after two records, and after one: some cells are left, however late a kill is."""
    results = tmp_path / "results"
    command = [sys.executable, "-m", "bench.run", "--suite", "smoke", "--workers", "2", "--results", str(results)]
    start: dict[str, Any] = {"env": os.environ | {"PYTHONPATH": str(PROJECT)}, "preexec_fn": stay_on_two_cores}
    finished: dict[Path, bytes] = {}
    for kill_workers in (True, False):
        before, env = (
            len(finished),
            start["env"] | {faults.VARIABLE: f"record-after-replace:{1 + kill_workers}:SIGSTOP"},
        )
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **(start | {"env": env})
        )
        until(lambda before=before: len(list(results.glob("smoke/cells/*/record.json"))) >= before + 2)
        for target in tree(process.pid):
            os.kill(target, signal.SIGKILL if kill_workers or target == process.pid else signal.SIGCONT)
        process.wait()
        assert all(path.read_bytes() == content for path, content in finished.items())  # not repeated
        finished = {p: p.read_bytes() for p in results.glob("smoke/cells/*/record.json")}
        assert before + 2 <= len(finished) < 7
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, **start)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(path.read_bytes() == content for path, content in finished.items())  # not repeated
    for path in smoke.study.glob("cells/*/record.json"):
        other = results / "smoke" / path.relative_to(smoke.study)
        assert timeless(read_record(other)) == timeless(read_record(path))
    tables = [*smoke.study.glob("figures/*.csv"), *smoke.study.glob("tables/*.csv")]
    assert {path.parent.name for path in tables} == {"figures", "tables"}
    for path in tables:
        if path.stem != "planned":  # times alone
            assert strip_times(results / "smoke" / path.relative_to(smoke.study)) == strip_times(path), path.name


def strip_times(path: Path) -> str:
    table = pd.read_csv(path)
    timed = [
        c for c in table.columns if any(w in c.lower() for w in ("second", "/s", "utilis", "core", "memory", "peak"))
    ]
    if "task" in table.columns:  # the comparison has tasks in rows, and core-days beneath
        table = table[table["task"] != "core-days"]
    return table.drop(columns=timed).to_csv()


# -- `--profile` on a training run leaves a trace in which every part of a step is labelled, and the report links it ---


@pytest.mark.gate
def test_a_training_run_can_be_profiled(verb, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "calibrate", lambda *_, **__: NOTHING_MEASURED)  # other processes
    monkeypatch.setattr(estimate, "cell_cost", lambda *_, **__: estimate.CellCost(seconds=1.0))
    done = verb("run", "--suite", "smoke", "--models", "ViT-pico/14", "--only", "vit*-100_s0", "--profile")
    assert done.returncode == 0, done.stdout + done.stderr
    (trace,) = (tmp_path / "results/smoke/cells").glob("*/attempts/001/trace/*.pt.trace.json")
    names = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"data", "forward", "backward", "optimizer", "evaluate"} <= names
    for page in ("report.html", "report.md"):
        assert (
            trace.relative_to(tmp_path / "results/smoke").as_posix() in (tmp_path / "results/smoke" / page).read_text()
        )
