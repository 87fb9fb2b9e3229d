"""Several ranks are one worker: what stops one stops all, in one sentence, and any number of ranks continues."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import run
from bench.core.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, Interrupted, UserError
from bench.execute import local, torchrun
from bench.execute.local import Failure
from bench.store import faults
from bench.store.records import read_record
from bench.store.study import CellDirectory, Study
from bench.study.cell import Cell
from bench.suites._recipes import recipe_for
from tests.conftest import PROJECT
from tests.plan.making import calibrated, plan_of
from tests.reliability.storms import stopped, worker_options

pytestmark = pytest.mark.gate

RECIPE = replace(recipe_for("ViT-pico/14", warmup_images=128), batch=16)
CELL = Cell(model="ViT-pico/14", data="fashion-mnist", num_images=200, horizons=(0, 16_000), seed=1, recipe=RECIPE)


def train(store: Path, *, ranks: int, what: signal.Signals | None = None) -> list[Failure]:
    """Run the cell as `bench.run --ranks` does. Returns its failures. `what`: sent to rank 1 wherever the ranks have
    stopped themselves, before they go on."""
    plan = calibrated(plan_of([CELL], store, ranks=ranks))

    def tick() -> None:
        there = ranks_of_this_run() if what else {}
        if len(there) == ranks and all(map(stopped, there.values())):
            os.kill(there[1], what)
            for pid in there.values():
                os.kill(pid, signal.SIGCONT)

    return local.run(plan, on_event=lambda *_: None, tick=tick)


def ranks_of_this_run() -> dict[int, int]:
    """Processes that this one has started, by their rank."""
    listed = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True).stdout
    found = dict[int, int]()
    for line in listed.splitlines():
        pid, _, arguments = line.strip().partition(" ")
        if "bench.worker" not in arguments:
            continue
        try:
            variables = dict(v.split("=", 1) for v in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in v)
        except OSError:
            continue
        if variables.get("MARK") == str(os.getpid()):
            found[int(variables["RANK"])] = int(pid)
    return found


def outcomes(directory: CellDirectory) -> list[str]:
    return [attempt.outcome for attempt in directory.attempt_log()]


def half_written(store: Path) -> list[Path]:
    return [*store.rglob("*.tmp"), *store.rglob("record*.json")]


def test_whatever_stops_a_rank_stops_all_and_one_rank_finishes_what_two_began(tmp_path, monkeypatch):
    store = tmp_path / "test"
    directory = Study(store).cell(CELL)
    monkeypatch.setenv("MARK", str(os.getpid()))

    monkeypatch.setenv(faults.VARIABLE, "training-step:50:SIGSTOP")
    with pytest.raises(Interrupted, match="saved"):
        train(store, ranks=2, what=signal.SIGTERM)
    assert outcomes(directory) == ["interrupted"]
    newest = max(directory.checkpoints.iterdir())
    saved = json.loads((newest / "state.json").read_text())
    assert 50 <= saved["work"] <= 51 and saved["ranks"] == 2
    assert not half_written(store) and not directory.lease.exists()

    monkeypatch.setenv(faults.VARIABLE, "training-step:2:SIGSTOP")
    (failure,) = train(store, ranks=2, what=signal.SIGKILL)  # begun anew once, and given up
    assert failure.reason == "Its process was killed 2 times in one run; is memory short?"
    assert outcomes(directory) == ["interrupted", "failed", "failed"]
    assert not half_written(store)

    monkeypatch.delenv(faults.VARIABLE)
    assert train(store, ranks=1) == []
    record = read_record(directory.record)
    assert [a.outcome for a in record.attempts] == ["interrupted", "failed", "failed", "complete"]
    assert record.status == "complete" and record.execution.ranks == 1
    assert [row.steps for row in record.horizons] == [0, 1000]
    assert len(list(store.rglob("record.json"))) == 1 and not list(store.rglob("*.tmp"))


@pytest.mark.parametrize("sharding", ["replicate", "fsdp"])
def test_a_rank_that_runs_out_of_memory_ends_all_and_the_micro_batch_that_it_names_fits(tmp_path, sharding):
    """The other is waiting in the middle of a pass."""
    cell = replace(CELL, horizons=(160,), recipe=replace(RECIPE, sharding=sharding), tasks=())
    smaller = replace(cell, recipe=replace(cell.recipe, micro_batch=4))
    done = [short_ranks(tmp_path, each) for each in (cell, smaller)]
    assert [each.returncode for each in done] == [EXIT_USAGE, EXIT_OK], done[0].stderr[-4000:] + done[1].stderr[-4000:]
    first, fix = done[0].stderr.partition("error: ")[2].splitlines()[:2]
    assert first == "Rank 1 of 2 ran out of memory with 8 images at a time." and "--set micro_batch=4" in fix
    study = Study(tmp_path / "test")
    assert outcomes(study.cell(cell)) == ["failed"] and outcomes(study.cell(smaller)) == ["complete"]
    record = read_record(study.cell(smaller).record)
    assert record.status == "complete" and record.execution.ranks == 2


def short_ranks(folder: Path, cell: Cell) -> subprocess.CompletedProcess[str]:
    """Two ranks, of which the second has room for four images at a time."""
    command = [sys.executable, "-m", "tests.reliability._short_ranks", "launch", "--ranks", "2"]
    command += worker_options(folder / "test", [cell])
    variables = os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=240)


def test_ranks_that_cannot_share_a_batch_are_refused_before_anything_is_written(tmp_path, capsys):
    code = run.main(["--suite", "smoke", "--ranks", "3", "--device", "cpu", "--results", str(tmp_path / "results")])
    assert code == EXIT_USAGE
    message = capsys.readouterr().err
    assert "cannot be shared equally by 3 ranks" in message and "1, 2, 4, 8" in message
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "codes, expected",
    [
        ((130,), EXIT_INTERRUPTED),
        ((3,), EXIT_FAILED),
        ((2, 130), EXIT_INTERRUPTED),
        ((2, 3), EXIT_USAGE),
        ((1,), torchrun.EXIT_CRASHED),
        ((1, 3), torchrun.EXIT_CRASHED),
        ((2, 1), EXIT_USAGE),
    ],
)
def test_the_launcher_hands_on_how_ranks_ended(codes, expected):
    failures = {number: SimpleNamespace(exitcode=code) for number, code in enumerate(codes)}
    assert torchrun.outcome(failures, ranks=4) == expected


def test_the_launcher_names_the_rank_that_was_killed():
    failures = {2: SimpleNamespace(exitcode=2), 3: SimpleNamespace(exitcode=-signal.SIGSEGV)}
    with pytest.raises(UserError, match="Rank 3 of 4 was killed by SIGSEGV"):
        torchrun.outcome(failures, ranks=4)
