"""Tables: CSV holds the raw numbers, Markdown renders, n is always there."""

from __future__ import annotations

import csv
import io

import pandas as pd
import pytest

from bench.analysis.evidence import Evidence
from bench.report import tables
from tests.analysis._study import study


@pytest.fixture(scope="module")
def made(evidence: Evidence) -> dict[str, tables.Table]:
    return {table.name: table for table in tables.build(evidence)}


def test_models_table_has_one_row_per_model_with_costs_and_n(made: dict[str, tables.Table]) -> None:
    frame = pd.read_csv(io.StringIO(made["models"].csv()))
    assert len(frame) == 8
    for column in (
        "params",
        "forward_macs",
        "images_per_second",
        "utilisation",
        "core_days",
        "train_flops",
        "headline",
        "headline_low",
        "headline_seeds",
        "headline_test_images",
        "upstream",
    ):
        assert frame[column].notna().all(), column
    assert (frame["headline_low"] < frame["headline"]).all() and set(frame["headline_seeds"]) == {2}


def test_csv_equals_the_estimates(evidence: Evidence, made: dict[str, tables.Table]) -> None:
    rows = list(csv.DictReader(io.StringIO(made["horizons"].csv())))
    points = [p for s in evidence.series for p in s.points]
    assert len(rows) == len(points)
    for row, point in zip(rows, points, strict=True):
        e = evidence.estimate(point, "mnist")
        assert e is not None and float(row["mnist"]) == pytest.approx(e.value, rel=1e-7)
        assert float(row["mnist_high"]) == pytest.approx(e.high, rel=1e-7)


@pytest.mark.parametrize("name", ["models", "horizons", "baselines", "coverage"])
def test_markdown_is_a_rectangular_table(made: dict[str, tables.Table], name: str) -> None:
    lines = [line for line in made[name].markdown().splitlines() if line.startswith("|")]
    assert len(lines) == len(made[name].rows) + 2
    assert {line.count("|") for line in lines} == {len(made[name].columns) + 1}
    assert set(lines[1]) <= set("|:- ")


def test_markdown_escapes_pipes() -> None:
    column = tables.Column(key="a", heading="A", numeric=False)
    table = tables.Table(name="t", title="T", columns=(column,), rows=({"a": "x|y\nz<script>"},))
    assert "| x\\|y z&lt;script> |" in table.markdown()


def test_baselines_list_pixels_and_untrained(made: dict[str, tables.Table]) -> None:
    names = [row["series"] for row in made["baselines"].rows]
    assert names[0] == "raw pixels" and "ResNet-base, untrained" in names and len(names) == 9


def test_coverage_names_what_went_wrong() -> None:
    table = tables.coverage(study(extra=("diverged",), sizes=(30_000,)))
    bad = [row for row in table.rows if row["status"] == "diverged"]
    assert len(bad) == 1 and "not a number" in bad[0]["reason"]


def test_scores_csv_has_every_number_of_shots(evidence: Evidence) -> None:
    frame = pd.read_csv(io.StringIO(tables.scores_csv(evidence)))
    assert set(frame.loc[frame["measure"] == "mnist", "shots"]) == {1, 5, 10}
    assert frame["test_images"].notna().all() and frame["low"].notna().all()
