"""The instrument for first contact with a GPU, rehearsed on a processor."""

import argparse
import json
import os
import subprocess
import sys
import tarfile

import pytest

from tests.conftest import PROJECT
from tools.first_contact import plan
from tools.first_contact.__main__ import lines_of

FOLDER = PROJECT / "tools" / "first_contact"


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
    lines = [{"what": "ViT-S/16: ours", "images_per_second": 9_876.5}]
    (row,) = [line for line in plan.expectations(lines).splitlines() if "ViT-S/16" in line]
    assert row == "| ViT-S/16 | 8,800 to 10,500 | 9,876 | 7,600 to 9,000 |  | 11,500 to 13,000 |"
    said = [plan.beside_expected("ViT-S/16", "timm", rate).split()[0] for rate in (7_000, 8_000, 9_500)]
    assert said == ["below", "as", "above"] and plan.beside_expected("ViT-Ti/16", "ours", 1.0) == ""


@pytest.mark.gate
def test_a_rehearsal_leaves_files_that_can_be_read(tmp_path):
    """Whatever it had no time for: a busy machine is no failure, but a step that ends with an error is."""
    asked = (
        "imports;warm:ViT-Ti/16;race:ViT-Ti/16;rates:ViT-Ti/16;named:timm:test_vit;mixed:ViT-Ti/16;share;share:mps;same"
    )
    words = [
        "--cpu-rehearsal",
        "--out",
        str(tmp_path / "out"),
        "--work",
        str(tmp_path / "work"),
        "--minutes",
        "20",
        "--patience",
        "5",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tools.first_contact", *words, "--only", asked],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = json.loads((tmp_path / "out" / "first_contact.json").read_text())
    failed = [line for line in lines if line.get("outcome") == "fail"]
    assert not failed, (failed, (tmp_path / "out" / "first_contact.log").read_text())
    assert {line["step"] for line in lines} == set(asked.split(";"))
    assert {line["value"] for line in lines if line["what"] == "ended"} <= {"done", "out of time"}
    table = (tmp_path / "out" / "first_contact.md").read_text()
    assert len([row for row in table.splitlines() if row.startswith("| ")]) > len(lines)
    with tarfile.open(tmp_path / "out" / "records.tar.gz") as archive:
        archive.getnames()
