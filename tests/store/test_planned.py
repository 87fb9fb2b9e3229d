"""Cells that a study wants, times that it was planned at, and what status says of both."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from bench.analysis import evidence, study_data
from bench.commands import status
from bench.core import files
from bench.core.errors import EXIT_FAILED, EXIT_OK, EXIT_UNFINISHED, UserError
from bench.execute import work_off as run
from bench.execute.local import Failure
from bench.execute.worker import RunningAttempt
from bench.plan.plan import START_SECONDS
from bench.report import tables
from bench.store import built, grid, lease, planned
from bench.store import grid as plan
from bench.store.export import Collected, collect
from bench.store.lease import claim
from bench.store.planned import PlannedCost, PlannedRun
from bench.store.study import CellDirectory, Study
from bench.study.cell import Cell
from bench.study.fingerprint import Basis, Fingerprint
from tests.analysis._records import MODELS, World, write
from tests.plan.making import plan_of

# -- planned.json: a cell keeps the plan that it was begun under, and is compared with all that it took ----------------


def cost(seconds, **fields):
    return PlannedCost(seconds=seconds, **fields)


def test_a_cell_keeps_the_plan_that_it_was_begun_under(tmp_path):
    assert planned.read(tmp_path) == planned.NOTHING
    planned.add_plans(
        tmp_path, [(name, "missing", cost(seconds)) for name, seconds in zip("abc", (1.0, 2.0, 3.0), strict=True)]
    )
    planned.add_run(tmp_path, PlannedRun(ended="now", executor="local", workers=2, cells=3, planned=3.0, took=4.0))
    planned.add_plans(
        tmp_path, [("a", "partial", cost(10.0)), ("b", "missing", cost(20.0)), ("d", "partial", cost(40.0))]
    )
    plans = planned.read(tmp_path)
    assert {name: plan.seconds for name, plan in plans.cells.items()} == {"a": 1.0, "b": 20.0, "c": 3.0, "d": 40.0}
    assert [(run.cells, run.planned, run.took) for run in plans.runs] == [(3, 3.0, 4.0)]


@pytest.mark.parametrize("change", [{"cells": 7}, {"cells": {"a": {}}}, {"runs": [7]}, {"schema": "x"}])
def test_a_damaged_file_is_named(tmp_path, change):
    planned.add_plans(tmp_path, [("a", "missing", cost(1.0))])
    path = tmp_path / planned.FILE
    for body in (json.loads(path.read_text()) | change, {}):
        path.write_text(json.dumps(body))
        with pytest.raises(UserError, match=r"planned\.json is damaged"):
            planned.read(tmp_path)
    files.write_sealed(path, {"schema": 1, "cells": {}, "runs": []} | change)
    with pytest.raises(UserError, match=r"planned\.json is damaged"):
        planned.read(tmp_path)


def test_only_what_has_both_is_compared():
    plans = planned.Plans(cells={"a": cost(2.0), "b": cost(3.0), "c": cost(5.0), "gpu": cost(1.0, device="cuda")})
    took = {"a": (4.0, 1.5), "b": (5.0, 2.5), "unplanned": (9.0, 9.0), "c": (None, None)}
    compared = planned.compare(plans, took)
    assert (compared.cells, compared.planned, compared.took, compared.processor) == (2, 5.0, 9.0, 4.0)
    assert planned.compare(plans, took | {"gpu": (1.0, 1.0)}).processor is None
    assert planned.compare(plans, took | {"a": (4.0, None)}).processor is None
    assert planned.compare(plans, {"unplanned": (9.0, 9.0)}) is None


def test_the_report_compares_by_kind_of_cell(tmp_path):
    records = World.small(models=MODELS).records()
    study = write(records, tmp_path / "scaling")
    first, *others = [record.directory for record in records]
    planned.add_plans(study, [(name, "missing", cost(10.0)) for name in others])
    table = tables.planned(evidence.build(study_data.load(study)))
    assert sum(row["cells"] for row in table.rows) == len(others)
    total = sum(record.cost.seconds.total for record in records if record.directory != first)
    assert sum(row["cells"] * row["took"] for row in table.rows) == pytest.approx(total)
    assert all(row["more"] == pytest.approx(row["took"] / 10 - 1) for row in table.rows)
    assert tables.planned(evidence.build(study_data.load(write(records, tmp_path / "other")))) is None


def test_a_run_keeps_what_it_was_planned_at(tmp_path, monkeypatch):
    """Cells that an earlier run had done are no part of it."""
    first, second = (Cell(model="ViT-pico/14", data="glyphs", seed=seed, horizons=(64,)) for seed in range(2))
    start = plan_of([first, second], tmp_path, seconds=10.0)
    start = replace(start, cells=(replace(start.cells[0], state="done", seconds=None), start.cells[1]))
    did = []
    monkeypatch.setattr(run, "execute", lambda plan, *_, **__: did.append([cell.name for cell in plan.todo]) or [])
    out = Console(file=io.StringIO(), width=200)
    assert run.work_off(start, out, track=()) == [] and did == [[second.readable_name]]
    (kept,) = planned.read(tmp_path).runs
    assert (kept.cells, kept.planned) == (1, 10.0 + START_SECONDS) and "planned 14 s" in out.file.getvalue()
    monkeypatch.setattr(run, "execute", lambda *_, **__: [Failure("a", "it was to fail")])
    assert len(run.work_off(plan_of([first], tmp_path), out, track=())) == 1
    assert len(planned.read(tmp_path).runs) == 1  # a run that did not do all is not compared


def test_processor_time_is_that_of_every_attempt(tmp_path):
    directory = CellDirectory(tmp_path / "cell")
    directory.path.mkdir()

    def attempt(outcome):
        with claim(directory.lease) as lease:
            running = RunningAttempt(directory, lease)
            sum(range(300_000))
            running.finish(outcome)
            return running.processor_seconds()

    first, second = attempt("interrupted"), attempt("complete")
    assert 0 < first < second
    with claim(directory.lease) as lease:
        RunningAttempt(directory, lease)  # killed: nobody knows what it used
    assert attempt("complete") is None


# -- plan.json and collected results: what is missing is known, what is kept is whole ----------------------------------


REFUSED = {"never-0000000000": "cannot be run: 28 px are too few"}


@pytest.fixture
def study(tmp_path):
    """Three cells of which two are in the grid; a third of the grid was never started."""
    path = write(World.small().records(), tmp_path / "scaling")
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
    wanted = plan.read(path)
    assert wanted is not None and set(wanted.names) == {*names[1:], "never-0000000000"} and wanted.scale == "cpu"
    assert wanted.refused == REFUSED and wanted.downstream == ("digits", "folder:photos")
    assert plan.never_started(wanted, names) == ("never-0000000000",)
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
    from bench.commands import status
    from bench.report import build as report

    path, _ = study
    text = report.build(path, suite="scaling").markdown.read_text()
    assert "3 of 4 runs complete; 1 never started" in text and "1 of them outside the current grid" in text
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


@pytest.mark.parametrize(
    "text, said",
    [
        ("", (False, (), None, False)),
        ("suite = 'scaling'\nscale = 'paper'\n", (False, (), None, False)),
        ("suite = 'scaling'\nrehearse = true\n", (True, (), None, True)),
        ("rehearse = false\ntarget = [0.5, 0.9, 1.0, 0.0, 'all']\n", (False, (0.5, 0.9), None, True)),
        ("at = 1e18\ntarget = 0.5\n", (False, (), 1e18, True)),
        ("at = -1\n", (False, (), None, True)),
        ("at = 3\n", (False, (), 3.0, True)),
        ("at = [", (False, (), None, False)),  # it cannot be read
    ],
)
def test_a_study_file_says_what_was_asked_for(tmp_path, text, said):
    (tmp_path / grid.STUDY_FILE).write_text(text)
    read = (grid.is_rehearsal, grid.targets, grid.forecast_at, grid.says_more)
    assert tuple(each(tmp_path) for each in read) == said


@pytest.mark.parametrize(
    "now, aside",
    [
        (Basis(code=Fingerprint(digest="b", modules={}), images={"mnist": "1"}), "other-code"),
        (Basis(code=Fingerprint(digest="a", modules={}), images={"mnist": "2"}), "other-images"),
        (Basis(code=Fingerprint(digest="a", modules={}), images={"mnist": "1"}), None),
        (Basis(images={"digits": "1"}), None),
    ],
)
def test_results_of_other_code_or_images_are_set_aside_by_name(tmp_path, now, aside):
    directory = CellDirectory(tmp_path / "cell")
    cell = Cell(model="ViT-pico/7", data="mnist", horizons=(0,))
    directory.prepare(cell, Basis(code=Fingerprint(digest="a", modules={}), images={"mnist": "1"}))
    directory.record.write_text("a result")
    (directory.checkpoints / "step-1").mkdir(parents=True)
    directory.prepare(cell, now)
    kept = [path.name.rpartition("-")[0] for path in directory.path.glob("record.*-*.json")]
    assert kept == ([f"record.{aside}"] if aside else []) and directory.record.exists() is (aside is None)
    assert any(directory.checkpoints.glob("*")) is (aside is None), "a run goes on only from checkpoints of its own"
    assert directory.basis().agrees(now)


def test_what_a_report_wrote_is_known_and_nothing_else(tmp_path):
    """Names that lead elsewhere, or are of another kind, may be anybody's files."""
    assert built.read(tmp_path) == frozenset()
    mine = {"figures/compute.png", "tables/runs.csv"}
    others = {
        "cells/a.csv",
        "figures/../notes.md",
        "figures/a/b.png",
        "figures/notes.txt",
        "report.md",
        "/figures/a.png",
    }
    built.write(tmp_path, mine | others)
    assert built.read(tmp_path) == mine
    (tmp_path / built.BUILT).write_text("{}")
    assert built.read(tmp_path) == frozenset()


def test_collecting_never_removes_what_is_not_its_own(study, tmp_path):
    collect(study[0], tmp_path / "kept")
    (tmp_path / "kept" / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match=r"thesis\.tex"):
        collect(study[0], tmp_path / "kept")
    with pytest.raises(UserError, match="already contains the results"):
        collect(study[0], study[0])
    assert (tmp_path / "kept" / "thesis.tex").exists() and Study(study[0]).directories()


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


# -- vit-bench status: what a script may ask, and when watching ends ---------------------------------------------------


@pytest.fixture
def begun(tmp_path):
    """Two cells that are done."""
    return Study(write(World.small().records(), tmp_path / "scaling"))


def tried(begun, number, outcome, reason=None):
    """A cell without a result."""
    directory = begun.cells_path / f"other-{number:010d}"
    attempt = directory / "attempts" / "001"
    attempt.mkdir(parents=True)
    status_of = {"started": "2026-01-01", "ended": "2026-01-02", "outcome": outcome}
    files.write_sealed(attempt / "status.json", status_of | ({"reason": reason} if reason else {}))
    return directory


def call(begun, *words):
    return status.main(["--results", str(begun.path.parent), *words])


def test_a_script_learns_whether_to_wait(begun, monkeypatch):
    monkeypatch.setattr(status, "POLL_SECONDS", 0.01)
    assert call(begun, "--exit-code") == EXIT_OK
    assert call(begun, "--exit-code", "--watch") == EXIT_OK
    tried(begun, 1, "failed", "The disk is full.")
    assert call(begun, "--exit-code") == EXIT_FAILED and call(begun) == EXIT_OK
    assert call(begun, "--exit-code", "--watch") == EXIT_FAILED  # it ends: nobody is at it
    tried(begun, 2, "interrupted")
    assert call(begun, "--exit-code") == EXIT_UNFINISHED


def test_cells_that_cannot_be_run_or_were_not_begun(begun):
    names = tuple(directory.path.name for directory in begun.directories())
    wanted = grid.WantedCells(suite="scaling", scale="cpu", names=(*names, "a-1"), refused={"a-1": "too small"})
    grid.write(begun.path, wanted)
    assert call(begun, "--exit-code") == EXIT_FAILED
    grid.write(begun.path, grid.WantedCells(suite="scaling", scale="cpu", names=(*names, "a-1")))
    assert call(begun, "--exit-code") == EXIT_UNFINISHED


def test_cells_that_are_done_without_a_result_are_counted(tmp_path, capsys):
    world = World.small(seeds=(0,), models=MODELS)
    write([*world.records(), world.diverged("ViT-nano/7")], tmp_path / "scaling")
    assert status.main(["--results", str(tmp_path)]) == EXIT_OK
    assert "done (1 diverged)" in capsys.readouterr().out


def test_who_holds_a_cell_is_named(begun, monkeypatch, capsys):
    directory = tried(begun, 1, "running")
    monkeypatch.setenv(lease.RUNNER, "slurm job 12_3")
    with lease.claim(directory / "lease.json"):
        assert call(begun, "--json") == EXIT_OK
    (cell,) = [c for c in json.loads(capsys.readouterr().out)["scaling"] if c["state"] == "running"]
    assert "slurm job 12_3" in cell["note"]


def test_a_finished_cell_is_read_once_while_watching(begun, monkeypatch):
    looked = []
    describe = status.describe
    monkeypatch.setattr(status, "describe", lambda directory: looked.append(1) or describe(directory))
    finished = {}
    first = status.cells_of(begun, finished)
    assert status.cells_of(begun, finished) == first and len(looked) == len(first)
    record = begun.directories()[0].record
    record.write_bytes(record.read_bytes()[:-20])  # damaged since
    assert "damaged" in {cell.state for cell in status.cells_of(begun, finished)}
