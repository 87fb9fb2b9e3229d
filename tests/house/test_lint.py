"""The linter and the type checker find nothing. As tests, so that they run beside the others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import PROJECT

TOOLS = [("mypy", "bench", "vit", "baselines"), ("ruff", "check", "."), ("ruff", "format", "--check", ".")]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: " ".join(tool[:2]))
def test_nothing_is_found(tool):
    done = subprocess.run([sys.executable, "-m", *tool], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_statement_is_kept_from_the_formatter():
    marker = "# fmt: " + "skip"
    folders = ("bench", "vit", "baselines", "tests")
    files = [path for folder in folders for path in (PROJECT / folder).rglob("*.py")]
    kept = [str(path.relative_to(PROJECT)) for path in files if marker in path.read_text()]
    assert not kept
