"""Tables as text: LaTeX that is whole and means itself, bold only where intervals separate."""

from __future__ import annotations

import csv
import io
import re

import pytest

from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.table import Column, Table, tex
from bench.report import tables
from bench.stats.intervals import Estimate

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
    check_latex(table.latex(), columns=len(table.columns), rows=len(table.rows))


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
