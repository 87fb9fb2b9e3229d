"""Verbs that only look at a study stay light: no numerical library is loaded to read what its cells left."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from bench.core.registry import revisions_of
from bench.core.spec import cell_id, to_json
from bench.run import cells_of
from bench.store import records
from bench.store.study import Study
from bench.suites._contract import SuiteOptions

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
    study = Study(store)
    study.create()
    for number, cell in enumerate(cells_of("smoke", SuiteOptions())):
        directory, revisions = study.cell(cell), revisions_of(cell)
        directory.prepare(cell)
        body = {"suite": "smoke", "cell_id": cell_id(cell, revisions), "directory": directory.path.name, "env": {},
                "cell": to_json(cell), "revisions": revisions, "cost": {}, "attempts": [], "horizons": [],
                "status": "complete" if number else "diverged", "reason": None if number else 'the "loss"'}  # fmt: skip
        records.write_record(directory.record, body)
    return store


def look(verb, *words, project):
    done = subprocess.run([sys.executable, "-c", LOOK, verb, *words], capture_output=True, text=True, cwd=project,
                          env=os.environ | {"PYTHONPATH": str(project)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    output, _, loaded = done.stdout.rpartition("loaded:")
    return json.loads(output), set(loaded.split())


def test_status_reads_outcomes_without_numpy(finished, project):
    found, loaded = look("status", "--results", str(finished.parent), "--json", project=project)
    assert {cell["state"] for cell in found["smoke"]} == {"done"}
    assert [cell["note"] for cell in found["smoke"] if cell["note"]] == ['diverged: the "loss"']
    assert not loaded & (NEVER | {"numpy"})


def test_a_plan_of_what_is_done_needs_no_numerical_library(finished, project):
    words = ("--suite", "smoke", "--results", str(finished.parent), "--device", "cpu", "--json")
    found, loaded = look("plan", *words, project=project)
    assert {cell["state"] for cell in found["cells"]} == {"done"} and found["expected_seconds"] == 0
    assert not loaded & NEVER
