"""Ticks of logarithmic axes: round numbers, and of those the ones at which points lie."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from bench.report.figures import _style


def ticks(values: list[float]) -> list[float]:
    axes = Figure().subplots()
    _style.plain_log_x(axes, values)
    low, high = axes.get_xlim()
    assert low < min(values) and max(values) < high
    return [float(tick) for tick in axes.get_xticks()]


def test_ticks_stand_where_the_points_are() -> None:
    found = ticks([300, 1_000, 3_000, 12_000, 20_000, 29_000, 30_000])
    assert {300, 1_000, 3_000, 30_000} <= {round(tick) for tick in found}


@pytest.mark.parametrize("values", [[9.1, 18.2, 36.4, 72.7, 145, 245, 277, 444], [1e10, 5e11, 1e20, 4e21], [1, 9e6]])
def test_there_are_few_and_they_lie_inside(values: list[float]) -> None:
    found = ticks(values)
    assert 2 <= len(found) <= 6
    assert all(f"{tick:.0e}"[0] in "1235" for tick in found) or set(found) <= set(values)


def test_units_reach_beyond_the_largest_budgets_published() -> None:
    assert [_style.tick_text(x) for x in (4.3e21, 1e22, 5e18, 3e4, 0.3)] == ["4.3Z", "10Z", "5E", "30k", "0.3"]
