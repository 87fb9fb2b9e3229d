"""A narrow terminal keeps names whole; a log has no trailing blanks."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from bench.analysis import published, questions
from bench.core.spec import Cell
from bench.data import __main__ as data
from bench.plan import console as views
from bench.report import build as report
from tests.execute.test_local import plan_of

MODELS = ("R8x0.125-s2", "R8x0.25-s2")


def shown(width, *, terminal):
    cells = [Cell(model=model, data="fashion-mnist", num_images=1000, horizons=(0, 512, 1024)) for model in MODELS]
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    views.show_table(views.plan_table(plan_of(cells, "")), console, spare=views.SPARE)
    return console.file.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [60, 40, 120])
def test_names_stay_whole_and_rows_apart(width, terminal):
    said = shown(width, terminal=terminal)
    assert all(model in said for model in MODELS) and "…" not in said and "one worker" in said
    assert all(len(line.rstrip()) <= width for line in said.splitlines())
    assert ("budgets" in said) == (width == 120)


def test_a_log_has_no_trailing_blanks():
    said = shown(120, terminal=False)
    assert said and all(line == line.rstrip() for line in said.splitlines())
    console = Console(file=io.StringIO(), width=60)
    report.say(SimpleNamespace(findings=questions.find(published.evidence()), html="report.html", check=""), console)
    rows = console.file.getvalue().splitlines()
    assert len(rows) > 5 and all(row == row.rstrip() and len(row) <= 60 for row in rows)


def test_the_list_of_data_sets_is_as_wide_as_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "72")
    assert data.main([]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 72
