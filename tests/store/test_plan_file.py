"""plan.json and collected results: what is missing is known, what is kept is whole."""

from __future__ import annotations

import json

import pytest

from bench.core.errors import UserError
from bench.store import grid as plan
from bench.store.export import Collected, collect
from bench.store.study import Study
from tests.analysis._records import World, write

REFUSED = {"never-0000000000": "cannot be run: 28 px are too few"}


@pytest.fixture
def study(tmp_path):
    """Three cells of which two are in the grid; a third of the grid was never started."""
    world = World(seed=1)
    world.models = {"ViT-nano/7": world.models["ViT-nano/7"]}
    world.sizes, world.seeds, world.draws, world.shots = (30_000,), (0, 1), (0,), (1,)
    path = write(world.records(), tmp_path / "scaling")
    names = [directory.path.name for directory in Study(path).directories()]
    wanted = plan.WantedCells(
        suite="scaling",
        scale="cpu",
        names=(*names[1:], "never-0000000000"),
        refused=REFUSED,
        downstream=("digits", "folder:photos"),
    )
    plan.write(path, wanted)
    return path, names


def test_what_was_written_is_read(study):
    path, names = study
    found = plan.read(path)
    assert found is not None and set(found.names) == {*names[1:], "never-0000000000"} and found.scale == "cpu"
    assert found.refused == REFUSED and found.downstream == ("digits", "folder:photos")
    assert plan.never_started(found, names) == ("never-0000000000",)
    assert plan.read(path / "cells") is None and plan.never_started(None, names) == ()


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "damaged"),
        ("[]", "damaged"),
        ('{"schema": 1}', "damaged"),
        ("[" * 99_999, "damaged"),
        ('{"schema": 1e999, "suite": "a", "scale": "b", "cells": []}', "damaged"),
        ('{"schema": 1, "suite": "a", "scale": "b", "cells": "abc"}', "damaged"),
        ('{"schema": 1, "suite": "a", "scale": "b", "cells": [1]}', "damaged"),
        ('{"schema": 1, "suite": "a", "scale": "b", "cells": [], "refused": 5}', "damaged"),
        ('{"schema": 1, "suite": "a", "scale": "b", "cells": [], "downstream": "abc"}', "damaged"),
        ('{"schema": 99, "suite": "a", "scale": "b", "cells": []}', "newer version"),
    ],
)
def test_a_damaged_or_newer_plan_is_one_message(study, text, message):
    (study[0] / plan.PLAN_FILE).write_text(text)
    with pytest.raises(UserError, match=message):
        plan.read(study[0])


@pytest.mark.parametrize("name", [plan.PLAN_FILE, "store.json"])
def test_a_folder_in_place_of_a_file_is_one_message(study, name):
    path, _ = study
    (path / name).unlink(missing_ok=True)
    (path / name).mkdir()
    with pytest.raises(UserError, match=f"{name} is damaged"):
        plan.read(path) if name == plan.PLAN_FILE else Study(path).create()
    if name == plan.PLAN_FILE:
        with pytest.raises(UserError, match="folder"):
            plan.write(path, plan.WantedCells(suite="scaling", scale="cpu", names=()))


def test_the_report_and_status_name_cells_that_were_never_started(study, capsys):
    from bench import status
    from bench.report import build as report

    path, _ = study
    text = report.build(path, suite="scaling").markdown.read_text()
    assert "3 of 4 cells complete; 1 never started" in text and "1 of them outside the current grid" in text
    assert status.main(["--results", str(path.parent), "--suite", "scaling", "--json"]) == 0
    listed = {cell["name"]: (cell["state"], cell["note"]) for cell in json.loads(capsys.readouterr().out)["scaling"]}
    assert listed.pop("never-0000000000") == ("never started", *REFUSED.values())
    assert [state for state, _ in listed.values()] == ["done"] * 3
    assert status.main(["--suite", "scaling", "--results", str(path.parent), "--watch"]) == 0  # it ends
    assert REFUSED["never-0000000000"] in (path / "tables" / "coverage.csv").read_text()


def test_collecting_keeps_the_records_of_the_grid_byte_for_byte(study, tmp_path):
    path, names = study
    target = tmp_path / "kept" / "scaling-cpu"
    for _ in range(2):  # a second time replaces the first
        assert collect(path, target) == Collected(kept=tuple(names[1:]), left_out=tuple(names[:1]))
        files = sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file())
        assert files == sorted([*(f"cells/{name}/record.json" for name in names[1:]), "plan.json"])
        for name in names[1:]:
            assert (target / "cells" / name / "record.json").read_bytes() == (
                path / "cells" / name / "record.json"
            ).read_bytes()
        (target / "figures").mkdir()
        (target / "figures" / "old.png").write_text("of an earlier report")


def test_collecting_never_removes_what_is_not_its_own(study, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match="no exported study"):
        collect(study[0], tmp_path / "mine")
    collect(study[0], tmp_path / "kept")
    (tmp_path / "kept" / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match=r"thesis\.tex"):
        collect(study[0], tmp_path / "kept")
    with pytest.raises(UserError, match="already contains the results"):
        collect(study[0], study[0])
    assert (tmp_path / "mine" / "thesis.tex").exists() and Study(study[0]).directories()


def test_folders_that_are_called_as_a_reports_are_their_owners(study, tmp_path):
    mine = tmp_path / "mine"
    for name in ("figures/drawn-by-hand.pdf", "tables/survey.csv", "report.md"):
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text("mine")
    with pytest.raises(UserError, match="no exported study"):
        collect(study[0], mine)
    assert {p.read_text() for p in mine.rglob("*") if p.is_file()} == {"mine"} and len(list(mine.rglob("*.*"))) == 3
    kept = tmp_path / "kept"
    collect(study[0], kept)
    (kept / "figures").mkdir()
    (kept / "figures" / "drawn-by-hand.pdf").write_text("mine")
    collect(study[0], kept)
    assert (kept / "figures" / "drawn-by-hand.pdf").read_text() == "mine"
