"""A user's mistake: one message that says what, where, what is allowed; exit code 2; no traceback; nothing written."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from bench import SCHEMA_VERSION, flops, run


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
        (("--suite", "smoke", "--set", "model.dropout=x"), ("dropout='x'", "from 0 to below 1")),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else None,
)
def test_unknown_or_impossible(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    code = run.main(list(arguments))
    said = capsys.readouterr()
    refused(subprocess.CompletedProcess(arguments, code, said.out, said.err), *words)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("words", [("--images", "nan"), ("--images", "-1"), ("--images", "1e400"),
                                   ("--image-size", "99999999999"), ("",)])  # fmt: skip
def test_what_no_training_could_cost_is_not_costed(capsys, words):
    assert flops.main(["ViT-pico/7", *words]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_process_ends_as_its_main_function_says(bench, tmp_path):
    refused(bench("run", "--suite", "scalling"), "Unknown suite 'scalling'")
    assert os.listdir(tmp_path) == []


def test_a_results_folder_that_is_a_file(bench, tmp_path):
    (tmp_path / "results").write_text("mine")
    refused(bench("run", "--suite", "smoke", "--only", "pixels"), "results", "--results")
    assert (tmp_path / "results").read_text() == "mine"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that nobody can write, /proc")
def test_a_results_folder_that_cannot_be_written(bench):
    refused(bench("run", "--suite", "smoke", "--only", "pixels", "--results", "/proc/results"), "/proc/results")


def test_a_store_from_a_newer_version(bench, tmp_path):
    study = tmp_path / "results" / "smoke"
    study.mkdir(parents=True)
    (study / "store.json").write_text(json.dumps({"schema": SCHEMA_VERSION + 1}))
    refused(bench("run", "--suite", "smoke"), "newer version", "store.json")
    refused(bench("status", "--suite", "smoke"), "No study")
    assert os.listdir(study) == ["store.json"]


def test_a_full_disk(bench, tmp_path):
    """On a real file system of 64 KiB."""
    small = tmp_path / "small"
    small.mkdir()
    if os.system(f"mount -t tmpfs -o size=64k tmpfs {small} 2>/dev/null") != 0:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        done = bench(
            "run", "--suite", "smoke", "--only", "vit-pico*100", "--results", small / "results", "--workers", "1"
        )
        refused(done, "full", "Free some space")
        assert not list(small.rglob("record.json"))
        assert not [p for p in small.rglob("*.tmp") if p.is_file() and p.stat().st_size]
    finally:
        os.system(f"umount {small}")


def test_verbs_without_a_study(bench):
    for verb in ("report", "status"):
        refused(bench(verb, "--suite", "smoke"), "smoke" if verb == "report" else "results")
