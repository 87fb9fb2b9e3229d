"""Committed studies: tables, findings and figures follow from their records; nothing impossible is plotted."""

import json
import math
import shutil
from pathlib import Path

import pandas as pd
import pytest

from bench.report import build as report
from bench.store.records import read_record
from tests.conftest import PROJECT

# -- the committed reference studies: records verify; tables, findings and figure data follow from them ----------------


NAMES = ("question", "subject", "measure", "verdict", "reasons", "leader", "n")
NUMBERS = ("estimate", "low", "high", "level", "reach")
STUDIES = sorted(path.parent for path in PROJECT.glob("results/reference/*/cells"))


def suite_of(study: Path) -> str:
    """results/reference/scaling-cpu -> scaling."""
    return study.name.rpartition("-")[0]


def numbers(finding) -> list[float]:
    """NaN for what is missing."""
    return [math.nan if finding[key] is None else finding[key] for key in NUMBERS]


def test_there_are_reference_studies():
    assert {suite_of(study) for study in STUDIES} >= {"scaling", "rates"}


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_every_record_verifies_and_says_where_it_came_from(study):
    paths = sorted(study.glob("cells/*/record.json"))
    assert paths
    for path in paths:
        record = read_record(path)
        assert record.suite == suite_of(study)
        assert record.status == "complete"
        assert record.environment.commit and record.environment.dirty is False
        assert "/" not in record.environment.cpu


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_tables_findings_and_figure_data_follow_from_the_records(study, tmp_path, race):
    """Their numbers, whatever the words: laws are fitted, so that another processor's last digits differ."""
    copy = tmp_path / suite_of(study)
    shutil.copytree(study / "cells", copy / "cells")
    report.build(copy, suite=suite_of(study))
    committed = [*study.glob("tables/*.csv"), *study.glob("figures/*.csv")]
    assert len(committed) > 2
    assert {p.name for p in copy.glob("figures/*.csv")} == {p.name for p in study.glob("figures/*.csv")}
    assert {p.name for p in copy.glob("figures/*")} >= {p.name for p in study.glob("figures/*")}
    for path in committed:
        made = pd.read_csv(copy / path.relative_to(study))
        pd.testing.assert_frame_equal(made, pd.read_csv(path), rtol=1e-3, atol=1e-6, obj=path.name)
    made, kept = (json.loads((folder / "findings.json").read_text()) for folder in (copy, study))
    assert made["checks"] == kept["checks"] and len(made["findings"]) == len(kept["findings"])
    for ours, theirs in zip(made["findings"], kept["findings"], strict=True):
        assert [ours[key] for key in NAMES] == [theirs[key] for key in NAMES]
        assert numbers(ours) == pytest.approx(numbers(theirs), rel=1e-3, nan_ok=True)


def test_a_new_run_never_takes_the_reference_for_its_own(tmp_path, bench):
    """A fresh clone has nothing "already done": the reference is not where any run looks."""
    shutil.copytree(
        PROJECT / "results/reference", tmp_path / "results/reference", ignore=shutil.ignore_patterns("figures")
    )
    shutil.copy(PROJECT / "results/README.md", tmp_path / "results")
    done = bench("status")
    assert done.returncode == 2 and "No study" in done.stderr


# -- no plotted accuracy, nor an end of its interval, lies outside of 0 to 1; no difference of two outside of -1 to 1 --


REFERENCE = PROJECT / "results/reference"
COMMITTED = sorted(REFERENCE.glob("*-cpu/figures/*.csv"))
ENDS = ("low", "high")
BUILT = (("scaling", "scaling-cpu"),)


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


@pytest.mark.slow
@pytest.mark.parametrize("suite, folder", BUILT)
def test_figures_that_are_built_now_plot_nothing_impossible(suite: str, folder: str, tmp_path: Path) -> None:
    shutil.copytree(REFERENCE / folder / "cells", tmp_path / suite / "cells")
    report.build(tmp_path / suite, suite=suite)
    made = sorted((tmp_path / suite / "figures").glob("*.csv"))
    assert made
    for path in made:
        assert outside(path).empty and disordered(path).empty, path.name
