"""What a command prints fits a narrow terminal; a log has no trailing blanks."""

from __future__ import annotations

import io
from types import SimpleNamespace

from rich.console import Console

from bench.analysis import published, questions
from bench.data import __main__ as data
from bench.report import build as report


def test_findings_in_a_log_have_no_trailing_blanks():
    console = Console(file=io.StringIO(), width=60)
    found = questions.find(published.evidence())
    report.say(SimpleNamespace(findings=found, html="report.html", check="", broken=()), console)
    rows = console.file.getvalue().splitlines()
    assert len(rows) > 5 and all(row == row.rstrip() and len(row) <= 60 for row in rows)


def test_the_list_of_data_sets_is_as_wide_as_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "72")
    assert data.main([]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 72
