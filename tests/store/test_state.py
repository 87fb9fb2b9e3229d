"""How far a cell is, from its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.core.errors import UserError
from bench.store.study import CellDirectory, state_of
from tests.analysis._records import World, write


@pytest.fixture
def cells(tmp_path: Path) -> list[CellDirectory]:
    world = World()
    world.sizes, world.draws = (30_000,), (0, 1)
    study = write(world.records()[:5], tmp_path / "scaling")
    return [CellDirectory(path) for path in sorted((study / "cells").iterdir())]


def test_a_record_that_is_absent_or_torn_leaves_its_cell_to_do(cells: list[CellDirectory]) -> None:
    cells[1].record.unlink()
    cells[3].record.write_text("{")
    assert [state_of(cell)[0] for cell in cells] == ["done", "missing", "done", "damaged", "done"]


def test_a_newer_record_is_refused(cells: list[CellDirectory]) -> None:
    path = cells[3].record
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 99}))
    with pytest.raises(UserError, match="newer version") as error:
        state_of(cells[3])
    assert error.value.fix == "Update the project, or choose another folder with --results."
