"""Cells that share GPUs by NVIDIA's MPS, with a command in place of its own that writes down what is asked of it."""

import os
import signal
import subprocess
import sys

import pytest

from bench.core.device import MPS_CONTROL
from bench.core.errors import UserError
from bench.execute import local
from bench.execute.sharing import served
from bench.store.study import Study
from bench.study.cell import Cell
from bench.suites._recipes import recipe_for
from tests.gpu.posing import posing
from tests.plan.making import plan_of


@pytest.fixture
def spoken(tmp_path, monkeypatch):
    """(arguments, standard input, folder of pipes, visible devices, their order) of each call so far."""
    script, log = tmp_path / "bin" / MPS_CONTROL, tmp_path / "log"
    script.parent.mkdir()
    variables = '"$*" "$(cat)" "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_VISIBLE_DEVICES" "$CUDA_DEVICE_ORDER"'
    script.write_text(f"#!/bin/sh\nprintf '%s|%s|%s|%s|%s\\n' {variables} >> {log}\ntest ! -e {tmp_path}/refuse\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    return lambda: [tuple(line.split("|")) for line in log.read_text().splitlines()]


START, QUIT = ("-d", ""), ("", "quit")


@pytest.mark.gate
def test_a_daemon_serves_one_study_and_ends_with_the_run(spoken, tmp_path):
    """With a second run of it too; and what a kill has left is ended by the next run."""
    study = tmp_path / "study"
    with served(study) as given, served(study) as again:
        assert given == again
        folder = given["CUDA_MPS_PIPE_DIRECTORY"]
        assert os.stat(folder).st_mode & 0o777 == 0o700
        assert [call[:2] for call in spoken()] == [QUIT, START]
    assert [call[:2] for call in spoken()] == [QUIT, START, QUIT]
    assert {call[2:] for call in spoken()} == {(folder, "", "PCI_BUS_ID")}
    with served(tmp_path / "other") as other:
        assert other["CUDA_MPS_PIPE_DIRECTORY"] != folder
    killed = "import os, sys, pathlib; from bench.execute.sharing import served\n"
    killed += "with served(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", killed, str(study)])
    assert done.returncode == -signal.SIGKILL and spoken()[-1][:3] == (*START, folder)
    with served(study):
        assert [call[:2] for call in spoken()[-2:]] == [QUIT, START]


def test_a_daemon_ends_with_the_last_run_of_its_study(spoken, tmp_path):
    """A second one goes on with it after the first has ended; one that begins when all have ended gets a new daemon."""
    study = tmp_path / "study"
    first, second, third = served(study), served(study), served(study)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert [call[:2] for call in spoken()] == [QUIT, START]
    with third:
        second.__exit__(None, None, None)
        assert [call[:2] for call in spoken()] == [QUIT, START]
    with served(study):
        assert [call[:2] for call in spoken()] == [QUIT, START, QUIT, QUIT, START]


def test_a_daemon_that_does_not_start_is_one_error(spoken, tmp_path):
    (tmp_path / "refuse").touch()
    with pytest.raises(UserError, match=f"{MPS_CONTROL} cannot be started"), served(tmp_path / "study"):
        pytest.fail("served")


@pytest.mark.parametrize("share, joules", [("mps", "2"), ("2", "2"), ("none", "1")])
def test_workers_find_the_daemon_and_their_share_of_joules(share, joules, spoken, tmp_path, monkeypatch):
    for name in ("_started", "_listen"):
        monkeypatch.setattr(local.Pool, name, lambda *_: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    cells = [Cell(model="ViT-pico/14", data="glyphs", seed=seed, recipe=recipe_for("ViT-pico/14")) for seed in range(4)]
    workers = 2 if share == "none" else 4
    with posing():
        plan = plan_of(cells, tmp_path / "study", device="cuda", workers=workers, share=share)
        Study(plan.store).create()
        pool = local.Pool(plan, profile=False)
        gain = plan.seconds_in_turns / plan.seconds  # where no cell fills a GPU
    pipes = {environment.get("CUDA_MPS_PIPE_DIRECTORY") for environment in pool._environments}
    assert pool._command[pool._command.index("--share") + 1] == joules
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in pool._environments] == ["0", "1", "0", "1"][:workers]
    pool._open.close()
    if share == "mps":
        assert pipes == {spoken()[0][2]} and [call[:2] for call in spoken()] == [QUIT, START, QUIT]
    else:
        assert pipes == {None} and not (tmp_path / "log").exists()
    assert (gain > 1.0) == (share != "none")
