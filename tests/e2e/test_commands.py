"""Commands that read: what they load, which study they find, what they list, and how wide."""

import importlib
import json
import os
import runpy
import shutil
import subprocess
import sys

import pytest

from bench import __main__ as script
from bench.commands import flops, status
from bench.core.errors import EXIT_OK, EXIT_USAGE
from bench.data import __main__ as data
from bench.report import __main__ as report
from bench.store import index as studies
from bench.study import registry
from tests.conftest import PROJECT
from tests.plan.finished import finish
from tests.plan.making import cells_of

# -- verbs that only look at a study stay light: no numerical library is loaded to read what its cells left ------------


LOOK = """
import runpy, sys
try:
    runpy.run_module("bench", run_name="__main__", alter_sys=True)
finally:
    print("loaded:", *sorted({name.split(".")[0] for name in sys.modules}))
"""
NEVER = {"torch", "scipy", "pandas", "sklearn", "matplotlib"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A store in which every cell of the smoke suite is done; one diverged, with a reason that needs escaping."""
    store = tmp_path_factory.mktemp("results") / "smoke"
    return finish(store, cells_of("smoke"), reasons=('the "loss"',)).path


def look(verb, *words, project):
    done = subprocess.run(
        [sys.executable, "-c", LOOK, verb, *words],
        capture_output=True,
        text=True,
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(project)},
    )
    assert done.returncode == 0, done.stderr
    output, _, loaded = done.stdout.rpartition("loaded:")
    return json.loads(output), set(loaded.split())


@pytest.mark.gate
def test_status_reads_outcomes_without_numpy(finished, project):
    answer, loaded = look("status", "--results", str(finished.parent), "--json", project=project)
    assert {cell["state"] for cell in answer["smoke"]} == {"done"}
    assert [cell["note"] for cell in answer["smoke"] if cell["note"]] == ['diverged: the "loss"']
    assert not loaded & (NEVER | {"numpy"})


@pytest.mark.parametrize("verb", ["status", "report"])
def test_verbs_that_look_take_a_study_file(finished, verb, tmp_path, capsys):
    study = tmp_path / "study.toml"
    study.write_text(f'suite = "smoke"\nresults = "{finished.parent}"\n')
    main = importlib.import_module({"status": "bench.commands.status", "report": "bench.report.__main__"}[verb]).main
    assert main([str(study), "--json"]) == 0
    assert "smoke" in capsys.readouterr().out


@pytest.mark.gate
def test_a_plan_of_what_is_done_needs_no_numerical_library(finished, project):
    words = ("--suite", "smoke", "--results", str(finished.parent), "--device", "cpu", "--json")
    answer, loaded = look("plan", *words, project=project)
    assert {cell["state"] for cell in answer["cells"]} == {"done"} and answer["expected_seconds"] == 0
    assert not loaded & NEVER


# -- a study is found by its folder, and answers the question of its suite whatever the folder is called ---------------


REFERENCE = PROJECT / "results" / "reference"
STUDIES = studies.named(REFERENCE)
WITH_OPTIONS = {"peers-again": "peers"}


@pytest.mark.parametrize("name", STUDIES)
def test_a_kept_study_says_itself_which_suite_it_answers(name):
    assert studies.suite_of(REFERENCE / name) == WITH_OPTIONS.get(name, name.removesuffix("-cpu"))


def test_a_report_under_another_name_is_the_same(tmp_path, capsys):
    """Headlines, figures and words are those of the suite, not those of a folder that no suite is named after: of two
    of its models, as of all."""
    for name in ("rates", "rates-cpu"):
        for model in ("vit-atto-7", "resnet-8-s4"):
            for cell in (REFERENCE / "rates-cpu" / "cells").glob(f"{model}_*"):
                shutil.copytree(cell, tmp_path / name / "cells" / cell.name)
        assert report.main(["--suite", name, "--results", str(tmp_path)]) == EXIT_OK
    made = sorted(p.relative_to(tmp_path / "rates") for p in (tmp_path / "rates").rglob("*") if p.is_file())
    for path in made:
        assert (tmp_path / "rates-cpu" / path).read_bytes() == (tmp_path / "rates" / path).read_bytes(), path


@pytest.mark.parametrize("verb", [status, report])
def test_the_nearest_study_is_named(verb, tmp_path, capsys):
    (tmp_path / "smoke" / "cells").mkdir(parents=True)
    assert verb.main(["--suite", "rates", "--results", str(tmp_path)]) == EXIT_USAGE
    said = capsys.readouterr().err
    assert (
        "No study 'rates'" in said
        and "It has: smoke (--suite smoke)." in said
        and "vit-bench run --suite rates" in said
    )


# -- which models there are and how they are named ---------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--list"]])
def test_every_family_says_its_names_and_how_they_are_made(arguments, capsys):
    assert flops.main(arguments) == EXIT_OK
    said = capsys.readouterr().out
    for family in registry.families():
        assert f"{family.label}: {family.naming}\n" in said
    assert set(registry.model_names()) <= set(said.replace(",", " ").split()) and "--paper-table" in said


def test_the_listing_for_machines(capsys):
    assert flops.main(["--list", "--json"]) == EXIT_OK
    families = json.loads(capsys.readouterr().out)
    assert sorted(name for family in families.values() for name in family["names"]) == sorted(registry.model_names())
    assert {"R50x1", "ResNet-20"} <= set(families["ResNet"]["names"])


# -- what a command prints fits a narrow terminal; a log has no trailing blanks ----------------------------------------


def test_the_list_of_data_sets_is_as_wide_as_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "72")
    assert data.main([]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 72


# -- old names of commands say what to type now -----------------------------------------------------------------------


@pytest.mark.parametrize("name", [path.stem for path in script.verbs().values() if path.parent.name == "commands"])
def test_a_command_by_its_old_name_says_in_one_line_what_to_type(name, capsys):
    with pytest.raises(SystemExit) as end:
        runpy.run_module(f"bench.{name}", run_name="__main__")
    (line,) = capsys.readouterr().err.splitlines()
    assert end.value.code == EXIT_USAGE and f"vit-bench {name}" in line and f"python -m bench {name}" in line
    if not (PROJECT / "bench" / name).is_dir():  # a room may have the name of a command
        with pytest.raises(ModuleNotFoundError, match=rf"vit-bench {name}\b.*bench\.api"):
            importlib.import_module(f"bench.{name}")


@pytest.mark.parametrize("name", ["requirement", "_old_names", "nothing"])
def test_what_was_never_a_command_is_not_there(name):
    with pytest.raises(ModuleNotFoundError, match=f"No module named 'bench.{name}'"):
        importlib.import_module(f"bench.{name}")
