"""The instruments that measure growth and try networks of others, at sizes that take minutes."""

import subprocess
import sys

import pytest

from tests.conftest import PROJECT
from tools.growth.__main__ import Measured, line
from tools.growth.works import WORKS, Goal


def run(module: str, *options: str) -> str:
    command = [sys.executable, "-m", module, *options]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("work", [work.name for work in WORKS if work.small])
def test_every_work_is_measured(work, tmp_path):
    said = run("tools.growth", "--small", "--only", work, "--folder", str(tmp_path))
    sizes = next(one.small for one in WORKS if one.name == work)
    assert len(said.splitlines()) == len(sizes)
    assert all(one.startswith(f"{work}, ") and "s of the processor" in one for one in said.splitlines())


@pytest.mark.nightly
def test_networks_of_others_are_usable_or_have_a_known_reason():
    pytest.importorskip("vit_pytorch")
    pytest.importorskip("transformers")
    run("tools.strangers", "--each", "5")


def test_a_line_says_exponents_and_whether_the_goal_was_met():
    work = next(one for one in WORKS if one.name == "load")
    before, now = Measured(2.0, 3.0, 100_000_000, {}), Measured(20.0, 30.0, 200_000_000, {})
    said = line(work, 10_000, now, (1_000, before))
    assert "exponents 1.00 and 0.30" in said and "11,111 bytes for each one more" in said
    assert said.endswith("; MISSES (at most 15 s, 1,000 MB)")
    assert Goal(20, 200_000_000).met(now.seconds, now.peak, now.said)
    assert not Goal(said={"copies": 0.2}).met(0, 0, {"copies": 2.0})
