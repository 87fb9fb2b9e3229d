"""A user's mistake: one message that says what, where, what is allowed; exit code 2; no traceback; nothing written."""

import errno
import json
import os
import subprocess
import tomllib

import pytest

from bench import SCHEMA_VERSION, flops, run, status
from bench.core import environment, files
from bench.core.errors import UserError, command
from bench.plan import estimate
from bench.plan.cost_model import NOTHING_MEASURED
from bench.plan.options import StudyOptions


def refused(done, *words: str) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--suite", "scalling"), ("Unknown suite 'scalling'", "'scaling'")),
        (("--suite", "smoke", "--models", "ViT-nanno/7"), ("Unknown model 'ViT-nanno/7'", "'ViT-nano/7'")),
        (("--suite", "smoke", "--data", "fashion-minst"), ("Unknown data set 'fashion-minst'", "'fashion-mnist'")),
        (("--suite", "smoke", "--tasks", "fewshots"), ("Unknown task 'fewshots'", "'fewshot'")),
        (("--suite", "smoke", "--scale", "gpus"), ("Unknown scale 'gpus'", "'gpu'")),
        (("--suite", "smoke", "--device", "tpu"), ("Unknown device 'tpu'", "cuda")),
        (("--suite", "smoke", "--only", "nothing-like-this"), ("No cell matches", "vit-pico")),
        (("--suite", "smoke", "--seeds", "0"), ("whole number of at least 1",)),
        (("--suite", "smoke", "--wrokers", "2"), ("--wrokers", "--workers")),
        (("--suit", "smoke"), ("Unknown option '--suit'", "mean --suite?")),
        (("--max=3",), ("--max-unreadable or --max-cells?",)),
        (("--suite", "smoke", "--data", "/dev"), ("mean 'folder:dev --data-root /'?",)),
        (("--suite", "smoke", "--horizons", "1e30"), ("'1e30' is not a length", "2epochs")),
        (("--suite", "smoke", "--sizes", "3k"), ("--sizes: '3k' is not a whole number",)),
        (("a.toml", "b.toml"), ("One word too many: 'b.toml'",)),
        (("--suite", "smoke", "--executor", "slrum"), ("--executor 'slrum'", "mean 'slurm'", "ray")),
        (("--suite", "smoke", "--data-root", "no/such/folder"), ("no/such/folder", "not a folder")),
        (("--suite", "smoke", "--models", "ViT-pico/5"), ("28", "5", "4, 7, 14")),
        (("--suite", "smoke", "--models", ""), ("--models", "empty")),  # of `--models "$MODELS"`
        (("--suite", "smoke", "--data=,"), ("--data", "empty")),
        (("--suite", "smoke", "--only", " "), ("--only", "empty")),
        (("--suite", "smoke", "--results="), ("--results", "empty")),
        (("--suite", "smoke", "--tasks", "fewshot:shots=1"), ("Unknown task", "'fewshot'")),
        (("--suite", "smoke", "--seeds", "9" * 12), ("--seeds", "at most 1000")),
        (("--suite", "smoke", "--seeds", "²"), ("whole number of at least 1",)),
        (("--suite", "smoke", "--workers", "9999", "--seeds", "1000"), ("processes", "product is at most")),
        (("--suite", "smoke", "--models", f"R{'9' * 5000}x1"), ("Unknown model",)),
        (("--suite", "smoke", "--data", "fashion-mnist@_"), ("not a data set", "name@N")),
        (("--suite", "smoke", "--job", "partition=gpu"), ("--job", "--executor slurm")),
        (("--suite", "smoke", "--set", "model.dropout=x"), ("dropout='x'", "from 0 to below 1")),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else None,
)
def test_unknown_or_impossible(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(environment, "cores", lambda: 1)  # one process that tries to build the model, not two
    code = run.main(list(arguments))
    said = capsys.readouterr()
    refused(subprocess.CompletedProcess(arguments, code, said.out, said.err), *words)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("value", ["3", "0.5", "true", "2024-01-01"])
@pytest.mark.parametrize("name", ["set", "sweep", "grid", "only", "job", "plugins"])
def test_a_study_file_with_one_value_where_several_are_wanted(verb, tmp_path, name, value):
    (tmp_path / "s.toml").write_text(f'suite = "smoke"\n{name} = {value}\n')
    refused(verb("plan", "s.toml"), "s.toml", f"{name} takes a ", value.replace("t", "T"), "It is: ")
    with pytest.raises(UserError, match=f"{name} takes a "):
        StudyOptions.called(None, {"suite": "smoke", name: tomllib.loads(f"v = {value}")["v"]})


@pytest.mark.parametrize(
    "line, words",
    [
        (r'results = "\u0000"', ("results", "null byte")),
        (r'data_root = "a\u0000"', ("data_root", "null byte")),
        ("only = {a = 1}", ("only takes a list", "{'a': 1}")),
        (f"seeds = {'9' * 5000}", ("is not TOML",)),
    ],
)
def test_a_study_file_with_what_an_option_cannot_be(verb, tmp_path, line, words):
    (tmp_path / "s.toml").write_text(f'suite = "smoke"\n{line}\n')
    refused(verb("plan", "s.toml"), "s.toml", *words)
    assert os.listdir(tmp_path) == ["s.toml"]


PRINTS = """
print("at import")
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        print("built")
        print(3)
        self.fc = nn.Linear(8, num_classes)
        self.body = nn.Conv2d(1, 8, 3)

    def forward(self, x):
        print("forward", end="")
        return self.fc(self.body(x).relu().mean((2, 3)))
"""


def test_what_a_network_prints_is_no_answer(verb, tmp_path):
    (tmp_path / "prints.py").write_text(PRINTS)
    counted = verb("flops", "prints.py:Net", "--image-size", "28", "--channels", "1", "--classes", "10", "--json")
    assert json.loads(counted.stdout)["params"] == 170 and "at import" in counted.stderr
    planned = verb("plan", "--suite", "smoke", "--models", "prints.py:Net", "--only", "*100*", "--calibrate", "--json")
    assert planned.returncode == 0 and json.loads(planned.stdout)["cells"], planned.stderr


def test_a_model_file_that_ends_the_program(verb, tmp_path):
    (tmp_path / "script.py").write_text('import argparse\nargparse.ArgumentParser().parse_args(["--no"])\nNet = 1\n')
    done = verb("flops", "script.py:Net")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "script.py, line 2, ends the program" in done.stderr and "__main__" in done.stderr


@pytest.mark.parametrize(
    "words", [("--images", "nan"), ("--images", "-1"), ("--images", "1e400"), ("--image-size", "99999999999"), ("",)]
)
def test_what_no_training_could_cost_is_not_costed(capsys, words):
    assert flops.main(["ViT-pico/7", *words]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_process_ends_as_its_main_function_says(bench, tmp_path):
    refused(bench("run", "--suite", "scalling"), "Unknown suite 'scalling'")
    assert os.listdir(tmp_path) == []


def test_a_results_folder_that_is_a_file(verb, tmp_path):
    (tmp_path / "results").write_text("mine")
    refused(verb("run", "--suite", "smoke", "--only", "pixels"), "results", "--results")
    assert (tmp_path / "results").read_text() == "mine"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that nobody can write, /proc")
def test_a_results_folder_that_cannot_be_written(verb):
    refused(verb("run", "--suite", "smoke", "--only", "pixels", "--results", "/proc/results"), "/proc/results")


def test_a_store_from_a_newer_version(verb, tmp_path):
    study = tmp_path / "results" / "smoke"
    study.mkdir(parents=True)
    (study / "store.json").write_text(json.dumps({"schema": SCHEMA_VERSION + 1}))
    refused(verb("run", "--suite", "smoke"), "newer version", "store.json")
    refused(verb("status", "--suite", "smoke"), "No study")
    assert os.listdir(study) == ["store.json"]


def test_a_full_disk(verb, tmp_path, monkeypatch):
    """One sentence, and nothing half-written. What workers meet on one is tried in tests/reliability/."""

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(estimate, "calibrate", lambda *_, **__: NOTHING_MEASURED)
    monkeypatch.setattr(estimate, "cell_cost", lambda *_, **__: estimate.CellCost(seconds=1.0))
    monkeypatch.setattr(files.os, "fsync", full)
    refused(verb("run", "--suite", "smoke", "--only", "vit-pico*100"), "full", "Free some space")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_verbs_without_a_study(verb):
    for name in ("report", "status"):
        refused(verb(name, "--suite", "smoke"), "smoke" if name == "report" else "results")


def test_a_file_that_may_not_be_read_is_named(capsys):
    """Raised, not found: whoever runs tests may be root, who reads everything."""

    @command
    def verb(argv=None):
        raise PermissionError(errno.EACCES, "Permission denied", "results/theirs/cells")

    code = verb()
    refused(subprocess.CompletedProcess((), code, "", capsys.readouterr().err), "No permission", "results/theirs/cells")


@pytest.mark.parametrize("theirs", ["results", "results/scaling/cells"])
def test_a_study_that_may_not_be_read_is_not_said_to_be_absent(tmp_path, monkeypatch, capsys, theirs):
    """Raised, for root reads everything."""
    (tmp_path / "results/scaling/cells").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    def guarded(real):
        def listed(path="."):
            if os.fspath(path) == theirs:
                raise PermissionError(errno.EACCES, "Permission denied", theirs)
            return real(path)

        return listed

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, guarded(getattr(os, name)))
    code = status.main([])
    refused(subprocess.CompletedProcess((), code, "", capsys.readouterr().err), "No permission", theirs)
