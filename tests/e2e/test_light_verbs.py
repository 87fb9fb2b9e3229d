"""Verbs that only look at a study stay light: no numerical library is loaded to read what its cells left."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import pytest

from bench.core.errors import EXIT_USAGE
from tests.plan.finished import finish
from tests.plan.making import cells_of

LOOK = """
import runpy, sys
verb, *sys.argv[1:] = sys.argv[1:]
try:
    runpy.run_module(f"bench.{verb}", run_name="__main__", alter_sys=True)
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


def test_status_reads_outcomes_without_numpy(finished, project):
    found, loaded = look("status", "--results", str(finished.parent), "--json", project=project)
    assert {cell["state"] for cell in found["smoke"]} == {"done"}
    assert [cell["note"] for cell in found["smoke"] if cell["note"]] == ['diverged: the "loss"']
    assert not loaded & (NEVER | {"numpy"})


@pytest.mark.parametrize("verb", ["status", "report"])
def test_verbs_that_look_take_a_study_file(finished, verb, tmp_path, capsys):
    study = tmp_path / "study.toml"
    study.write_text(f'suite = "smoke"\nresults = "{finished.parent}"\n')
    main = importlib.import_module({"status": "bench.status", "report": "bench.report.__main__"}[verb]).main
    assert main([str(study), "--json"]) == 0
    assert "smoke" in capsys.readouterr().out
    assert main([str(study), "--suite", "smok"]) == EXIT_USAGE
    assert "Did you mean 'smoke'" in capsys.readouterr().err
    assert main(["smoke"]) == EXIT_USAGE
    assert "Write --suite smoke" in capsys.readouterr().err


def test_a_plan_of_what_is_done_needs_no_numerical_library(finished, project):
    words = ("--suite", "smoke", "--results", str(finished.parent), "--device", "cpu", "--json")
    found, loaded = look("plan", *words, project=project)
    assert {cell["state"] for cell in found["cells"]} == {"done"} and found["expected_seconds"] == 0
    assert not loaded & NEVER
