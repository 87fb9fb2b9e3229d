"""The examples of bench/examples/extensions, a folder of plug-ins: one file of each kind, run as they stand there."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from bench.plan.study_cells import StudyCells
from bench.store.records import read_record
from bench.study import registry
from bench.study.cell import Cell
from tests.conftest import PROJECT, stay_on_one_core

pytestmark = pytest.mark.gate

FOLDER = PROJECT / "bench/examples/extensions"
OF_THE_PROJECT = ("passes", "quoted")  # a pass is no extension; a quoted source is one of bench/published/


def plugins() -> dict[str, str]:
    """Path -> text of every example that a folder of plug-ins may have."""
    paths = (path for path in FOLDER.glob("*/*.py") if path.parent.name not in OF_THE_PROJECT)
    return {path.relative_to(FOLDER).as_posix(): path.read_text() for path in paths}


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A folder of plug-ins, one of each kind; nothing of the project is touched."""
    folder = tmp_path_factory.mktemp("extended") / "mine"
    for name, text in plugins().items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    assert {path.name for path in folder.iterdir()} == set(registry.SUBFOLDERS.values()) - {*OF_THE_PROJECT}
    return folder


def test_every_example_has_its_place_in_contributing():
    page = (PROJECT / "CONTRIBUTING.md").read_text()
    linked = set(re.findall(r"\(bench/examples/extensions/(\S+?\.py)\)", page))
    assert linked == {path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*.py")}


def test_the_example_of_a_pass_leaves_cells_out():
    module: dict[str, Any] = {}
    exec((FOLDER / "passes/short.py").read_text(), module)
    cells = tuple(Cell(model="ViT-pico/14", data="glyphs", num_images=number) for number in (300, 1000, 3000))
    kept = module["apply"](StudyCells(cells=cells), None)
    assert [cell.num_images for cell in kept.cells] == [300, 1000] and len(kept.notes) == 1


IN_ONE_PROCESS = """
import contextlib, io, json, sys
from bench.__main__ import main
answers = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    answers.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(answers))
"""


def test_they_are_run_checked_planned_suggested_and_counted(extended, bench, tmp_path):
    done = bench("run", "--suite", "perceptrons", "--plugins", extended, one_core=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "do perceptrons see stripes?" in done.stdout
    records = [read_record(p) for p in (tmp_path / "results").glob("perceptrons/cells/*/record.json")]
    assert {r.model.family for r in records} == {"MLP"}
    for record in records:
        before, after = ({s.task: s.value for s in row.scores} for row in record.horizons)
        assert after["upstream"] > 0.6 > before["upstream"]
        assert after["centroid"] > 0.3
        assert record.model.forward_macs.dense == record.model.num_features * (784 + 4)
    assert (tmp_path / "results/perceptrons/figures/widths.png").stat().st_size > 1000
    findings = json.loads((tmp_path / "results/perceptrons/findings.json").read_text())["findings"]
    (wider,) = [finding for finding in findings if finding["question"] == "wider is better"]
    assert (
        wider["reasons"][-1] == "two widths"
        and wider["evidence"][0]["model"] == "MLP-32"
        and wider["low"] < wider["estimate"] < wider["high"]
    )
    assert {f["question"] for f in findings} == {
        "wider is better",
        "beats untrained",
    }
    assert "Two widths show no trend." in (tmp_path / "results/perceptrons/report.html").read_text()
    assert len((tmp_path / "results/perceptrons/tables/widths.csv").read_text().splitlines()) == 3
    plan = ("plan", "--suite", "smoke", "--models", "MLP-16", "--data")
    calls = [
        ("check", "figure:widths", "--plugins", str(extended), "--study", "results/perceptrons"),
        ("check", "question:wider-is-better", "--plugins", str(extended), "--study", "results/perceptrons"),
        ("check", "job:count", "--plugins", str(extended)),
        ("check", "optimizer:signs", "--plugins", str(extended)),
        ("check", "loss:brier", "--plugins", str(extended)),
        ("check", "augmentation:negative", "--plugins", str(extended)),
        ("check", "schedule:square", "--plugins", str(extended)),
        (*plan, "stripes", "--tasks", "fewshot,centroid", "--json"),
        (*plan, "stripes@1000"),
        ("run", "--suite", "smoke", "--models", "MPL-32"),
        ("flops", "MLP-32", "--image-size", "28", "--classes", "10", "--json"),
        ("greet", "--name", "Ada"),
    ]
    variables = os.environ | {"PYTHONPATH": str(PROJECT), "VIT_BENCH_PLUGINS": str(extended)}
    done = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS, json.dumps(calls)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=variables,
        preexec_fn=stay_on_one_core,
    )
    assert done.returncode == 0, done.stderr
    checked, asked, counting, *parts, planned, too_many, misspelt, counted, greeted = json.loads(done.stdout)
    assert checked[0] == 0 and "the same every time" in checked[1] and "--  " not in checked[1]
    assert asked[0] == 0 and "1 finding" in asked[1], asked
    assert counting[0] == 0 and "FAIL" not in counting[1], counting
    assert len(parts) == 4 and all(code == 0 for code, _, _ in parts), parts
    assert planned[0] == 0, planned[2]
    plan = json.loads(planned[1])  # stripes has 400 images: the suite's 1,000 are all of them
    assert {cell["cell"]["num_images"] for cell in plan["cells"]} == {100, None}
    cut, unswept = plan["notes"]
    assert cut == "stripes has 400 training images; all are used instead of the suite's 1,000."
    assert "Learning rate not swept" in unswept and "MLP-16" in unswept
    assert too_many[0] == 2 and "stripes has only 400 training images here" in too_many[2]
    assert misspelt[0] == 2 and "MLP-32" in misspelt[2]
    assert counted[0] == 0 and json.loads(counted[1])
    assert greeted == [0, "Hello, Ada.\n", ""]


def test_the_newcomers_work_in_the_suites_there_were(extended, bench, tmp_path):
    done = bench(
        "run",
        "--suite",
        "smoke",
        "--models",
        "MLP-16",
        "--tasks",
        "fewshot,centroid",
        "--only",
        "*1000*",
        "--set",
        "lr=1e-3",
        "--set",
        "optimizer=signs",
        "--set",
        "loss=brier",
        "--set",
        "augmentation=negative",
        "--set",
        "schedule=square",
        VIT_BENCH_PLUGINS=str(extended),
        one_core=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = [read_record(p) for p in (tmp_path / "results").glob("smoke/cells/mlp*1000*/record.json")]
    assert {(s.task, s.data) for s in record.horizons[-1].scores} == {
        ("upstream", "fashion-mnist"),
        ("fewshot", "fashion-mnist"),
        ("fewshot", "digits"),
        ("centroid", "fashion-mnist"),
        ("centroid", "digits"),
    }
    report = (tmp_path / "results/smoke/report.html").read_text()
    assert "MLP-16" in report
