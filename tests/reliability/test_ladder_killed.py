"""A ladder that is killed while rates are tuned, and while rungs are trained, ends with the same bits; so it does where
a script goes on with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.store.records import read_record
from tests.conftest import PROJECT
from tests.reliability.storms import leftovers, outcome, until

pytestmark = pytest.mark.gate

LADDER = (
    "--baseline",
    "ViT-atto/7",
    "--data",
    "digits",
    "--change",
    "weight_decay=0.3",
    "--seeds",
    "2",
    "--scale",
    "cpu",
)
LADDER += ("--horizons", "320,640,1280", "--set", "warmup=64", "--jobs", "2")
TRIALS, ALL = 16, 28  # at least: rates may get more trials


def begin(folder: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "bench", "ladder", *LADDER, "--results", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True, text=True)


SCRIPT = """
import sys
import bench.api

if __name__ == "__main__":
    made = bench.api.ladder(
        models=["ViT-atto/7"], data=["digits"], change=["weight_decay=0.3"], seeds=2, scale="cpu",
        horizons=["320,640,1280"], set={"warmup": 64}, workers=2, results=sys.argv[1],
    )
    assert list(made.findings["question"]) == ["change survives scale"] and not made.failures
"""


def by_script(folder: Path) -> None:
    """The same ladder, by `bench.api`."""
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    script = folder.parent / "ladder.py"
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, str(script), str(folder)], env=environment, check=True, timeout=600)


def done(folder: Path) -> int:
    return len(list(folder.glob("ladder/cells/*/record.json")))


def whole(folder: Path) -> str:
    process = begin(folder)
    text, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    return text


def test_a_killed_ladder_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    said = whole(undisturbed)
    assert "survive scale?" in said, said
    for number in (5, TRIALS + 4):  # among the trials of rates; among the rungs
        process = begin(killed)
        until(lambda at=number, of=process: done(killed) >= at or of.poll() is not None)
        assert process.poll() is None, "it was to be killed before its end"
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    before = {path: path.stat().st_mtime_ns for path in killed.glob("ladder/cells/*/record.json")}
    by_script(killed)
    assert outcome(killed / "ladder") == outcome(undisturbed / "ladder") and len(outcome(killed / "ladder")) >= ALL
    assert all(path.stat().st_mtime_ns == at for path, at in before.items()), "nothing that was done is done again"
    assert not leftovers(killed / "ladder")
    for name in ("findings.json", "tables/ladder.csv"):
        assert (killed / "ladder" / name).exists()
    rates = {r.cell.recipe.lr for p in before for r in [read_record(p)] if r.cell.held_out}
    assert len(rates) >= 4
