"""A results folder or a working directory of somebody else's: nothing outside it is read, written, removed or run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import run, status
from bench.core.errors import EXIT_USAGE, UserError
from bench.report import build as report
from bench.report.__main__ import main as report_main
from bench.store import lease
from bench.store.study import WEIGHTS, Study
from tests.analysis._records import World, write
from tests.conftest import PROJECT

OWN = "a file of the user's"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A finished study of a few records."""
    world = World(seed=1)
    world.models = {"ViT-nano/7": world.models["ViT-nano/7"]}
    world.sizes, world.seeds, world.draws, world.shots = (30_000,), (0,), (0,), (1,)
    return write([replace(record, suite="smoke") for record in world.records()], tmp_path / "results" / "smoke")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the user's with what a study would remove or replace."""
    folder = tmp_path / "outside"
    for name in ("compute.png", "step-000000001/state.json", WEIGHTS, "other_s0/record.json", "1/status.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(OWN)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "linked", ["figures", "tables", "cells", "cells/*", "cells/*/checkpoints", "cells/*/attempts/1"]
)
def test_a_study_with_a_linked_folder_is_refused_by_every_command(linked, study, outside, tmp_path, capsys):
    cell = min((study / "cells").iterdir())
    place = study / linked.replace("*", cell.name)
    place.parent.mkdir(exist_ok=True)
    if place.exists():
        place.rename(tmp_path / "moved")
    place.symlink_to(outside, target_is_directory=True)
    before, results = contents(outside), ["--results", str(study.parent)]
    for command, arguments in (
        (report_main, ["--suite", "smoke", *results]),
        (run.main, ["--suite", "smoke", "--device", "cpu", *results]),
        (status.main, ["--suite", "smoke", *results]),
    ):
        assert command(arguments) == EXIT_USAGE
        assert f"{place} is a link to a folder" in capsys.readouterr().err
    assert contents(outside) == before


def test_an_export_into_a_folder_with_a_link_is_refused(study, outside, tmp_path, capsys):
    target = tmp_path / "exported"
    target.mkdir()
    (target / "cells").symlink_to(outside, target_is_directory=True)
    before = contents(outside)
    arguments = ["--suite", "smoke", "--results", str(study.parent), "--into", str(target)]
    assert report_main(arguments) == EXIT_USAGE and "is a link" in capsys.readouterr().err
    assert contents(outside) == before


def test_results_themselves_may_lie_behind_a_link(study, tmp_path):
    (tmp_path / "linked").symlink_to(study.parent, target_is_directory=True)
    assert report.build(tmp_path / "linked" / "smoke", suite="smoke").html.is_file()


@pytest.mark.parametrize("name", [".lease.lock", "lease.json"])
@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_what_is_no_file_is_no_lease(name, what, tmp_path):
    """A link's target keeps its contents, and nobody waits for a pipe's other end."""
    target = tmp_path / "target"
    target.write_text(OWN)
    place = tmp_path / "cell" / name
    place.parent.mkdir()
    {"link": lambda: place.symlink_to(target), "pipe": lambda: os.mkfifo(place), "folder": place.mkdir}[what]()
    with pytest.raises(UserError, match="is a link, or no file"), lease.claim(place.with_name("lease.json")):
        pass
    assert target.read_text() == OWN and (place.is_symlink() or place.exists())


def test_a_giant_lease_is_somebody_elses_and_its_first_bytes_are_read(tmp_path, monkeypatch):
    with open(tmp_path / "lease.json", "wb") as file:
        file.truncate(1 << 40)  # sparse: as much as it says would not fit into memory
    with lease.claim(tmp_path / "lease.json") as mine:
        assert mine is None
    assert lease.holder(tmp_path / "lease.json") is not None


@pytest.mark.slow
def test_modules_in_the_working_directory_are_not_imported(tmp_path):
    """Calibration, workers and readers of data start in it."""
    hostile = tmp_path / "here"
    hostile.mkdir()
    for name in sys.stdlib_module_names:
        (hostile / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write('{name} ')\n")
    command = [
        sys.executable,
        "-P",
        "-m",
        "bench.run",
        "--suite",
        "smoke",
        "--models",
        "ViT-pico/14",
        "--device",
        "cpu",
    ]
    variables = os.environ | {"PYTHONPATH": str(PROJECT), "VIT_BENCH_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [*command, "--results", "results"], cwd=hostile, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "imported").exists()
    assert all(directory.is_done() for directory in Study(hostile / "results" / "smoke").directories())
