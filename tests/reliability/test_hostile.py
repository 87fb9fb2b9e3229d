"""A results folder or a working directory of somebody else's: nothing outside it is read, written, removed or run."""

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import run
from bench.commands import status
from bench.core.errors import EXIT_OK, EXIT_USAGE, UserError
from bench.plan import __main__ as plan
from bench.plan import estimate
from bench.plan.cost_model import NOTHING_MEASURED
from bench.report import build as report
from bench.report.__main__ import main as report_main
from bench.report.style import PAGE
from bench.store import lease
from bench.store.study import WEIGHTS, Study
from bench.study import registry
from bench.study.options import StudyOptions
from tests.analysis._records import World, write
from tests.conftest import PROJECT

OWN = "a file of the user's"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A finished study of a few records."""
    records = [replace(record, suite="smoke") for record in World.small(seeds=(0,)).records()]
    return write(records, tmp_path / "results" / "smoke")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the user's with what a study would remove or replace."""
    folder = tmp_path / "outside"
    for name in ("compute.png", "step-000000001/state.json", WEIGHTS, "other_s0/record.json", "1/status.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(OWN)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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


DISGUISES = {  # what stands in place of a file
    "link": lambda path, outside: path.symlink_to(outside / "compute.png"),
    "dead link": lambda path, outside: path.symlink_to(outside / "new"),
    "pipe": lambda path, _: os.mkfifo(path),
    "folder": lambda path, _: path.mkdir(),
    "giant": lambda path, _: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40),
    "deep": lambda path, _: path.write_text("[" * 100_000),
    "names outside": lambda path, outside: path.write_text(
        json.dumps([str(outside / "compute.png"), "../../../outside/1"])
    ),
}
OF_A_CELL = ("record.json", "spec.json", "checkpoints", "attempts/1/status.json", "attempts/1/metrics.jsonl", "weights")
OF_A_STUDY = ("plan.json", "planned.json", "store.json", "built.json", "study.toml", "findings.json", "fits.json")
OF_A_STUDY += ("report.html", "tables", "tables/scores.csv", "figures", "inside", ".jobs", ".compiled")


@pytest.mark.gate
@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("name", (*OF_A_CELL, *OF_A_STUDY))
def test_no_file_of_a_study_is_more_than_a_file(name, disguise, study, outside, tmp_path, monkeypatch, capsys):
    """It is refused, set aside, replaced or passed over in a sentence, by every command, in a short time."""
    monkeypatch.setattr(report, "_draw", lambda *_, **__: ([], [], []))
    monkeypatch.setattr(estimate, "calibrate", lambda *_, **__: NOTHING_MEASURED)
    monkeypatch.setattr(estimate, "cell_cost", lambda *_, **__: estimate.CellCost(seconds=1.0))
    cell = min((study / "cells").iterdir())
    place = (cell if name in OF_A_CELL else study) / name
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        place.rename(tmp_path / "moved")
    DISGUISES[disguise](place, outside)
    before = contents(outside)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(60)
    for command in (status.main, report_main, plan.main, report_main):
        code = command(["--suite", "smoke", "--results", str(study.parent)])
        said = capsys.readouterr()
        assert code in (EXIT_OK, EXIT_USAGE) and "Traceback" not in said.err, said.err
        assert (code == EXIT_OK) != said.err.startswith("error: "), (code, said.err)
    signal.alarm(0)
    assert contents(outside) == before


def test_results_themselves_may_lie_behind_a_link(study, tmp_path):
    (tmp_path / "linked").symlink_to(study.parent, target_is_directory=True)
    assert report.build(tmp_path / "linked" / "smoke", suite="smoke").html.is_file()


@pytest.mark.gate
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS], ids=errno.errorcode.get)
def test_a_fault_at_any_file_of_a_report_is_one_sentence_and_the_next_report_is_whole(
    code, study, tmp_path, monkeypatch, capsys
):
    sync, command = os.fsync, ["--suite", "smoke", "--results", str(study.parent)]
    drawn = report._draw({"compute": report.measured(study, "smoke", None)[0]}, PAGE)
    monkeypatch.setattr(report, "_draw", lambda *_, **__: drawn)
    assert report_main(command) == EXIT_OK
    whole = contents(study)
    for number in range(1000):
        left = [number]

        def fails(handle, left=left):
            left[0] -= 1
            if left[0] == -1:
                raise OSError(code, os.strerror(code), "somewhere")
            sync(handle)

        monkeypatch.setattr(os, "fsync", fails)
        ended = report_main(command)
        monkeypatch.setattr(os, "fsync", sync)
        if left[0] >= 0:
            break
        said = capsys.readouterr().err
        assert ended == EXIT_USAGE and said.startswith("error: ") and "Traceback" not in said, (number, said)
        assert not list(study.rglob("*.tmp"))
        assert {name: data for name, data in contents(study).items() if name != "built.json"} == {
            name: data for name, data in whole.items() if name != "built.json"
        }
    assert number > len(list((study / "tables").iterdir())) > 10
    assert report_main(command) == EXIT_OK and contents(study) == whole


CODE = "from pathlib import Path\nPath({ran!r}).touch()\n"
STUDY_FILES = {  # what a study file of somebody else's says -> what is said of it; or None: it runs nothing
    'plugins = ["{evil}"]': "asks for plug-ins in {evil}: code",
    'plugins = ["."]': "asks for plug-ins in .: code",
    'plugins = ["{evil}/../evil"]\nsuite = "evil"': "asks for plug-ins in {evil}/../evil",
    'suite = "../evil"': "Unknown suite",
    'suite = "evil"': "Unknown suite",
    'models = ["../evil/models/evil"]': "Unknown model",
    'data = ["folder:../evil"]': "folder named '..",
    'executor = "evil"': "executor",
    'track = ["../evil"]': "tracker",
    'reference = "../evil"': "reference",
    "seeds = 99999999999": "at most 1000",
    "[set]\nlr = '__import__(\"os\")'": "lr cannot be",
    "[set.model]\ndepth = '{dashes}'": "depth",
    "x = {dashes}": "is not TOML",
    "job = ['--wrap=touch {ran}']": "job",
    "only = ['../../*']": "No run matches",
}


@pytest.mark.parametrize("text", STUDY_FILES)
def test_a_study_file_runs_nothing_that_the_user_has_not_named(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(registry.PLUGINS, raising=False)
    evil = tmp_path / "evil"
    names = {"evil": str(evil), "ran": str(tmp_path / "ran"), "dashes": "-" * 5000}
    for folder in registry.SUBFOLDERS.values():
        (evil / folder).mkdir(parents=True)
        (evil / folder / "evil.py").write_text(CODE.format(**names))
    head = "" if "suite =" in text else 'suite = "smoke"\n'
    (tmp_path / "theirs.toml").write_text(head + text.format(**names))
    said = STUDY_FILES[text].format(**names)
    for command in (run.main, *((plan.main, report_main, status.main) if "plug-ins" in said else ())):
        assert command(["theirs.toml"]) == EXIT_USAGE
        shown = capsys.readouterr().err
        assert said in shown and "Traceback" not in shown and len(shown) < 12_000
    assert sorted(os.listdir(tmp_path)) == ["evil", "theirs.toml"]


@pytest.mark.parametrize("named", ["option", "variable"])
def test_plugins_of_a_study_file_that_the_user_names_too_are_found(named, tmp_path, monkeypatch):
    (tmp_path / "mine" / "tasks").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(registry.PLUGINS, str(tmp_path / "mine") if named == "variable" else "")
    (tmp_path / "mine.toml").write_text('plugins = ["mine"]')
    asked = {"plugins": ["./mine"]} if named == "option" else {}
    assert StudyOptions.called("mine.toml", asked).where.plugins == (("./mine",) if asked else ("mine",))


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


@pytest.mark.gate
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
