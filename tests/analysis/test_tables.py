"""Tables of a study: their numbers, and how they are laid out."""

import ast
import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection

from bench.analysis import branches, evidence, lr_sweep, questions, study_data
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.table import Column, Table, tex
from bench.core.formatting import short_count
from bench.questions.best_learning_rate import model_rates
from bench.report import build as report
from bench.report import tables
from bench.report.figures import branching
from bench.report.figures.figure import NothingToDraw
from bench.stats.intervals import Estimate
from bench.store.grid import WantedCells
from bench.suites import _recipes
from tests.analysis._records import World, write
from tests.analysis._study import beside_own_training, read, study, swept
from tests.conftest import PROJECT

# -- tables: CSV holds the raw numbers, Markdown renders, n is always there --------------------------------------------


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


def test_markdown_escapes_pipes() -> None:
    column = tables.Column(key="a", heading="A", numeric=False)
    table = tables.Table(name="t", title="T", columns=(column,), rows=({"a": "x|y\nz<script>"},))
    assert "| x\\|y z&lt;script> |" in table.markdown()


def test_baselines_list_pixels_and_untrained(made: dict[str, tables.Table]) -> None:
    names = [row["series"] for row in made["baselines"].rows]
    assert names[0] == "pixel baseline" and "ResNet-base, untrained" in names and len(names) == 9


def test_coverage_names_what_went_wrong() -> None:
    table = tables.coverage(study(extra=("diverged",), sizes=(30_000,)))
    bad = [row for row in table.rows if row["status"] == "diverged"]
    assert len(bad) == 1 and "not a number" in bad[0]["reason"]


def test_scores_csv_has_every_number_of_shots(evidence: Evidence) -> None:
    frame = pd.read_csv(io.StringIO(tables.scores_csv(evidence)))
    assert set(frame.loc[frame["measure"] == "mnist", "shots"]) == {1, 5, 10}
    assert frame["test_images"].notna().all() and frame["low"].notna().all()


# -- tables as text: LaTeX that is whole and means itself, bold only where intervals separate --------------------------


HOSTILE = r"50% of $x_1$ & {a} \input{b} #1 ~ ^ <|> ±"


def estimate(value: float, half: float) -> Estimate:
    return Estimate(
        value=value,
        margins={"training seeds": half},
        excluded=(),
        moderated=False,
        num_seeds=2,
        num_draws=0,
        num_test=99,
    )


def body(text: str) -> list[str]:
    """Rows between \\toprule and \\bottomrule, heading first."""
    inside = text.split(r"\toprule")[1].split(r"\bottomrule")[0]
    return [line for line in inside.splitlines() if line and line != r"\midrule"]


def check_latex(text: str, *, columns: int, rows: int) -> None:
    opened = re.findall(r"\\begin\{(\w+)\}", text)
    assert opened == ["table", "tabular"] and re.findall(r"\\end\{(\w+)\}", text) == opened[::-1]
    bare = re.sub(r"\\[{}\\]", "", text)
    depth = 0
    for character in bare:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    spec = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)
    assert spec and len(spec[1]) == columns
    lines = body(text)
    assert len(lines) == rows + 1
    for line in lines:
        assert line.endswith(r" \\") and len(re.findall(r"(?<!\\)&", line)) == columns - 1
        assert re.sub(r"\$(\\pm|\\times|-|\\rightarrow)\$", "", line).count("$") == line.count(r"\$")
    assert text.isascii() or not re.search("[±×−–→]", text)


@pytest.mark.parametrize("name", ["models", "comparison", "baselines", "horizons"])
def test_latex_is_whole(evidence: Evidence, name: str) -> None:
    table = next(t for t in tables.build(evidence) if t.name == name)
    check_latex(table.latex(), columns=len(table.displayed), rows=len(table.rows))


def test_latex_means_itself() -> None:
    columns = (Column(key="a", heading=HOSTILE, numeric=False), Column(key="b", heading="b"))
    check_latex(
        Table(name="t", title=HOSTILE, columns=columns, rows=({"a": HOSTILE, "b": 1},), note=HOSTILE).latex(),
        columns=2,
        rows=1,
    )
    assert tex("a_b & 5%") == r"a\_b \& 5\%" and tex("\\x") == r"\textbackslash{}x"


def test_bold_only_where_intervals_separate() -> None:
    columns = tuple(Column(key=key, heading=key) for key in "abc")
    rows = (
        {"a": estimate(0.8, 0.01), "b": estimate(0.7, 0.01), "c": estimate(0.7, 0.2)},
        {"a": estimate(0.5, 0.01), "b": estimate(0.69, 0.01), "c": None},
    )
    by_column = Table(name="t", title="t", columns=columns, rows=rows, best="column")
    assert by_column.bold == {(0, "a")}  # b: intervals touch; c: nothing to compare with
    by_row = Table(name="t", title="t", columns=columns, rows=rows, best="row")
    assert by_row.bold == {(1, "b")}  # the first row's c reaches above its a
    assert not Table(name="t", title="t", columns=columns, rows=rows).bold
    assert by_column.markdown().count("**") == 2 and by_column.latex().count(r"\textbf") == 1


def test_the_comparison_has_tasks_by_models_and_core_days_beneath(evidence: Evidence) -> None:
    table = next(t for t in tables.build(evidence) if t.name == "comparison")
    assert [row["task"] for row in table.rows][-2:] == ["core-days", "training FLOPs"]
    frame = list(csv.DictReader(io.StringIO(table.csv())))
    at = {series.last.model: series.last for series in evidence.on_axis("compute")}
    for column in table.columns[2:]:
        e = evidence.estimate(at[column.key], HEADLINE)
        assert e is not None and float(frame[0][column.key]) == pytest.approx(e.value, rel=1e-7)
        assert float(frame[-1][column.key]) == at[column.key].train_flops


def test_only_the_first_rows_are_shown_where_there_are_too_many() -> None:
    table = Table(name="t", title="t", columns=(Column(key="a", heading="a"),), rows=tuple({"a": i} for i in range(9)))
    assert "The first 3 of 9 rows; all are in tables/t.csv." in table.markdown(rows=3)
    assert len(re.findall(r"^\| \d \|$", table.markdown(rows=3), flags=re.MULTILINE)) == 3
    assert "first" not in table.markdown(rows=9)


# -- tables and figures of sweeps and of branches hold what the analysis found, on records whose truth is known --------


GAP = 0.03
WITHIN = {1e-3: 0.50, 2e-3: 0.66, 4e-3: 0.75, 8e-3: 0.70, 1.6e-2: 0.40}


@pytest.fixture(scope="module")
def branched() -> Evidence:
    return beside_own_training(gap=GAP)


def table(made: Evidence, name: str) -> tables.Table:
    return next(t for t in tables.build(made, questions.asked()) if t.name == name)


def rows(made: Evidence, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table(made, name).csv())))


def lines_to_copy(note: str) -> dict[str, Any]:
    """Names and dictionaries that a note gives for bench/suites/_recipes.py."""
    found = re.findall(r'([A-Z_]+)(?:\["\w+"\])? = (\{.*?\})(?=[;.](?: |$))', note)
    return {name: ast.literal_eval(chosen) for name, chosen in found}


# -- a sweep of learning rates ---------------------------------------------------------------------------------------


def test_the_rates_table_has_a_row_per_model_and_rate() -> None:
    truth = {"ViT-nano/7": WITHIN, "ResNet-mini": {1e-3: 0.3, 2e-3: 0.4, 8e-3: 0.6, 1.6e-2: None}}
    made = read([record for model, rates in truth.items() for record in swept(rates, model=model)])
    both = rows(made, "rates")
    listed = [row for row in both if row["seen"] == "72000"]
    assert {(r["model"], r["rate"], r["seen"]) for r in both} >= {(r["model"], r["rate"], "8000") for r in listed}
    read_back: dict[str, dict[float, float | None]] = {}
    for row in listed:
        known = float(row["accuracy"]) if row["accuracy"] else None
        read_back.setdefault(row["model"], {})[float(row["rate"])] = known
        assert (known is None) == (row["diverged"] == "1")
    assert read_back == truth
    chosen = {(row["model"], float(row["rate"])) for row in listed if row["chosen"]}
    assert chosen == {("ViT-nano/7", 4e-3), ("ResNet-mini", 8e-3)}
    assert not any(row["edge"] for row in listed)
    ends = rows(read(swept({1e-3: 0.5, 2e-3: 0.7})), "rates")
    (edge,) = (row for row in ends if row["edge"] and row["seen"] == "72000")
    assert float(edge["rate"]) == 2e-3 and "highest" in edge["edge"]
    assert not [t for t in tables.build(read(World().records()), questions.asked()) if t.name == "rates"]


def test_the_lines_to_copy_are_the_dictionaries_of_the_recipes() -> None:
    made = read([*swept(WITHIN), *swept({1e-3: 0.3, 2e-3: 0.4, 8e-3: 0.6, 1.6e-2: 0.5}, model="ResNet-mini")])
    of_suite = evidence.build(replace(made.records, suite="rates"))
    by_model = {sweep.model: sweep for sweep in lr_sweep.sweeps(of_suite)}
    lines = lines_to_copy(table(of_suite, "best-rates").note)
    assert lines["FAMILY_RATES"] == {sweep.family: sweep.rate for sweep in by_model.values()}
    assert {model: rates[72_000] for model, rates in lines["MODEL_RATES"].items()} == {
        model: sweep.rate for model, sweep in by_model.items()
    }
    wanted = WantedCells(suite="rates", scale="gpu", names=())
    at_scale = evidence.build(replace(of_suite.records, wanted=wanted))
    note = table(at_scale, "best-rates").note
    assert all(f'{name}["gpu"] = {{' in note for name in ("FAMILY_RATES", "MODEL_RATES"))
    assert not lines_to_copy(table(made, "best-rates").note)  # of a suite whose rates stand elsewhere
    twice = read(swept({1e-3: 0.5, 2e-3: 0.6}) + swept({1e-3: 0.7, 2e-3: 0.6}, weight_decay=0.2))
    assert len(lr_sweep.sweeps(twice)) == 2 and not lines_to_copy(table(twice, "best-rates").note)


def test_the_recipes_have_the_rates_of_the_committed_sweep() -> None:
    """At both of its budgets; of the larger networks, those of the sweep on all photographs."""
    reference = evidence.build(study_data.load(PROJECT / "results/reference/rates-cpu", suite="rates"))
    lines = lines_to_copy(table(reference, "best-rates").note)
    records = study_data.load(PROJECT / "results/reference/photograph-rates-cpu", suite="photograph-rates")
    exact = model_rates(lr_sweep.sweeps(evidence.build(records)))
    larger = {model: {seen: float(f"{rate:.2g}") for seen, rate in of.items()} for model, of in exact.items()}
    assert not lines["MODEL_RATES"].keys() & larger.keys()
    of_both = {"FAMILY_RATES": lines["FAMILY_RATES"], "MODEL_RATES": lines["MODEL_RATES"] | larger}
    assert of_both == {"FAMILY_RATES": _recipes.FAMILY_RATES["cpu"], "MODEL_RATES": _recipes.MODEL_RATES["cpu"]}


@pytest.mark.parametrize("suite", ["presets", "rates", "no-such-suite"])
def test_any_suite_draws_a_sweep_and_only_a_sweep(suite: str, tmp_path: Path) -> None:
    made = [replace(record, suite=suite) for record in swept({1e-3: 0.5, 2e-3: 0.6, 4e-3: 0.5})]
    for name, records in (("swept", made), ("plain", made[:1])):
        write(records, tmp_path / name)
        paths = report.build(tmp_path / name, suite=suite)
        drawn = {path.name for path in paths.figures}
        assert ("learning-rates.svg" in drawn) == (name == "swept")
        assert ('id="figure-learning-rates"' in paths.html.read_text()) == (name == "swept")
        assert ("figures/learning-rates.png" in paths.markdown.read_text()) == (name == "swept")


# -- branches --------------------------------------------------------------------------------------------------------


def test_the_branching_table_holds_every_budget_and_both_differences(branched: Evidence) -> None:
    listed = rows(branched, "branching")
    assert [(row["model"], row["seen"]) for row in listed] == [
        (model, seen) for model in ("ViT-nano/7", "ResNet-mini") for seen in ("8000", "24000", "72000")
    ]
    assert branches.measures(branched)[0] == "upstream"
    for row in listed:
        seeds = [
            score.value
            for record in branched.records.records
            if "compute" in record.cell.axes and record.cell.model == row["model"]
            for horizon in record.horizons
            if horizon.images_seen == int(row["seen"])
            for score in horizon.scores
            if score.task == "upstream"
        ]
        assert len(seeds) == 2 and float(row["accuracy"]) == pytest.approx(np.mean(seeds))
        assert float(row["same"]) == pytest.approx(0.0, abs=1e-9)
        assert float(row["cosine"]) == pytest.approx(GAP) and row["cosine_seeds"] == "2"
        assert float(row["cosine_low"]) <= GAP <= float(row["cosine_high"])
    spent = re.findall(r"(\S+) ([\d.]+) for (\d+) budgets", table(branched, "branching").note)
    assert spent == [("ViT-nano/7", "0.50", "3"), ("ResNet-mini", "0.50", "3")]


def test_the_branching_figure_draws_what_differs_and_what_was_spent(branched: Evidence) -> None:
    drawing = branching.draw(branched)
    data = drawing.data
    differences = data[data["measure"] != "ratio"]
    assert len(differences) == 2 * 6 and set(differences["seeds"]) == {2}
    truth = differences["schedule"].map({"same": 0.0, "cosine": GAP})
    assert list(differences["difference"]) == pytest.approx(list(truth), abs=1e-9)
    assert list(data.loc[data["measure"] == "ratio", "difference"]) == pytest.approx([0.5, 0.5])
    panel, compute = drawing.figure.axes  # a schedule of the same form gives the same bits: it has no panel
    assert "cosine" in panel.get_title(loc="left")
    dots = [c for c in panel.collections if type(c) is PathCollection]
    heights = [y for c in dots for y in c.get_offsets()[:, 1]]
    assert heights == pytest.approx([100 * GAP] * 6, abs=1e-6)
    assert [bar.get_width() for bar in compute.patches] == pytest.approx([0.5, 0.5])


def test_branches_alone_have_no_table_and_no_figure() -> None:
    alone = read(World().records()[:4])
    assert not [t for t in tables.build(alone, questions.asked()) if t.name == "branching"]
    with pytest.raises(NothingToDraw):
        branching.draw(alone)


# -- a table of models -----------------------------------------------------------------------------------------------


def test_scores_follow_the_names_where_people_read_and_keep_their_numbers() -> None:
    made = table(study(sizes=(30_000,)), "models")
    keys = [column.key for column in made.displayed]
    assert sorted([*keys, *made.csv_only]) == sorted(column.key for column in made.columns)
    assert {"fashion-mnist", "mnist", "digits"} <= set(made.csv_only)  # single tasks are in the CSV
    assert keys[:5] == ["series", "family", "headline", "upstream", "params"]
    for cells, row in zip(made.cells(), made.rows, strict=True):
        shown = dict(zip(keys, cells, strict=True))
        assert shown["series"] == row["series"] and shown["params"] == short_count(row["params"])
        assert shown["headline"].startswith(f"{100 * row['headline'].value:.1f} ±")
