"""No plotted accuracy, nor an end of its interval, lies outside of 0 to 1; no difference of two outside of -1 to 1."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from bench.report import build as report
from tests.conftest import PROJECT

REFERENCE = PROJECT / "results/reference"
COMMITTED = sorted(REFERENCE.glob("*-cpu/figures/*.csv"))
ENDS = ("low", "high")
BUILT = (
    ("crossover", "superseded/crossover-cpu-revision-2"),
    ("scaling", "scaling-cpu"),
    ("masked", "masked-cpu"),
)


def outside(path: Path) -> pd.DataFrame:
    """Rows of a figure's data that no accuracy, or no difference of accuracies, can be."""
    table = pd.read_csv(path)
    difference = next((name for name in ("gap", "difference") if name in table), None)
    value = "accuracy" if "accuracy" in table else difference
    if value is None:
        return table.iloc[:0]
    if value == "difference":  # a ratio stands beside them
        table = table[table["measure"] != "ratio"]
    found = table[[name for name in (value, *ENDS) if name in table]]
    least = 0.0 if value == "accuracy" else -1.0
    return table[((found < least) | (found > 1.0)).any(axis=1)]


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


@pytest.mark.slow
@pytest.mark.parametrize("suite, folder", BUILT)
def test_figures_that_are_built_now_plot_nothing_impossible(suite: str, folder: str, tmp_path: Path) -> None:
    shutil.copytree(REFERENCE / folder / "cells", tmp_path / suite / "cells")
    report.build(tmp_path / suite, suite=suite)
    made = sorted((tmp_path / suite / "figures").glob("*.csv"))
    assert made
    for path in made:
        assert outside(path).empty and disordered(path).empty, path.name
