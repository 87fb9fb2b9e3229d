"""Committed studies: records verify, and what is made of them is the golden set; nothing impossible is plotted."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from bench.store.records import read_record
from tests.conftest import PROJECT
from tools import golden

STUDIES = sorted(path.parent for path in PROJECT.glob("results/reference/*/cells"))
REFERENCE = PROJECT / "results/reference"


def test_there_are_reference_studies():
    assert {golden.suite_of(study) for study in STUDIES} >= {"scaling", "rates"}


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_every_record_verifies_and_says_where_it_came_from(study):
    paths = sorted(study.glob("cells/*/record.json"))
    assert paths
    for path in paths:
        record = read_record(path)
        assert record.suite == study.name.rpartition("-")[0]
        assert record.status == "complete"
        assert record.environment.commit and record.environment.dirty is False
        assert "/" not in record.environment.cpu


# -- the golden set: `python -m tools.golden write` freezes another on purpose -----------------------------------------


def test_every_study_suite_and_run_is_frozen_and_nothing_else():
    assert {path.stem for path in golden.FROZEN.glob("*.json")} == set(golden.parts())


@pytest.mark.parametrize("part", golden.studies())
def test_committed_studies_are_those_that_are_frozen(part):
    assert not golden.compare(part, quick=True)


@pytest.mark.nightly
@pytest.mark.parametrize("part", golden.studies())
def test_reports_that_are_built_now_are_those_that_are_frozen(part, tmp_path):
    """Tables, findings, laws and data of figures, whatever the words. No figure plots what cannot be."""
    study = golden.studies()[part]
    made = golden.rebuild(study, tmp_path)
    assert not golden.differences(golden.study(made), golden.read(part))
    assert {path.name for path in made.glob("figures/*")} >= {path.name for path in study.glob("figures/*")}
    for path in sorted(made.glob("figures/*.csv")) if part.endswith("-cpu") else ():
        assert outside(path).empty and disordered(path).empty, path.name


@pytest.mark.gate
@pytest.mark.parametrize("part", golden.plans())
def test_plans_are_those_that_are_frozen(part):
    assert not golden.compare(part)


@pytest.mark.gate
def test_a_killed_and_resumed_run_is_byte_for_byte_that_which_was_not_disturbed():
    assert not golden.compare("resumed")


def test_what_differs_is_named(tmp_path):
    """A changed verdict, a number beyond the last digits, a missing table, a renamed cell: each is one line."""
    frozen = golden.read("study-scaling-cpu")
    assert not golden.differences(frozen, frozen)
    now = json.loads(json.dumps(frozen))
    name, found = next((name, found) for name, found in now["findings"].items() if found.get("estimate"))
    found["verdict"] = "perhaps"
    found["estimate"] *= 1.0001  # last digits
    found["low"] = (found["low"] or 1.0) * 1.01
    del now["tables"]["scores.csv"]
    now["cells"][0] = "another"
    lines = golden.differences(now, frozen)
    assert [line.partition(":")[0] for line in lines].count("/cells") == 2 and len(lines) == 5
    assert "/tables/scores.csv: gone" in lines
    assert {line.partition(":")[0] for line in lines if name in line} == {
        f"/findings/{name}/verdict",
        f"/findings/{name}/low",
    }


def test_a_frozen_table_notices_a_changed_word_and_a_changed_number():
    text = "model,accuracy\nA,0.5\nB,0.7\n"
    for other in ("model,accuracy\nA,0.5\nC,0.7\n", "model,accuracy\nA,0.5\nB,0.71\n", "model,accuracy\nA,0.5\nB,\n"):
        assert golden.differences(golden.table(other), golden.table(text))
    assert not golden.differences(golden.table("model,accuracy\nA,0.5\nB,0.70001\n"), golden.table(text))


def test_a_new_run_never_takes_the_reference_for_its_own(tmp_path, verb):
    """A fresh clone has nothing "already done": the reference is not where any run looks."""
    shutil.copytree(REFERENCE, tmp_path / "results/reference", ignore=shutil.ignore_patterns("figures"))
    shutil.copy(PROJECT / "results/README.md", tmp_path / "results")
    done = verb("status")
    assert done.returncode == 2 and "No study" in done.stderr


# -- no plotted accuracy, nor an end of its interval, lies outside of 0 to 1; no difference of two outside of -1 to 1 --


COMMITTED = sorted(REFERENCE.glob("*-cpu/figures/*.csv"))
ENDS = ("low", "high")


def outside(path: Path) -> pd.DataFrame:
    """Rows of a figure's data that no accuracy, or no difference of accuracies, can be."""
    table = pd.read_csv(path)
    difference = next((name for name in ("gap", "difference") if name in table), None)
    value = "accuracy" if "accuracy" in table else difference
    if value is None:
        return table.iloc[:0]
    if value == "difference" and "measure" in table:  # a ratio stands beside them
        table = table[table["measure"] != "ratio"]
    values = table[[name for name in (value, *ENDS) if name in table]]
    least = 0.0 if value == "accuracy" else -1.0
    return table[((values < least) | (values > 1.0)).any(axis=1)]


def disordered(path: Path) -> pd.DataFrame:
    """Rows whose interval does not hold its own value."""
    table = pd.read_csv(path)
    if not {"accuracy", *ENDS} <= set(table):
        return table.iloc[:0]
    known = table.dropna(subset=ENDS)
    return known[(known["low"] > known["accuracy"] + 1e-7) | (known["high"] < known["accuracy"] - 1e-7)]


def test_what_is_impossible_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "figure.csv"
    path.write_text("accuracy,low,high\n0.5,0.4,0.6\n0.5,-0.1,0.6\n0.9,0.8,1.2\n")
    assert len(outside(path)) == 2
    path.write_text("gap,low,high\n-0.5,-0.9,0.1\n0.5,-1.1,0.6\n")
    assert len(outside(path)) == 1


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_committed_figures_plot_nothing_impossible(path: Path) -> None:
    assert outside(path).empty and disordered(path).empty


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_intervals_hold_their_own_estimates(study: Path) -> None:
    for finding in json.loads((study / "findings.json").read_text())["findings"]:
        estimate, low, high = (finding[key] for key in ("estimate", *ENDS))
        if estimate is not None:
            assert (low is None or low <= estimate) and (high is None or estimate <= high), finding["question"]
