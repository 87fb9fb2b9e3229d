"""Cells of one axis differ in nothing but the axis, for every suite at every scale."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

import pytest

from bench.core import registry
from bench.core.errors import UserError
from bench.core.spec import Cell, Recipe
from bench.plan import preflight
from bench.plan.overrides import Overrides
from bench.plan.study_cells import StudyCells
from bench.suites import _contract
from bench.suites._contract import SCALES
from bench.train.effective import effective_recipe
from tests.plan.making import grid_of

HOURS = (0.06, 0.5, None, 8.0)
SUITES = registry.names("suite")


def scales_of(suite: str) -> Iterable[tuple[str, float | None]]:
    for scale in SCALES:
        try:
            grid_of(suite, scale=scale)
        except UserError as error:
            assert "has no scale" in str(error)
            continue
        with_hours = scale == "gpu" and not _contract.load(suite).exclusive
        yield from ((scale, hours) for hours in (HOURS if with_hours else (None,)))


PLANNED = [(suite, scale, hours) for suite in SUITES for scale, hours in scales_of(suite)]


def trained(grid: StudyCells) -> list[Cell]:
    return [cell for cell in grid.cells if cell.job != "train" or any(cell.horizons)]


def by_axis(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        for axis in cell.axes:
            found.setdefault(axis, []).append(cell)
    return found


def values(cells: Iterable[Cell], field: str, *, within: Iterable[str] = ()) -> set[int]:
    """How many values of a recipe's field there are among cells that are equal in `within`."""
    groups: dict[tuple[object, ...], set[object]] = {}
    for cell in cells:
        key = tuple(getattr(cell, name) for name in within)
        groups.setdefault(key, set()).add(getattr(cell.recipe, field))
    return {len(found) for found in groups.values()}


def test_every_suite_is_looked_at() -> None:
    assert {suite for suite, _, _ in PLANNED} == set(SUITES)
    assert {scale for _, scale, _ in PLANNED} == set(SCALES)


@pytest.mark.parametrize("suite, scale, hours", PLANNED)
def test_cells_of_an_axis_differ_in_nothing_but_the_axis(suite: str, scale: str, hours: float | None) -> None:
    grid, varies = grid_of(suite, scale=scale, hours=hours), _contract.load(suite).varies
    preflight.check_warmup(grid.cells)
    axes = by_axis(trained(grid))
    assert set(varies) <= set(axes), "what an axis varies on purpose is said of an axis that there is"
    for axis, cells in axes.items():
        where = f"{suite} at {scale}, {axis} axis"
        assert len({effective_recipe(cell).warmup_steps for cell in cells}) == 1, where
        for field in (entry.name for entry in fields(Recipe)):
            if field in varies.get(axis, ()):
                assert max(values(cells, field)) > 1, f"{where}: {field} is said to vary"
            elif field == "lr":  # every model has a rate of its own
                assert values(cells, field, within=("data", "model")) == {1}, where
            elif field in ("warmup_images", "batch", "cooldown"):
                assert values(cells, field) == {1}, f"{where}: {field}"
            else:  # letters are not mirrored, and the paper trains on each of its sets in its own way
                assert values(cells, field, within=("data",)) == {1}, f"{where}: {field}"


@pytest.mark.parametrize("suite, scale, hours", PLANNED)
def test_parts_of_the_data_are_seen_for_as_long_as_all_of_them(suite: str, scale: str, hours: float | None) -> None:
    groups: dict[Cell, list[Cell]] = {}
    for cell in by_axis(trained(grid_of(suite, scale=scale, hours=hours))).get("data_size", ()):
        groups.setdefault(replace(cell, num_images=None, horizons=(0,)), []).append(cell)
    for cells in groups.values():
        lasts = {cell.horizons[-1] for cell in cells if cell.num_images is not None}
        assert len(lasts) <= 1, "parts"
        assert all(lasts <= set(cell.horizons) for cell in cells), "the whole"


@pytest.mark.parametrize("suite, scale, hours", PLANNED)
def test_every_training_is_planned_once(suite: str, scale: str, hours: float | None) -> None:
    trainings = [replace(cell, horizons=(0,)) for cell in grid_of(suite, scale=scale, hours=hours).cells]
    assert len(set(trainings)) == len(trainings)


def test_budgets_never_change_the_warm_up() -> None:
    """Of a budget more or less the rest of the grid knows nothing."""
    usual = {replace(c, horizons=(0,)): effective_recipe(c) for c in grid_of("scaling").cells}
    for horizons in (("24000",), ("8000", "64000"), ("3000",)):
        other = grid_of("scaling", overrides=Overrides(horizons=horizons)).cells
        assert all(usual[replace(cell, horizons=(0,))] == effective_recipe(cell) for cell in other)
