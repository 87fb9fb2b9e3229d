"""The guest is plugged in by an entry point, and the project does without it."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from bench import __main__ as script
from bench import api
from bench.analysis import claims
from bench.core.errors import UserError
from bench.report.build import build
from bench.study import registry
from tests.conftest import PROJECT
from tests.house.structure import PLUGGED_IN, Structure, under

KINDS = {"question": "as-claimed", "figure": "published-ratios", "quoted source": "published", "command": "published"}


def forget():
    """Look up anew what is plugged in, and what was answered by it."""
    registry.forget()
    claims.table_6.cache_clear()


@pytest.fixture
def without(monkeypatch):
    """The registry where nothing is plugged in."""
    monkeypatch.setattr(registry, "_entry_points", list)
    forget()
    yield
    monkeypatch.undo()
    forget()


def test_nobody_imports_a_guest_that_is_plugged_in():
    imports = Structure().imports
    for guest in PLUGGED_IN:
        outside = {module for module, names in imports.items() if any(under(name, guest) for name in names)}
        assert outside and all(under(module, guest) for module in outside)


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_brings_is_found_by_the_mechanism_alone(kind, without, monkeypatch):
    assert KINDS[kind] not in registry.names(kind)
    monkeypatch.undo()
    forget()
    assert KINDS[kind] in registry.names(kind) and registry.load(kind, KINDS[kind]) is not None


def test_without_it_its_command_and_tables_are_unknown(without):
    assert "published" not in script.verbs() and "fit" in script.verbs()
    with pytest.raises(UserError, match="Unknown quoted source 'published'"):
        api.published()


def test_without_it_a_study_is_reported_with_the_same_answers(without, tmp_path, monkeypatch):
    study = PROJECT / "tests/records/branching-of-unequal-warm-ups"
    said = []
    for name in ("without", "with"):
        if name == "with":
            monkeypatch.setattr("bench.report.build._draw", lambda *_, **__: ([], [], []))  # answers are compared
        shutil.copytree(study, tmp_path / name / "branching")
        paths = build(tmp_path / name / "branching", suite="branching")
        said.append(json.loads(paths.findings_json.read_text()))
        monkeypatch.undo()
        forget()
    assert said[0]["findings"] == said[1]["findings"] and said[0]["findings"]
    assert len(said[0]["paper"]) < len(said[1]["paper"])  # what Table 6 says of two families, the guest asks


@pytest.mark.gate
def test_a_checkout_without_its_folder_plans_runs_and_reports(tmp_path):
    for name in ("bench", "vit", "baselines"):
        left_out = shutil.ignore_patterns("__pycache__", *(["published"] if name == "bench" else []))
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=left_out)
    about = (PROJECT / "pyproject.toml").read_text()
    named = re.search(r"\[project\.entry-points\.vit_bench\].*?\n\n", about, re.DOTALL)
    assert named and not (tmp_path / "bench/published").exists()
    (tmp_path / "pyproject.toml").write_text(about.replace(named[0], ""))

    def call(*words):
        command, env = [sys.executable, "-m", "bench", *words], os.environ | {"PYTHONPATH": str(tmp_path)}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    assert not re.search(r"^\s*published\s", call().stdout, re.MULTILINE)  # no such verb
    for words in (("plan", "--suite", "smoke"), ("run", "--suite", "smoke"), ("report", "--suite", "smoke")):
        done = call(*words)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "results/smoke/findings.json").exists()
    assert "Unknown verb 'published'" in call("published").stderr
