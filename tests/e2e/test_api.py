"""The verbs as functions and as one console script: what a command prints is what a call returns."""

import copy
import dataclasses
import html
import inspect
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import bench.api
from bench import __main__ as script
from bench.analysis.finding import Verdict
from bench.commands import compare, fit
from bench.commands.status import CellStatus
from bench.core.errors import EXIT_FOUND, EXIT_OK, EXIT_USAGE, UserError
from bench.execute.local import Failure
from bench.execute.prepare import begin
from bench.published.public_models import COLUMNS
from bench.report import compare_figure
from bench.report.build import DIGITS
from bench.report.fits import rounded
from bench.store import grid
from bench.store.study import Study
from bench.study import registry
from bench.study.option import Kind
from bench.study.options import RUN
from tests.conftest import PROJECT
from tests.plan.finished import finish
from tests.plan.making import cells_of

KEPT = PROJECT / "results/reference/scaling-cpu"
NAMES = "ViT-femto/7", "ResNet-8-s4"  # at the same budgets
X = np.geomspace(1e3, 1e6, 9)


@pytest.mark.gate
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
    assert repr(made).splitlines() == verb("plan", "study.toml", "--models", "ViT-pico/14").stdout.splitlines()
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

    def none_works(plan, *_, **__):
        begin(plan)
        return [Failure(cell=planned.name, reason="not enough memory") for planned in plan.cells]

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
    one = results.scores.query(f"model == 'ViT-pico-2/7' and seed == 1 and {few}")
    record = next(r for r in results.records if r.cell.model == "ViT-pico-2/7" and r.cell.seed == 1)
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
    assert rounded([dataclasses.asdict(finding) for finding in results.answers], DIGITS) == body["findings"]
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


def test_a_report_is_read_back_as_findings(tmp_path, monkeypatch):
    for cell in (KEPT / "cells").glob("*_fashion-mnist-part_s0-*"):  # "presets" has no figures to draw
        shutil.copytree(cell, tmp_path / "results" / "presets" / "cells" / cell.name)
    monkeypatch.chdir(tmp_path)
    results = bench.api.report("presets")
    kept = json.loads(results.paths.findings_json.read_text())["findings"]
    assert list(results.findings["question"]) == [finding["question"] for finding in kept]
    assert len(results.answers) == len(results.findings) > 0
    for named in ("presets", tmp_path / "results/presets"):
        assert [f.question for f in bench.api.load(named).answers] == [f.question for f in results.answers]
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
    old = PROJECT / "tests/records/scaling", ("R8x0.25-s2", "R8x0.125-s2")  # at the same numbers of images
    for at, (kept, names) in ((None, (KEPT, NAMES)), ("compute", (KEPT, NAMES)), ("images", old)):
        words = [*names, "--suite", kept.name, "--results", str(kept.parent)]
        asked = [*words, *(["--at", at] if at else [])]
        compared = bench.api.compare(*names, suite=kept.name, results=kept.parent, at=at)
        code = compare.main([*asked, "--json", "--fail-if", "different"])
        printed = json.loads(capsys.readouterr().out)
        assert printed["average"]["estimate"] == compared.average.estimate and printed["verdict"] == compared.verdict
        assert printed["at"] == (at or "compute") and printed["text"] in str(compared)
        assert code == (EXIT_FOUND if compared.verdict in ("worse", "better") else EXIT_OK)
        assert compare.main(asked) == EXIT_OK and capsys.readouterr().out.rstrip() == str(compared)
        whole = compared.table[compared.table["row"] == "average"]
        assert (
            whole["estimate"].item() == compared.average.estimate
            and whole["verdict"].item() == compared.average.verdict
        )
    with pytest.raises(UserError, match="run by run"):
        bench.api.compare(KEPT, KEPT, at="compute")
    with pytest.raises(UserError, match="cannot be compared at 'time'"):
        bench.api.compare(*names, suite=KEPT.name, results=KEPT.parent, at="time")


def test_commits_and_folders_are_sides_too(tmp_path, capsys):
    commit = bench.api.load(KEPT).records[0].environment.commit
    kept = ["--suite", KEPT.name, "--results", str(KEPT.parent)]
    assert compare.main([str(KEPT), commit[:9], *kept, "--fail-if", "different"]) == EXIT_OK
    assert "All scores are equal" in capsys.readouterr().out
    assert compare.main([str(KEPT), "ViT-femmto/7", *kept]) == EXIT_USAGE
    assert "'ViT-femto/7'" in capsys.readouterr().err
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


@pytest.mark.gate
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


# -- calls of notebooks: what editors complete, what results show, networks given as objects ---------------------------


def test_options_are_spelt_out_for_editors_and_notebooks():
    names = [option.name for option in RUN]
    for call, own in ((bench.api.plan, ["study"]), (bench.api.run, ["study", "verbose"])):
        assert list(inspect.signature(call).parameters) == own + names
        assert all(f"    {name}: " in call.__doc__ for name in names)
        taken = inspect.signature(call).parameters
        assert [taken[option.name].annotation == "bool" for option in RUN] == [o.kind is Kind.FLAG for o in RUN]


def described(page: str) -> dict[str, set[str]]:
    """Frame -> its columns: the names in the sentence that begins with it, and in the first column of its table."""
    found = {}
    starts = r"^(?=`(?:Results|Compared|Fit|bench\.api)\.)"
    for part in re.split(starts, page.partition("\n## Columns\n")[2], flags=re.MULTILINE)[1:]:
        _, frame, rest = part.split("`", 2)
        cells = (line.split("|")[1] if line.startswith("|") else line for line in rest.splitlines())
        found[frame] = {name for cell in cells for name in re.findall(r"`([a-z0-9_.*]+)`", cell)}
    return found


def test_every_column_is_described():
    """A frame has the columns that the page names for it, and no other."""
    results = bench.api.load(KEPT)
    law = bench.api.fit(pd.DataFrame({"x": X, "y": X**-0.25}), x="x", y="y", form="power", draws=20)
    frames = {f"Results.{name}": getattr(results, name) for name in ("horizons", "scores", "curves", "findings")} | {
        "Compared.table": bench.api.compare("ViT", "ResNet", suite=KEPT.name, results=KEPT.parent).table,
        "Fit.parameters": law.parameters,
        "Fit.predict": law.predict(1e7),
        "Fit.reach": law.reach(0.1),
        "bench.api.data": bench.api.data(),
        "bench.api.probe": bench.api.probe("pixels", "digits", image_size=28, channels=1, shots=(1,), draws=1),
        "bench.api.status": bench.api.status(KEPT.parent).drop(columns=[*CellStatus.__annotations__]),
        "bench.api.published": bench.api.published("paper").drop(columns=[*COLUMNS], errors="ignore"),
    }
    have = {frame: {re.sub(r"^(recipe\.|n_).*", r"\1*", name) for name in table} for frame, table in frames.items()}
    assert have == described((PROJECT / "docs/api.md").read_text())


def test_results_show_themselves():
    results = bench.api.load(KEPT)
    assert str(results).startswith(f"{KEPT}: 39 runs, {len(results.answers)} answers\n")
    assert str(results).count("\n") == len(results.table) + 1 and "<pre>" in results._repr_html_()
    assert results.plot()._repr_png_().startswith(b"\x89PNG") and os.fspath(results.plot()) == str(results.plot().path)
    compared = bench.api.compare(*NAMES, suite=KEPT.name, results=KEPT.parent)
    assert compared._repr_html_() == f"<pre>{html.escape(str(compared))}</pre>"


def test_a_comparison_draws_its_table(tmp_path):
    """Every difference with its interval, and those of levels of compute in a panel of their own."""
    compared = bench.api.compare("ViT-pico/14", "R11x0.25-s2", suite="crossover", results=PROJECT / "tests/records")
    by_task, by_compute = compare_figure.draw(compared.found, title="x").axes
    names = [label.get_text().removesuffix(" (not averaged)") for label in by_task.get_yticklabels()]
    table = compared.table.assign(compute=compared.table["row"] == "compute")
    for axes, rows, along in ((by_task, table[~table["compute"]], 0), (by_compute, table[table["compute"]], 1)):
        assert len(rows) > 1
        drawn = [
            [*bar.lines[0].get_xydata()[0], *bar.lines[2][0].get_segments()[0][:, along]] for bar in axes.containers
        ]
        shown = np.array(drawn)[:, [along, 2, 3]]
        np.testing.assert_allclose(shown, 100 * rows[["estimate", "low", "high"]].to_numpy(), rtol=1e-12)
    assert names == table[~table["compute"]]["task"].tolist()
    assert compared.plot(tmp_path / "c.png").path.read_bytes() == compared.plot()._repr_png_()
    with pytest.raises(UserError, match="cannot be written"):
        compared.plot(tmp_path / "none" / "c.png")


@pytest.mark.parametrize("name", ["status", "data"])
def test_a_listing_is_that_of_the_command(name, verb, tmp_path):
    finish(tmp_path / "results" / "smoke", cells_of("smoke", models=("ViT-pico/14",)))
    told = json.loads(verb(name, "--json").stdout)
    table = bench.api.status(tmp_path / "results") if name == "status" else bench.api.data()
    rows = told["smoke"] if name == "status" else told
    kept = table[[*rows[0]]].astype(object).where(table[[*rows[0]]].notna(), None)
    assert kept.to_dict("records") == rows


def test_flops_are_those_of_the_command(verb):
    told = json.loads(verb("flops", "ViT-pico/14", "--classes", "7", "--json").stdout)
    cost = bench.api.flops("ViT-pico/14", classes=7)
    assert (cost.params, dict(cost.forward_macs)) == (told["params"], told["forward_macs"])
    size = {"image_size": cost.image_size, "channels": cost.channels}
    model = registry.build_model("ViT-pico/14", **size, num_classes=7)
    images = torch.zeros(1, cost.channels, cost.image_size, cost.image_size)
    assert vars(bench.api.flops(model, images)).items() <= vars(cost).items()


class Named(nn.Sequential):
    """The contract, spelt out."""

    num_features = 16
    head = property(lambda self: self[3])

    def features(self, x_BCHW):
        return self[:3](x_BCHW)


def test_a_network_is_probed_as_its_name_is():
    size = {"image_size": 28, "channels": 1}
    asked = size | {"shots": (1, 5), "draws": 2, "data": "digits"}
    torch.manual_seed(3)
    model = registry.build_model("ViT-pico/7", **size, num_classes=2)
    pd.testing.assert_frame_equal(bench.api.probe(model, **asked), bench.api.probe("ViT-pico/7", **asked, seed=3))
    layers = nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10)
    plain = nn.Sequential(*layers)
    before = copy.deepcopy(plain.state_dict())
    pd.testing.assert_frame_equal(bench.api.probe(plain, **asked), bench.api.probe(Named(*layers), **asked))
    assert all(torch.equal(value, plain.state_dict()[name]) for name, value in before.items())
    for wrong, said in (
        ({"task": "finetune"}, "trains the network"),
        ({"image_size": None}, "at a size"),
        ({"image_size": 32}, "cannot be probed at 32 px"),
        ({"shotz": (1,)}, "shots"),
    ):
        with pytest.raises(UserError, match=said):
            bench.api.probe(plain, **({"data": "digits"} | size | wrong))


def test_a_law_is_asked_again(tmp_path):
    runs = pd.DataFrame({"x": X, "y": 4 * X**-0.25}).assign(family="ViT")
    law = bench.api.fit(runs, x="x", y="y", form="power", group="family", draws=20, predict=[1e7])
    (asked,) = law.answer["fits"]["ViT"]["predictions"]
    predicted = law.predict(1e7).iloc[0]
    assert predicted["y"] == asked["y"] and [predicted["low"], predicted["high"]] == (
        asked["total"] or [predicted["low"]] * 2
    )
    assert law.predict([1e4, 1e5])["y"].tolist() == pytest.approx([4 * 1e4**-0.25, 4 * 1e5**-0.25], rel=1e-3)
    assert law.reach(4 * 3e6**-0.25)["x"].item() == pytest.approx(3e6, rel=1e-2)
    below, never = law.reach([1.0, 1e-9]).iloc
    assert np.isnan(below["x"]) and below["why"] == "at the smallest x already"
    assert np.isnan(never["x"]) and "not within 10 times" in never["why"]
    assert law.reach([0.6, 0.5])["x"].tolist() == [law.reach(y)["x"].item() for y in (0.6, 0.5)]
    (same,) = law.ask(reach=(0.2,))["fits"]["ViT"]["reached"]
    assert law.reach(0.2).iloc[0][["x", "low"]].tolist() == [same["x"], same["low"]]
    as_accuracy = bench.api.fit(runs.assign(accuracy=1 - runs["y"]), x="x", y="accuracy", form="power", draws=20)
    assert as_accuracy.reach(0.2)["x"].item() == pytest.approx(same["x"], rel=1e-4)  # of an accuracy the error
    assert law.plot(tmp_path / "law.png").path.read_bytes() == law.plot()._repr_png_()
    assert law.table is law.parameters and str(law) in html.unescape(law._repr_html_())


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"loss": "hubber"}, "Unknown loss"), ({"schedule": "one"}, "Unknown schedule"), ({"draws": 0}, "too few")]
    + [({"predict": [value]}, "No run has") for value in (0.0, -1.0, float("nan"), float("inf"))],
)
def test_a_fit_is_refused_what_the_command_refuses(asked: dict, said: str) -> None:
    runs = pd.DataFrame({"x": X, "y": X**-0.25})
    with pytest.raises(bench.api.UserError, match=said):
        bench.api.fit(runs, x="x", y="y", form="power", **asked)


def test_tables_and_questions_that_hold_nothing_are_refused() -> None:
    runs = pd.DataFrame({"x": X, "accuracy": 1 - X**-0.25})
    for table, said in ((runs[:0], "no rows"), (runs.rename(columns={"accuracy": "x"}), "several columns named 'x'")):
        with pytest.raises(bench.api.UserError, match=said):
            bench.api.fit(table, x="x", y="x")
    law = bench.api.fit(runs, x="x", y="accuracy", form="power", draws=20)
    for ask in (law.predict, law.reach):
        with pytest.raises(bench.api.UserError, match="Nothing is asked for"):
            ask([])
    for goal in (-1, 0, 1, [0.1, 85]):
        with pytest.raises(bench.api.UserError, match="cannot be reached"):
            law.reach(goal)
