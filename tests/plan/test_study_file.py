"""A study file says what flags say: equal plans, equal refusals, and flags override it."""

from __future__ import annotations

import argparse
import shlex
import tomllib
from dataclasses import replace

import pytest

from bench.core.errors import UserError
from bench.core.options import Kind
from bench.plan.expand import expand
from bench.plan.options import RUN, StudyOptions, add_options, read_study
from bench.plan.overrides import NO_OVERRIDES
from bench.plan.sizes import DataSizes
from bench.plan.study_cells import StudyCells
from bench.store import grid
from bench.suites import _contract as suites
from tests.conftest import PROJECT
from tests.plan.finished import finish
from tests.plan.making import cells_of

FILES = sorted((PROJECT / "bench" / "examples").glob("*.toml"))


def options(*words: str) -> StudyOptions:
    """What a command line asks for."""
    p = argparse.ArgumentParser()
    add_options(p, RUN)
    return StudyOptions.parsed(p.parse_args(words))


@pytest.fixture
def study(tmp_path):
    def write(text: str) -> str:
        (tmp_path / "study.toml").write_text(text)
        return str(tmp_path / "study.toml")

    return write


def grid_asked(asked: StudyOptions) -> StudyCells:
    scale = "cpu" if asked.scale == "auto" else asked.scale
    return expand(suites.load(asked.suite), replace(asked, scale=scale), DataSizes(published=scale == "paper"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_example_plans_what_its_command_does(path):
    command = path.read_text().partition("\n")[0]
    said, filed = options(*shlex.split(command.removeprefix("# python -m bench.run "))), options(str(path))
    assert replace(said, overrides=NO_OVERRIDES) == replace(filed, overrides=NO_OVERRIDES)
    cells = grid_asked(said)
    assert grid_asked(filed) == cells
    again = StudyOptions.called(None, tomllib.loads(said.to_toml()))  # the file that is kept with the results
    assert grid_asked(again) == cells


def test_every_flag_can_be_said_in_a_file_and_reads_the_same(study):
    """One value of each kind for every option of the table, by its own reader."""
    some = {
        "suite": "data",
        "scale": "cpu",
        "recipe": "paper:ViT-B/16:imagenet",
        "changed": "keep",
        "reference": "paper",
        "executor": "ray",
        "job": "partition=gpu",
        "retry": "failed",
    }
    lines, words = [], []
    for option in RUN:
        value = some.get(option.name, "2")
        if option.kind is Kind.FLAG:
            lines.append(f"{option.name} = true")
            words.append(option.flag)
        elif option.kind is not Kind.FIELDS:
            lines.append(
                f'{option.name} = ["{value}"]'
                if option.kind in (Kind.LIST, Kind.REPEATED)
                else f'{option.name} = "{value}"'
            )
            words += [option.flag, value]
    tables = ["[set]", "clip = 0", "model.dropout = 0.1", "[sweep]", "lr = [1e-3, 2e-3]"]
    words += ["--set", "clip=0", "--set", "model.dropout=0.1", "--sweep", "lr=0.001,0.002"]
    path = study("\n".join(lines + tables))
    assert options(path) == options(*words)


def test_flags_override_the_file(study):
    text = 'suite = "smoke"\nseeds = 3\nonly = ["vit-*"]\n[set]\nclip = 0\nlr = 1\n[sweep]\nwarmup = ["1%", "5%"]'
    path = study(text)
    asked = options(path, "--seeds", "2", "--set", "lr=2", "--set", "warmup_images=64", "--only", "r8*")
    assert (asked.suite, asked.seeds, asked.only) == ("smoke", 2, ("r8*",))
    assert dict(asked.overrides.settings) == {"clip": "0", "lr": "2", "warmup_images": "64"}
    assert asked.overrides.sweeps == ()


@pytest.mark.parametrize(
    "text, said",
    [
        ('siute = "smoke"', "Did you mean 'suite'"),
        ("modles = []", "Did you mean 'models'"),
        ("workers = 0", "workers: '0' is not a whole number"),
        ("workers = [1, 2]", "takes one value"),
        ('calibrate = "yes"', "Give true or false"),
        ('models = ""', "models is empty"),
        ("models = []", "models is empty"),
        ('changed = "kepe"', "Did you mean 'keep'"),
        ("[set]\nlearning = 1", "Unknown field of a recipe"),
        ("[set]\nclip = 0\n[sweep]\nclip = [0, 1]", "both set and swept"),
        ("suite = ", "is not TOML"),
        ("[models]\na = 1", "cannot be"),
        ("seeds = 1979-05-27", "cannot be"),
        ("json = true", "Unknown option 'json'"),
    ],
)
def test_mistakes_name_the_file_and_say_what_is_allowed(text, said, study):
    path = study(text)
    with pytest.raises(UserError) as refusal:
        options(path)
    assert said in str(refusal.value)
    assert "study.toml" in refusal.value.what or "set and swept" in said


def test_a_byte_order_mark_is_passed_over(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text('suite = "smoke"\n', encoding="utf-8-sig")
    assert options(str(path)).suite == "smoke"


def test_no_file_and_a_suite_in_its_place_are_explained(tmp_path):
    with pytest.raises(UserError, match="--suite smoke"):
        read_study("smoke")
    with pytest.raises(UserError, match="cannot be read"):
        read_study(tmp_path / "none.toml")


def test_a_run_keeps_the_file_that_asks_for_the_same(tmp_path, verb):
    """Everything is done already, so that a run only prepares the folder."""
    finish(tmp_path / "results" / "smoke", cells_of("smoke", models=("ViT-pico/14",)))
    words = ("--suite", "smoke", "--models", "ViT-pico/14", "--device", "cpu", "--workers", 1)
    assert verb("run", *words).returncode in (0, 2)  # a report may find nothing in these empty records
    kept = tmp_path / "results" / "smoke" / grid.STUDY_FILE
    assert tomllib.loads(kept.read_text()) == {
        "suite": "smoke",
        "scale": "cpu",
        "models": ["ViT-pico/14"],
        "device": "cpu",
    }
    assert options(str(kept)).models == ("ViT-pico/14",)
