"""Grids and plans as the commands make them, for tests that need no store and no calibration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from bench.core.spec import Cell
from bench.plan.expand import Grid, expand
from bench.plan.options import StudyOptions
from bench.plan.plan import Plan, PlannedCell
from bench.plan.sizes import DataSizes
from bench.suites import _contract as suites


def grid_of(suite: str, *, scale: str = "cpu", **options) -> Grid:
    """What a suite comes to under these fields of `StudyOptions`."""
    asked = replace(StudyOptions.of(), suite=suite, scale=scale, **options)
    return expand(suites.load(suite), asked, DataSizes(root=asked.data_root, published=scale == "paper"))


def cells_of(suite: str, **options) -> list[Cell]:
    """The cells of `grid_of` that a run would do."""
    return list(grid_of(suite, **options).chosen)


def plan_of(cells: Iterable[Cell], store: Path | str = "", *, seconds: float = 1.0, **fields) -> Plan:
    """A plan in which nothing is done."""
    planned = tuple(
        PlannedCell(cell=cell, name=cell.readable_name, state="missing", fraction=0.0, images=64, seconds=seconds)
        for cell in cells
    )
    usual = {"suite": "test", "question": "?", "scale": "cpu", "device": "cpu", "workers": 1, "threads": 1, "ranks": 1}
    return Plan(store=Path(store), cells=planned, **{**usual, **fields})
