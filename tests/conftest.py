"""Shared fixtures. Tests write to temporary folders only and talk to nothing but this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

PROJECT = Path(__file__).resolve().parent.parent
settings.register_profile("no time limits", deadline=None)  # a busy machine is no failure
settings.load_profile("no time limits")


def pytest_configure(config):
    """One cache of decoded data for all processes of a test run, and not the user's."""
    if "VIT_BENCH_CACHE" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="vit-bench-tests-")
        config.add_cleanup(folder.cleanup)
        os.environ["VIT_BENCH_CACHE"] = folder.name


@pytest.fixture(scope="session")
def project() -> Path:
    """The checkout's root."""
    return PROJECT


@pytest.fixture
def bench(tmp_path: Path):
    """Run a verb as a user would: `bench("run", "--suite", "smoke")` -> CompletedProcess. Works in `tmp_path`."""

    def call(
        verb: str, *arguments: str, cwd: Path = tmp_path, project: Path = PROJECT, check: bool = False, **variables
    ):
        environment = os.environ | {"PYTHONPATH": str(project)} | variables
        return subprocess.run(
            [sys.executable, "-m", f"bench.{verb}", *map(str, arguments)],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=check,
        )

    return call


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
    """One uninterrupted run of the smoke suite, shared by every test that compares with it."""
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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Tests that share the smoke run go to one of the parallel processes, so that it is run once."""
    for item in items:
        if "smoke" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("smoke"))
