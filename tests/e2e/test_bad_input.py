"""A user's mistake: one message that says what, where, what is allowed; exit code 2; no traceback; nothing written."""

import errno
import io
import json
import os
import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from bench import SCHEMA_VERSION, run
from bench.analysis import study_data
from bench.commands import flops, status
from bench.core import environment, files
from bench.core.errors import EXIT_INTERRUPTED, UserError, command
from bench.plan import calibrate, estimate, preflight
from bench.plan.cost_model import NOTHING_MEASURED
from bench.plan.expand import expand
from bench.plan.sizes import DataSizes
from bench.store import records as records_file
from bench.study import suite as suites
from bench.study.cell import Cell, to_json
from bench.study.options import StudyOptions
from tests.analysis._records import World, write
from tests.conftest import PROJECT


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
        (("--suite", "smoke", "--models", "vit_base_patch16_224"), ("mean 'timm:vit_base_patch16_224'",)),
        (("--suite", "smoke", "--models", "resnet50"), ("mean 'timm:resnet50'",)),
        (
            ("--suite", "smoke", "--models", "google/vit-base-patch16-224"),
            ("'hf:google/vit-base-patch16-224'",),
        ),
        (("--suite", "smoke", "--data", "folder:../mine/flowers:64px"), ("folder:flowers:64px --data-root ../mine",)),
        (("--suite", "smoke", "--results", "/proc/x"), ("No folder or file can be made there: /proc/x", "--results")),
        ((".",), ("is a folder, not a study file", "--results .")),
        (("--suite", "smoke", "--data", "fashion-minst"), ("Unknown data set 'fashion-minst'", "'fashion-mnist'")),
        (("--suite", "smoke", "--tasks", "fewshots"), ("Unknown task 'fewshots'", "'fewshot'")),
        (("--suite", "smoke", "--scale", "gpus"), ("Unknown scale 'gpus'", "'gpu'")),
        (("--suite", "smoke", "--device", "tpu"), ("Unknown device 'tpu'", "cuda")),
        (("--suite", "smoke", "--only", "nothing-like-this"), ("No run matches", "vit-pico")),
        (("--suite", "smoke", "--seeds", "0"), ("whole number of at least 1",)),
        (("--suite", "smoke", "--wrokers", "2"), ("--wrokers", "--workers")),
        (("--suit", "smoke"), ("Unknown option '--suit'", "mean --suite?")),
        (("--max=3",), ("--max-unreadable or --max-cells?",)),
        (("--suite", "smoke", "--data", "/dev"), ("holds no images",)),
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
        (("--suite", "smoke", "--models", f"ViT-pico/7:depth={'-' * 5000}1"), ("Unknown model",)),
        (("--suite", "smoke", "--models", f"ViT-pico/7:depth={'-' * 900}1"), ("Unknown model",)),
        (("--suite", "smoke", "--data", "fashion-mnist@_"), ("not a data set", "name@N")),
        (("--suite", "smoke", "--job", "partition=gpu"), ("--job", "--executor slurm")),
        (("--suite", "smoke", "--models", "ViT-pico/14", "R8x0.125-s2"), ("joined by commas",)),
        (("--suite", "smoke", "--models", "net.py"), ("mean 'net.py:CALLABLE'?",)),
        (("--suite", "smoke", "--set", "dropout=0.1"), ("mean 'model.dropout'?",)),
        (("--suite", "smoke", "-v"), ("mean --verbose?",)),
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


def test_an_option_of_another_verb_says_whose_it_is(verb):
    refused(verb("plan", "--suite", "smoke", "--target", "90%"), "vit-bench plan has no --target: vit-bench run has it")


SMALL = "--model ViT-pico/14 --image-size 28 --channels 1"
MISTAKES = (  # of all commands: what is said, first of options without effect
    ("data --picture a.png", "--picture has no effect without --copies"),
    ("data --copies digits digits glyphs", "glyphs has no effect with --copies"),
    ("data --copies digits digits --download", "--download has no effect with --copies"),
    ("data --max-unreadable 5%", "--max-unreadable has no effect without a set"),
    ("flops ViT-pico/7 --accelerator H100", "--accelerator has no effect without --images"),
    ("flops ViT-pico/7 --utilisation 0.5", "--utilisation has no effect without --images"),
    ("flops --image-size 28", "--image-size has no effect without a model"),
    ("flops --paper-table --check", "--check has no effect with --paper-table"),
    ("flops --list vit --images 5", "--images has no effect with --list"),
    ("flops ViT-pico/7 --list", "ViT-pico/7 has no effect with --list"),
    ("probe --model ViT-pico/7 --checkpoint a --draw b --shots 5", "--shots has no effect with --draw"),
    ("probe --features a.npz --image-size 28", "--image-size has no effect with --features"),
    ("fit a.csv --x a --y b --budget c", "--budget has no effect without --form isoflop"),
    ("fit a.csv --x a --y b --form isoflop --budget c --claimed b=1", "--claimed has no effect with --form isoflop"),
    ("fit a.csv --x a --y b --loss squares --delta 0.1", "--delta has no effect without --loss huber"),
    ("published --compare --x params", "--x has no effect with --compare"),
    ("published --like resnet50 --reach 80", "--reach has no effect with --like"),
    ("published --x params --by inference", "--by has no effect with --x"),
    ("check digits --image-size 32", "--image-size has no effect for a data set"),
    ("check ViT-pico/7 --study a", "--study has no effect for a model"),
    ("report --cell a --suite smoke", "--suite has no effect with --cell"),
    ("report --data-root a", "--data-root has no effect without --cell"),
    ("report --follow", "--follow has no effect without --to"),
    ("plan --save a.toml", "--save has no effect without --budget"),
    ("plan --budget 1h --recipes", "--recipes has no effect with --budget"),
    ("probe --features a.npz --model ViT-pico/7", "--model has no effect with --features"),
    ("fit a.csv --x a --y b --form isoflop --backtest", "has no effect with --form isoflop"),
    ("report --to csv --style paper", "--style has no effect with --to"),
    ("flops ViT-B/16 --image-size big", "'big' is not a number."),
    ("flops ViT-B/16 --images many", "'many' is not a number."),
    ("flops ViT-B/16 R50x1", "Options have names, and several values are joined by commas."),
    ("report --style pape", "slide.\n"),
    ("check net.py", "mean 'net.py:CALLABLE'?"),
    ("check task:fewshot --data digit", "'digits'"),
    ("check job:speed --data digit", "'digits'"),
    ("status --suite smoke", "results"),
    ("status smoke", "Write --suite smoke"),
    ("report smoke", "Write --suite smoke"),
    ("report --suite smoke", "no results"),
    ("report --suite sclaing", "mean 'scaling'"),
    ("status --suite smok", "mean 'smoke'"),
    ("report --nonsense", "nonsense"),
    ("data digits@0", "Ask for 1 to"),
    ("data digits@1e3", "not a data set"),
    ("data --copies digts digits", "'digits'"),
    ("data --copies digits digits --picture x.jpg", ".png"),
    ("data --copies digits digits --picture none/x.png", "folder that is there"),
    ("data --copies digits@9999999 digits", "Ask for"),
    ("data --copies pets digits", "not on this machine"),
    ("data --copies digits", "--copies"),
    ("flops ViT-B/17", "221 or 238"),
    ("flops ViT-B/16 --classes -1", "classes at least 0"),
    ("flops R50x1 --option pooling=mean", "pooling"),
    ("flops ViT-B/16 --option pooling", "NAME=VALUE"),
    ("flops ViT-B/16:depth={[]:1}", "is not a whole number"),
    ("flops ViT-B/16 --images 1e9 --accelerator H1000", "Did you mean"),
    ("flops ViT-B/16 --images 1e9 --accelerator H100 --utilisation 40", "0.4"),
    ("published --where \"famly == 'ViT'\"", "Did you mean 'family'"),
    ("published --where \"family == 'ViTs'\"", "hybrid ViT (ResNet stem)"),
    ("published --x train_flops", "Did you mean 'train_exaflops'"),
    ("published --y family", "holds no numbers"),
    ("published --reach 99.9%", "The best has"),
    ("published --reach most", "not an accuracy"),
    ("published --like timm:convnext_tinny", "Did you mean 'convnext_tiny"),
    ("published --like timm:resnet50d.ra2_in1k", "--by inference"),
    ("published --table papers", "Did you mean 'paper'"),
    ("probe --model ViT-nan/7 --data digits", "'ViT-nano/7'"),
    (f"probe {SMALL} --data digit", "'digits'"),
    (f"probe {SMALL} --data digits --task fewshots", "'fewshot'"),
    (f"probe {SMALL} --data digits --option shot=3", "Known: "),
    (f"probe {SMALL} --data digits --option shots", "NAME=VALUE"),
    ("probe --model ViT-pico/13 --data digits --image-size 28 --channels 1", "13"),
    (f"probe {SMALL} --data digits --checkpoint none.npz", "none.npz"),
    (f"probe {SMALL} --data digits --device gpux", "gpux"),
    (f"probe {SMALL} --data digits --device meta", "'meta' cannot be used"),
    (f"probe {SMALL} --data digits --seed 99999999999999999999", "2^63"),
    (f"probe {SMALL} --data digits --seed -1", "whole number from 0"),
    ("probe --model ViT-pico/14 --data digits --image-size 0", "at least 1"),
    ("probe --model ViT-pico/14 --data digits --image-size 28 --channels 2", "Known: 1, 3."),
    ("probe --checkpoint none.safetensors --data digits", "no checkpoint none.safetensors"),
    (f"probe {SMALL} --data digits@100", "test_limit"),
    ("probe --model ViT-pico/14", "--data"),
    ("probe --features none.npz", "none.npz"),
    ("probe", "Nothing to probe"),
)


@pytest.mark.parametrize("words, said", MISTAKES, ids=[words for words, _ in MISTAKES])
def test_mistakes_of_other_commands(verb, tmp_path, words, said):
    name, *arguments = shlex.split(words)
    refused(verb(name, *arguments), said)
    assert os.listdir(tmp_path) == []


def test_options_of_training_are_said_to_have_no_effect_where_nothing_is_trained():
    asked = StudyOptions.called(None, {"data": "digits", "horizons": "100", "scale": "cpu"})
    study = expand(suites.load("speed"), asked.what, asked.overrides, DataSizes())
    assert study.notes == ("Suite 'speed' trains nothing: --data and --horizons have no effect.",)


@pytest.mark.parametrize(
    "words, missing, said",
    [
        ("--executor ray", "ray", "needs the package ray"),
        ("--executor slurm", "sbatch", "needs SLURM's command sbatch"),
        ("--data folder:", "", "'folder:' is not a data set"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_measured(verb, monkeypatch, words, missing, said):
    monkeypatch.setattr(preflight, "find_spec", lambda name: None if name == missing else name)
    monkeypatch.setattr(preflight.shutil, "which", lambda name: None if name == missing else name)
    monkeypatch.setattr(estimate, "calibrate", lambda *_, **__: pytest.fail("it was measured"))
    refused(verb("run", "--suite", "smoke", *words.split()), said)


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
        (r'results = "\u0000"', ("results: '\\x00' is no path", "null")),
        (r'data_root = "a\u0000"', ("data_root: 'a\\x00' is no path", "null")),
        ("only = {a = 1}", ("only takes a list", "{'a': 1}")),
        (f"seeds = {'9' * 5000}", ("is not TOML",)),
    ],
)
def test_a_study_file_with_what_an_option_cannot_be(verb, tmp_path, line, words):
    (tmp_path / "s.toml").write_text(f'suite = "smoke"\n{line}\n')
    refused(verb("plan", "s.toml"), "s.toml", *words)
    assert os.listdir(tmp_path) == ["s.toml"]


def test_a_model_that_cannot_be_built_is_told_of_before_another_is_measured(monkeypatch, capsys):
    cells = [Cell(model=name, data="digits", image_size=8) for name in ("ViT-pico/4", "ViT-pico/5")]
    asked = {cell.model: {"cell": to_json(cell), "classes": 10, "measure": True} for cell in cells}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(asked)))
    monkeypatch.setattr(calibrate, "_measured", lambda *_, **__: (1.0, 1.0, 1.0, (0.0, 0.0)))
    assert calibrate.main([]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (
        first["key"] == "ViT-pico/5"
        and "cannot be built" in first["refused"]
        and second["rates"]["model"] == "ViT-pico/4"
    )


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


@pytest.mark.gate
def test_a_process_ends_as_its_main_function_says(bench, tmp_path):
    refused(bench("run", "--suite", "scalling"), "Unknown suite 'scalling'")
    assert os.listdir(tmp_path) == []


def test_a_store_from_a_newer_version(verb, tmp_path):
    study = tmp_path / "results" / "smoke"
    study.mkdir(parents=True)
    (study / "store.json").write_text(json.dumps({"schema": SCHEMA_VERSION + 1}))
    refused(verb("run", "--suite", "smoke"), "newer version", "store.json")
    refused(verb("status", "--suite", "smoke"), "No study")
    assert os.listdir(study) == ["store.json"]


def test_a_full_disk(verb, tmp_path, monkeypatch):
    """One sentence, and nothing half-written. tests/reliability/ tries what workers meet on one."""

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(estimate, "calibrate", lambda *_, **__: NOTHING_MEASURED)
    monkeypatch.setattr(estimate, "cell_cost", lambda *_, **__: estimate.CellCost(seconds=1.0))
    monkeypatch.setattr(files.os, "fsync", full)
    refused(verb("run", "--suite", "smoke", "--only", "vit-pico*100"), "full", "Free some space")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_file_that_may_not_be_read_is_named(capsys):
    """Raised, not found: whoever runs tests may be root, who reads everything."""

    @command
    def verb(argv=None):
        raise PermissionError(errno.EACCES, "Permission denied", "results/theirs/cells")

    code = verb()
    refused(subprocess.CompletedProcess((), code, "", capsys.readouterr().err), "No permission", "results/theirs/cells")


@pytest.mark.parametrize(
    "error, said",
    [
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "not enough memory"),
        (MemoryError(), "not enough memory"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "not enough memory"),
        (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "No further process or thread"),
        (RuntimeError("can't start new thread"), "No further process or thread"),
    ],
)
def test_limits_of_the_machine_are_said(capsys, error, said):
    @command
    def verb(argv=None):
        raise error

    refused(subprocess.CompletedProcess((), verb(), "", capsys.readouterr().err), said, "ulimit", "--jobs")


def test_a_name_of_megabytes_is_not_printed(verb, tmp_path):
    (tmp_path / "study.toml").write_text(f'suite = "smoke"\nmodels = ["{"x" * 3_000_000}"]\n')
    done = verb("run", "study.toml")
    refused(done, "Unknown model 'xxx", "characters)")
    assert len(done.stderr) < 10_000


def test_one_cell_that_may_not_be_read_is_named_and_the_others_are_reported(tmp_path, monkeypatch, capsys):
    """Raised, for root reads everything."""
    cells = [replace(record, suite="smoke") for record in World.small(seeds=(0, 1)).records()]
    study = write(cells, tmp_path / "results" / "smoke")
    theirs, whole = min((study / "cells").iterdir()), Path.stat

    def stat(path, **how):
        if theirs in path.parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return whole(path, **how)

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(records_file, "read_outcome", lambda path, *, of: stat(path) and None)
    assert status.main(["--suite", "smoke", "--results", str(study.parent)]) == 0
    assert "no permission to read it" in " ".join(capsys.readouterr().out.split())
    read = study_data.load(study)
    assert [(d.directory, d.reason) for d in read.damaged] == [(theirs.name, "no permission to read it")]
    assert len(read.records) == len(cells) - 1


NOISY = """
import os
from bench.data.data_set import DataSet
os.write(1, b"NOISE of a library")
print("NOISE of Python")
DATASET = DataSet(name="noisy", kind="rendered", description="", licence="", source="", how_to_get="", load=None)
"""


def test_what_an_extension_writes_is_no_answer(bench, tmp_path):
    (tmp_path / "mine" / "data").mkdir(parents=True)
    (tmp_path / "mine" / "data" / "noisy.py").write_text(NOISY)
    done = bench("data", "--json", "--plugins", "mine")
    assert "noisy" in {row["name"] for row in json.loads(done.stdout)} and done.stderr.count("NOISE") == 2


def start(*words: str, **variables: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(PROJECT)} | variables
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, timeout=600)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_knows_no_unicode_is_written_to(encoding):
    done = start("-m", "bench", PYTHONIOENCODING=encoding)
    assert done.returncode == 0 and "vit-bench VERB ?" in done.stdout.decode(encoding)


def test_ctrl_c_while_a_command_is_imported_is_one_line():
    stops = "import os, signal, sys; sys.argv = ['-m']; import bench; os.kill(os.getpid(), signal.SIGINT)"
    done = start("-c", stops)
    assert done.returncode == EXIT_INTERRUPTED and done.stderr == b"stopped before it was done.\n"
    imported = "import signal, bench.core.errors as e; print(signal.getsignal(signal.SIGINT).__name__)"
    assert start("-c", imported).stdout == b"default_int_handler\n"  # a program of somebody else's keeps its own


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
