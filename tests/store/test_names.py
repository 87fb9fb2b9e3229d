"""Names of files and folders where upper and lower case are not told apart, as on disks of macOS and Windows."""

import os
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.study import registry
from bench.study.cell import Cell
from tests.conftest import PROJECT


def folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


@given(text=st.text(st.characters(categories=("L", "N")), min_size=1, max_size=8))
def test_cells_whose_models_differ_by_case_alone_have_folders_of_their_own(text: str) -> None:
    cells = [Cell(model=f"{name}.py:Net", data="digits") for name in {text.lower(), text.upper(), text.swapcase()}]
    cells += [replace(cell, seed=1) for cell in cells]
    names = [registry.directory_name(cell) for cell in cells]
    assert len({folded(name) for name in names}) == len(set(cells)) and all(name == name.lower() for name in names)


@pytest.mark.parametrize("study", ["scaling-cpu", "rates-cpu", "published"])
def test_no_two_files_of_a_study_and_its_report_differ_by_case_alone(study: str) -> None:
    for where, folders, files in os.walk(PROJECT / "results" / "reference" / study):
        names = [*folders, *files]
        assert len({folded(name) for name in names}) == len(names), where
