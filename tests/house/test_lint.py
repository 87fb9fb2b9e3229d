"""The linter and the type checker find nothing. As tests, so that they run beside the others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import PROJECT

TOOLS = [("mypy", "bench", "vit", "baselines"), ("ruff", "check", ".")]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool[0])
def test_nothing_is_found(tool):
    done = subprocess.run([sys.executable, "-m", *tool], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
