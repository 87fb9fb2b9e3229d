"""The instrument for first contact with a GPU, rehearsed on a processor."""

import argparse
import json
import os
import re
import select
import subprocess
import sys
import tarfile
import time
import tomllib

import pytest

from tests.conftest import PROJECT
from tests.gpu import posing
from tools.first_contact import plan
from tools.first_contact.__main__ import Notebook, Running, lines_of

FOLDER = PROJECT / "tools" / "first_contact"
ONLY_ON_A_GPU = ("idle power by NVML",)


def test_what_the_project_needs_is_on_a_bare_machine_or_carried():
    needed = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.match(r"[\w-]+", each)[0].lower().replace("_", "-") for each in needed}
    there = re.findall(r"[a-z0-9-]+", (FOLDER / "prepare.sh").read_text().replace("_", "-"))
    assert names <= set(there), names - set(there)


def test_a_second_call_keeps_the_lines_of_the_first(tmp_path):
    for number in (1, 2):
        Notebook(tmp_path).add("step", {"what": f"line {number}"})
    assert [line["what"] for line in json.loads((tmp_path / "first_contact.json").read_text())] == ["line 1", "line 2"]


def test_a_step_that_is_over_leaves_nobody_beside_what_is_timed_next(tmp_path, monkeypatch):
    """A study's workers have sessions of their own."""
    told = tmp_path / "pid"
    code = f"""
import pathlib, subprocess, time
worker = subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path({str(told)!r}).write_text(f"{{worker.pid}} ")
time.sleep(600)
"""
    started = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda _, **how: started([sys.executable, "-c", code], **how))
    given = argparse.Namespace(device="cpu", work=tmp_path, cpu_rehearsal=True)
    running = Running(plan.Step("step", 600), Notebook(tmp_path / "out"), given, limit=600, side=1)
    while not told.exists() or not told.read_text().endswith(" "):
        time.sleep(0.01)
    worker = os.pidfd_open(int(told.read_text()))
    running.end()
    assert select.select([worker], [], [], 60)[0]  # it has ended
    os.close(worker)


def test_commands_and_what_is_carried_are_within_the_limits_of_a_lent_machine():
    for name in ("command.txt", "command_again.txt"):
        assert len((FOLDER / name).read_text()) < 2000
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("no checkout")
    sizes = [path.stat().st_size for name in tracked.stdout.split("\0") if (path := PROJECT / name).is_file()]
    assert sum(sizes) < 48 << 20  # of 64 MiB; the wheels are one


@pytest.mark.parametrize("rehearsal", [True, False])
def test_every_step_is_one_that_can_be_done(rehearsal):
    from bench.execute.machine_checks import CHECKS

    known = {check.name for check in CHECKS}
    steps = [step for stage in plan.stages(rehearsal=rehearsal) for step in stage]
    assert len({step.name for step in steps}) == len(steps) and all(step.least < step.limit for step in steps)
    for step in steps:
        lines_of(argparse.Namespace(step=step.name, cpu_rehearsal=rehearsal, device="cpu"))
        kind, _, names = step.name.partition(":")
        assert kind != "check" or set(names.split(",")) <= known
    with pytest.raises(ValueError, match="no step"):
        lines_of(argparse.Namespace(step="nothing", cpu_rehearsal=rehearsal, device="cpu"))


def test_what_is_measured_stands_beside_what_was_expected():
    lines = [
        {"what": "ViT-S/16: ours", "images_per_second": 9_876.5},
        {"what": "ViT-S/16: memory", "over_predicted": 1.078},
        {"what": f"ViT-S/16: {plan.LOSSES}", "value": 0.00312},
    ]
    (row,) = [line for line in plan.expectations(lines).splitlines() if "ViT-S/16" in line]
    assert row == "| ViT-S/16 | 8,800 to 10,500 | 9,876 | 7,600 to 9,000 |  | 11,500 to 13,000 | 1.08 | 0.0031 |"
    said = [plan.beside_expected("ViT-S/16", "timm", rate).split()[0] for rate in (7_000, 8_000, 9_500)]
    assert said == ["below", "as", "above"] and plan.beside_expected("ViT-Ti/16", "ours", 1.0) == ""


@pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=pytest.mark.nightly), pytest.param("cuda", marks=pytest.mark.gate)]
)
def test_a_rehearsal_leaves_files_that_can_be_read(device, tmp_path):
    """The whole on a processor; and on one that poses as a GPU what only the instrument does there. A busy machine is
    no failure, but a step that ends with an error is."""
    names = [step.name for stage in plan.stages(rehearsal=True) for step in stage]
    words = ["--cpu-rehearsal", "--minutes", "60", "--patience", "20"]
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    if device == "cuda":  # studies: tests/gpu/test_posing.py; the doctor: test_doctor.py
        names = [name for name in names if not name.startswith(("check:", "study:", "same"))]
        words += ["--device", "cuda", "--only", ";".join(names)]
        environment |= posing.environment()
    done = subprocess.run(
        [sys.executable, "-m", "tools.first_contact", "--out", str(tmp_path), "--work", str(tmp_path / "work"), *words],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = json.loads((tmp_path / "first_contact.json").read_text())
    failed = [line for line in lines if line.get("outcome") == "fail" and line["what"] not in ONLY_ON_A_GPU]
    assert not failed, (failed, (tmp_path / "first_contact.log").read_text())
    assert {line["step"] for line in lines} == set(names)
    assert {line["value"] for line in lines if line["what"] == "ended"} <= {"done", "out of time"}
    rows = (tmp_path / "first_contact.md").read_text().splitlines()
    assert len([row for row in rows if row.startswith("| ")]) == len(lines) + len(plan.EXPECTED) + 2
    with tarfile.open(tmp_path / "records.tar.gz") as archive:
        studies = {name.partition("/")[0] for name in archive.getnames() if name.endswith("record.json")}
    assert studies == ({"study-smoke-cpu", "study-scaling-cpu"} if device == "cpu" else set())
