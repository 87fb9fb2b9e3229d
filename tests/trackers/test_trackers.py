"""A tracker's series is the record's: no gap and no double point, whatever was killed, however often it is sent."""

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.core.errors import EXIT_OK, EXIT_USAGE, UserError
from bench.report import __main__ as report
from bench.report import send
from bench.store import grid
from bench.store.records import read_record
from bench.store.study import Study
from bench.study.record import Record
from bench.trackers import tracker as trackers
from tests.conftest import PROJECT
from tests.reliability._attempt import SUITE, attempt
from tests.reliability.test_kill import CELL
from tests.trackers import readers

NAMES = ("tensorboard", *(pytest.param(name, marks=pytest.mark.gate) for name in ("mlflow", "trackio", "wandb")))
KILLS = ("checkpoint-after-rename:2", "training-step:1", "checkpoint-after-rename:2", "record-before-replace")


def expected(record: Record) -> dict[str, list[tuple[int, float]]]:
    """The series of a record, put together here: losses as in its curve, scores as means over draws."""
    series: dict[str, list[tuple[int, float]]] = {}
    curve = record.curve
    for images, loss, horizon in zip(curve.images, curve.losses, curve.horizons, strict=True):
        series.setdefault("loss" if horizon is None else f"loss/cool-down to {horizon}", []).append((images, loss))
    for horizon in record.horizons:
        values: dict[str, list[float]] = {}
        for s in horizon.scores:
            shots = f" {s.shots}-shot" if s.shots else ""
            values.setdefault(f"{s.task}/{s.data}{shots} {s.metric}", []).append(s.value)
        for name, several in values.items():
            series.setdefault(name, []).append((horizon.images_seen, sum(several) / len(several)))
    return series


def assert_same(series: dict[str, list[tuple[int, float]]], record: Record) -> None:
    for name, points in expected(record).items():
        ours = series[name]
        assert [x for x, _ in ours] == [x for x, _ in points], name
        assert [y for _, y in ours] == pytest.approx([y for _, y in points], rel=1e-6)  # TensorBoard has 32 bits


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory):
    """The study after each of several kills, and when it is done."""
    folder = tmp_path_factory.mktemp("killed")
    store, copies = folder / SUITE, []
    for kill in KILLS:
        assert attempt(store, [CELL], kill, suite="test") < 0
        copies.append(shutil.copytree(store, folder / f"{len(copies)}" / SUITE))
    assert attempt(store, [CELL], suite="test") == 0
    return [*copies, store]


@pytest.mark.gate
@pytest.mark.parametrize("name", NAMES)
def test_after_kills_a_tracker_has_the_series_of_the_record_once(name, snapshots, tmp_path):
    if not trackers.installed(name):
        pytest.skip(f"{name} is not installed")
    home, partial = tmp_path / "home", 0
    for snapshot in [*snapshots, snapshots[-1]]:  # the last one twice
        study = tmp_path / SUITE
        shutil.rmtree(study / "cells", ignore_errors=True)
        shutil.copytree(snapshot / "cells", study / "cells", dirs_exist_ok=True)
        command = [sys.executable, "-m", "bench.report", "--suite", SUITE, "--results", str(tmp_path), "--to", name]
        environment = os.environ | {"PYTHONPATH": str(PROJECT), "TRACKIO_DIR": str(home)}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
        partial += snapshot != snapshots[-1] and bool(list(trackers.runs_of(study)))
    assert partial >= 2, "something is to be sent before the end"
    record = read_record(Study(snapshots[-1]).cell(CELL).record)
    series = getattr(readers, name)(tmp_path / SUITE, home)
    assert list(series) == [record.cell_id]
    assert_same(series[record.cell_id], record)


@pytest.mark.gate
def test_what_is_read_early_begins_what_is_read_later(snapshots):
    series = [next((run.rows for run in trackers.runs_of(study)), ()) for study in snapshots]
    for early, late in itertools.pairwise(series):
        assert late[: len(early)] == early
    assert 0 < len(series[0]) < len(series[-1])


@pytest.fixture
def study(tmp_path) -> Path:
    """Three cells of the committed study."""
    source = PROJECT / "tests/records/scaling/cells"
    for cell in sorted(source.glob("vit-*"))[:3]:
        shutil.copytree(cell, tmp_path / "kept" / "cells" / cell.name)
    return tmp_path / "kept"


def test_event_files_are_mended_and_otherwise_left_alone(study):
    pytest.importorskip("tensorboard")
    assert trackers.send(study, "tensorboard") == 3 and trackers.send(study, "tensorboard") == 0
    paths = sorted(study.glob("tensorboard/*/*"))
    whole = [path.read_bytes() for path in paths]
    paths[0].write_bytes(whole[0][:-7])  # cut short
    paths[1].write_bytes(b"x" + whole[1])  # something else
    assert trackers.send(study, "tensorboard") == 2
    assert [path.read_bytes() for path in paths] == whole
    series = readers.tensorboard(study, study)
    for directory in Study(study).directories():
        record = directory.read_record()
        assert_same(series[record.cell_id], record)


def test_tables_hold_every_score_and_every_point(study, capsys):
    import pandas as pd

    assert report.main(["--suite", "kept", "--results", str(study.parent), "--to", "csv"]) == EXIT_OK
    tables = {Path(line).stem: pd.read_csv(line) for line in capsys.readouterr().out.split()}
    records = [directory.read_record() for directory in Study(study).directories()]
    assert len(tables["scores"]) == sum(len(h.scores) for r in records for h in r.horizons)
    assert math.fsum(tables["curves"]["loss"]) == pytest.approx(math.fsum(y for r in records for y in r.curve.losses))
    assert set(tables["horizons"]["recipe.lr"]) == {r.cell.recipe.lr for r in records}


def test_damaged_records_are_named_and_left_out(study, capsys):
    record = sorted(study.glob("cells/*/record.json"))[0]
    record.write_text("{")
    asked = ["--suite", "kept", "--results", str(study.parent), "--to"]
    said = f"1 record is damaged and left out: {record} (not valid JSON"
    assert report.main([*asked, "csv"]) == EXIT_OK and said in capsys.readouterr().out
    assert report.main([*asked, "csv", "--json"]) == EXIT_OK
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["files"]) == 3 and said in captured.err
    pytest.importorskip("tensorboard")
    assert report.main([*asked, "tensorboard"]) == EXIT_OK
    out = capsys.readouterr().out
    assert "2 runs written" in out and said in out


def test_following_ends_with_the_last_cell_that_can_be_run(study):
    names = (*(directory.path.name for directory in Study(study).directories()), "never-0000000000")
    for refused in ({}, {"never-0000000000": "cannot be run: 28 px are too few"}):
        grid.write(study, grid.WantedCells(suite="scaling", scale="cpu", names=names, refused=refused))
        assert send.is_done(study) == bool(refused)


def test_mistakes_say_what_there_is(study, capsys, monkeypatch):
    assert report.main(["--suite", "kept", "--results", str(study.parent), "--to", "wandbb"]) == EXIT_USAGE
    assert "Did you mean 'wandb'" in capsys.readouterr().err
    assert report.main(["--suite", "kept", "--results", str(study.parent), "--to", "cvs"]) == EXIT_USAGE
    said = capsys.readouterr().err
    assert "Did you mean 'csv'" in said and "Known: csv, mlflow" in said
    monkeypatch.setattr(trackers, "installed", lambda name: False)
    with pytest.raises(UserError, match="pip install mlflow"):
        trackers.chosen(["mlflow"])
    assert trackers.chosen(["auto"]) == () and trackers.chosen(["none"]) == ()
