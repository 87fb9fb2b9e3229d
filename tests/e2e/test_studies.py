"""A study is found by its folder, and answers the question of its suite whatever the folder is called."""

from __future__ import annotations

import shutil

import pytest

from bench import status
from bench.core.errors import EXIT_OK, EXIT_USAGE
from bench.report import __main__ as report
from bench.store import index as studies
from tests.conftest import PROJECT

REFERENCE = PROJECT / "results" / "reference"
STUDIES = studies.named(REFERENCE)


@pytest.mark.parametrize("name", STUDIES)
def test_a_kept_study_says_itself_which_suite_it_answers(name):
    assert studies.suite_of(REFERENCE / name) == name.removesuffix("-cpu")


def test_a_report_under_another_name_is_the_same(tmp_path, capsys):
    """Headlines, figures and words are those of the suite, not those of a folder that no suite is named after."""
    for name in ("rates", "rates-cpu"):
        shutil.copytree(REFERENCE / "rates-cpu" / "cells", tmp_path / name / "cells")
        assert report.main(["--suite", name, "--results", str(tmp_path)]) == EXIT_OK
    made = sorted(p.relative_to(tmp_path / "rates") for p in (tmp_path / "rates").rglob("*") if p.is_file())
    for path in made:
        assert (tmp_path / "rates-cpu" / path).read_bytes() == (tmp_path / "rates" / path).read_bytes(), path


@pytest.mark.parametrize("verb", [status, report])
def test_the_nearest_study_is_named(verb, tmp_path, capsys):
    (tmp_path / "smoke" / "cells").mkdir(parents=True)
    assert verb.main(["--suite", "smok", "--results", str(tmp_path)]) == EXIT_USAGE
    said = capsys.readouterr().err
    assert "Unknown suite 'smok'" in said and "Did you mean 'smoke'" in said
    assert verb.main(["--suite", "rates", "--results", str(tmp_path)]) == EXIT_USAGE
    said = capsys.readouterr().err
    assert "No study 'rates'" in said and "It has: smoke." in said and "bench.run --suite rates" in said
