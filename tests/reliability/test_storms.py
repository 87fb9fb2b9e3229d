"""The storms, for a short while each; `python -m tools.storm_…` runs them for as long as one likes."""

import os
import subprocess
import sys

import pytest

from tests.conftest import PROJECT

pytestmark = pytest.mark.nightly


def storm(name, *options):
    command = [sys.executable, "-m", f"tools.storm_{name}", *map(str, options)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("locks", [(), ("--locks",)], ids=["no locks", "locks"])
def test_claims(locks):
    storm("claims", "--cells", 60, *locks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Shared by storms that begin with the same undisturbed run."""
    return tmp_path_factory.mktemp("storms")


def test_kills(folder):
    storm("kills", "--events", 5, "--mean", 4, "--folder", folder)


@pytest.mark.parametrize("how", [("--every", 40), ("--events", 10, "--seed", 3)], ids=["faults", "accidents"])
def test_faults(how):
    storm("faults", *how)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0 or sys.platform != "linux", reason="needs root")
def test_containers(folder):
    storm("containers", "--times", 1, "--folder", folder)
