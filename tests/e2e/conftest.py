"""One uninterrupted run of the smoke suite, shared by every test that compares with it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import PROJECT


@dataclass(frozen=True)
class Run:
    """A finished run: where it wrote, and what it printed."""

    results: Path
    output: str

    @property
    def study(self) -> Path:
        return self.results / "smoke"


@pytest.fixture(scope="session")
def smoke(tmp_path_factory) -> Run:
    results = tmp_path_factory.mktemp("smoke") / "results"
    done = subprocess.run(
        [sys.executable, "-m", "bench.run", "--suite", "smoke", "--results", str(results)],
        cwd=results.parent,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Run(results, done.stdout)
