"""The verbs as functions and as one console script: what a command prints is what a call returns."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import pytest

import bench.api
from bench import __main__ as script
from bench import compare, fit
from bench.analysis.finding import Verdict
from bench.core.errors import EXIT_FOUND, EXIT_OK, EXIT_USAGE, UserError
from bench.execute.local import Failure
from bench.execute.prepare import begin
from bench.report.build import _jsonable
from bench.store import grid
from bench.store.study import Study
from tests.conftest import PROJECT
from tests.plan.finished import finish
from tests.plan.making import cells_of

KEPT = PROJECT / "results/reference/scaling-cpu"


def test_importing_the_package_loads_nothing(project):
    code = "import bench, sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"numpy", "pandas", "torch", "rich", "scipy"}


def test_a_plan_is_that_of_the_command(tmp_path, verb):
    finish(tmp_path / "results" / "smoke", cells_of("smoke", models=("ViT-pico/14",)))
    (tmp_path / "study.toml").write_text('suite = "smoke"\nmodels = ["R8x0.25-s2"]\ndevice = "cpu"')
    options = {"models": ["ViT-pico/14"], "results": tmp_path / "results"}
    made = bench.api.plan(tmp_path / "study.toml", **options)
    said = verb("plan", "study.toml", "--models", "ViT-pico/14", "--json")
    assert made.json() == json.loads(said.stdout) and made.count("done") == len(made.cells) > 0
    with pytest.raises(UserError, match="Did you mean 'models'"):
        bench.api.plan(modles=["ViT-pico/14"])


def test_a_study_knows_the_sets_that_its_models_are_to_be_judged_on(tmp_path):
    for named in (["digits"], ["mnist", "digits"], None):
        made = bench.api.plan(suite="smoke", models=["ViT-pico/14"], downstream=named, results=tmp_path)
        begin(made)
        kept = grid.read(made.store)
        assert kept is not None and kept.downstream == tuple(named or ())


def test_why_cells_failed_is_known_where_the_report_fails_too(tmp_path, monkeypatch):
    def full_disk(*_, **__):
        raise UserError("The disk is full.")

    def none_works(plan, *_):
        begin(plan)
        return plan, [Failure(cell=planned.name, reason="not enough memory") for planned in plan.cells]

    monkeypatch.setattr("bench.api.work_off", none_works)
    monkeypatch.setattr("bench.api.build", full_disk)
    with pytest.raises(UserError) as caught:
        bench.api.run(suite="smoke", models=["pixels"], results=tmp_path / "results")
    assert any("failed: " in note and "not enough memory" in note for note in caught.value.__notes__)


def test_tables_of_a_study_hold_what_its_records_hold():
    results = bench.api.load(KEPT)
    assert len(results.records) == len(Study(KEPT).directories())
    assert len(results.scores) == sum(len(h.scores) for r in results.records for h in r.horizons)
    assert len(results.curves) == sum(len(r.curve.losses) for r in results.records if r.curve)
    few = "measure == 'mnist' and shots == 10 and draw == 0"
    one = results.scores.query(f"model == 'ViT-pico/7' and seed == 1 and {few}")
    record = next(r for r in results.records if r.cell.model == "ViT-pico/7" and r.cell.seed == 1)
    values = {
        h.images_seen: s.value
        for h in record.horizons
        for s in h.scores
        if (s.task, s.data, s.shots, s.draw) == ("fewshot", "mnist", 10, 0)
    }
    assert dict(zip(one["images_seen"], one["value"], strict=True)) == values


def test_a_study_without_a_report_has_the_columns_of_findings(tmp_path):
    shutil.copytree(next((KEPT / "cells").glob("pixels*")), tmp_path / "mine" / "cells" / "one")
    results = bench.api.load(tmp_path / "mine")
    assert results.answers == () and results.findings.empty
    assert list(results.findings[["question", "subject", "verdict", "estimate", "low", "high", "n_seeds"]]) != []
    with pytest.raises(UserError, match="It has: none"):
        results.figure("compute")


@pytest.mark.parametrize("kept", sorted(KEPT.parent.glob("*/findings.json")), ids=lambda path: path.parent.name)
def test_findings_of_a_report_are_read_back_whole(kept, race):
    """With their evidence, whatever its kind: written again, they are the same file."""
    body = json.loads(kept.read_text())
    results = bench.api.load(kept.parent)
    assert _jsonable([dataclasses.asdict(finding) for finding in results.answers]) == body["findings"]
    assert all(isinstance(finding.verdict, Verdict) for finding in results.answers)
    assert list(results.findings["question"]) == [finding["question"] for finding in body["findings"]]


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "is damaged"), ('{"schema": 99, "findings": []}', "newer version"), ('{"schema": 1}', "older")],
)
def test_findings_that_cannot_be_read_are_no_traceback(tmp_path, text, said):
    (tmp_path / "mine" / "cells").mkdir(parents=True)
    (tmp_path / "mine" / "findings.json").write_text(text)
    with pytest.raises(UserError, match=said):
        _ = bench.api.load(tmp_path / "mine").findings


def test_a_report_is_read_back_as_findings(tmp_path):
    for cell in (KEPT / "cells").glob("*_glyphs_s0-*"):  # "presets" has no figures to draw
        shutil.copytree(cell, tmp_path / "presets" / "cells" / cell.name)
    results = bench.api.report(tmp_path / "presets")
    kept = json.loads(results.paths.findings_json.read_text())["findings"]
    assert list(results.findings["question"]) == [finding["question"] for finding in kept]
    assert len(results.answers) == len(results.findings) > 0
    assert [f.question for f in bench.api.load(tmp_path / "presets").answers] == [f.question for f in results.answers]
    with pytest.raises(UserError, match="no figure 'cat'"):
        results.figure("cat")


def test_a_fit_is_that_of_the_command(tmp_path, capsys):
    runs = bench.api.load(KEPT).scores.query("measure == 'mnist' and shots == 10 and draw == 0 and images_seen > 0")
    runs.to_csv(tmp_path / "runs.csv", index=False)
    made = bench.api.fit(
        runs,
        x="train_flops_dense",
        y="value",
        where=["family=ViT"],
        accuracy=True,
        form="power",
        draws=20,
        predict=[1e13],
    )
    words = [
        "--x",
        "train_flops_dense",
        "--y",
        "value",
        "--where",
        "family=ViT",
        "--accuracy",
        "--form",
        "power",
        "--bootstrap",
        "20",
        "--predict",
        "1e13",
    ]
    assert fit.main([str(tmp_path / "runs.csv"), *words, "--json"]) == EXIT_OK
    assert json.loads(json.dumps(made.answer)) == json.loads(capsys.readouterr().out)
    assert set(made.parameters["parameter"]) == {"b", "c"} and "x = 1e13" in str(made)
    with pytest.raises(UserError, match="Did you mean 'group'"):
        bench.api.fit(runs, x="params", y="value", gruop="family")


def test_a_comparison_is_that_of_the_command(tmp_path, capsys):
    names = ("R8x0.25-s2", "R8x0.125-s2")  # at the same budgets
    words = [*names, "--suite", "scaling-cpu", "--results", str(KEPT.parent)]
    for at in (None, "compute", "images"):
        asked = [*words, *(["--at", at] if at else [])]
        found = bench.api.compare(*names, suite="scaling-cpu", results=KEPT.parent, at=at)
        code = compare.main([*asked, "--json", "--fail-if", "different"])
        printed = json.loads(capsys.readouterr().out)
        assert printed["average"]["estimate"] == found.average.estimate and printed["verdict"] == found.verdict
        assert printed["at"] == (at or "compute") and printed["text"] in str(found)
        assert code == (EXIT_FOUND if found.verdict in ("worse", "better") else EXIT_OK)
        assert compare.main(asked) == EXIT_OK and capsys.readouterr().out.rstrip() == str(found)
        whole = found.table[found.table["row"] == "average"]
        assert whole["estimate"].item() == found.average.estimate and whole["verdict"].item() == found.average.verdict
    with pytest.raises(UserError, match="cell by cell"):
        bench.api.compare(KEPT, KEPT, at="compute")
    with pytest.raises(UserError, match="cannot be compared at 'time'"):
        bench.api.compare(*names, suite="scaling-cpu", results=KEPT.parent, at="time")


def test_commits_and_folders_are_sides_too(tmp_path, capsys):
    commit = bench.api.load(KEPT).records[0].environment.commit
    kept = ["--suite", KEPT.name, "--results", str(KEPT.parent)]
    assert compare.main([str(KEPT), commit[:9], *kept, "--fail-if", "different"]) == EXIT_OK
    assert "All scores are equal" in capsys.readouterr().out
    assert compare.main([str(KEPT), "ViT-picco/7", *kept]) == EXIT_USAGE
    assert "'ViT-pico/7'" in capsys.readouterr().err
    assert compare.main(["x", "y", "--results", str(tmp_path)]) == EXIT_USAGE


def test_a_comparison_names_damaged_records(tmp_path, capsys):
    study = tmp_path / "kept"
    for cell in sorted((KEPT / "cells").glob("vit-*"))[:3]:
        shutil.copytree(cell, study / "cells" / cell.name)
    record = sorted(study.glob("cells/*/record.json"))[0]
    record.write_text("{")
    said = f"1 record is damaged and left out: {record} (not valid JSON"
    assert compare.main([str(KEPT), str(study)]) == EXIT_OK and said in capsys.readouterr().out
    assert compare.main([str(study), str(study), "--json"]) == EXIT_OK
    captured = capsys.readouterr()
    assert said in captured.err
    (damaged,) = json.loads(captured.out)["damaged"]
    assert damaged["record"] == str(record) and damaged["reason"].startswith("not valid JSON")


def test_one_script_has_every_verb(project, capsys):
    assert script.main([]) == EXIT_OK
    listed = capsys.readouterr().out
    assert {"run", "plan", "report", "compare", "status", "data"} <= set(script.verbs())
    assert not {"worker", "api"} & set(script.verbs()) and all(f"  {name} " in listed for name in script.verbs())
    assert script.main(["export"]) == EXIT_USAGE and "vit-bench report --to" in capsys.readouterr().err
    assert script.main(["repotr"]) == EXIT_USAGE and "Did you mean 'report'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        script.main(["status", "--help"])
    environment = os.environ | {"PYTHONPATH": str(project)}
    command = [sys.executable, "-m", "bench", "--version"]
    version = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert version.stdout.strip() == bench.__version__
