"""States of many cells, looked at by several processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench.errors import UserError
from bench.store import processes, state
from bench.store.cells import CellDirectory
from tests.analysis._records import World, write


@pytest.fixture
def cells(tmp_path: Path) -> list[CellDirectory]:
    world = World()
    world.sizes, world.draws = (30_000,), (0, 1)
    study = write(world.records()[:8], tmp_path / "scaling")
    return [CellDirectory(path) for path in sorted((study / "cells").iterdir())]


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "CHUNK", 2)
    monkeypatch.setattr(processes, "MANY_CHUNKS", 1)
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def test_several_processes_see_what_one_does(cells: list[CellDirectory], forked: None) -> None:
    (cells[1].path / "record.json").unlink()
    (cells[4].path / "record.json").write_text("{")
    alone = [state.state_of(cell) for cell in cells]
    assert state.states_of(cells) == alone
    assert [alone[number][0] for number in (0, 1, 4)] == ["done", "missing", "damaged"]


def test_a_newer_record_is_refused_in_the_same_words(cells: list[CellDirectory], forked: None) -> None:
    path = cells[3].path / "record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 99}))
    with pytest.raises(UserError, match="newer version") as error:
        state.states_of(cells)
    assert error.value.fix == "Update the project, or choose another folder with --results."


def test_no_cells_have_no_states() -> None:
    assert state.states_of([]) == []
