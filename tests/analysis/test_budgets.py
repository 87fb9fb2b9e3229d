"""Budgets within 2 % are one, wherever families are compared or a frontier is drawn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis.budgets import ONE_BUDGET, budgets, one_budget
from bench.report.figures import frontier

FLOPS = st.lists(st.floats(min_value=1e6, max_value=1e24), min_size=1, max_size=30)


def test_two_hybrids_of_162_gigaflops_have_one_budget() -> None:
    assert budgets([162.450e9, 20.4e9, 162.547e9, 325.1e9]) == pytest.approx([162.547e9, 20.4e9, 162.547e9, 325.1e9])


@given(FLOPS)
def test_groups_are_no_wider_than_one_budget_and_never_below_what_was_spent(flops: list[float]) -> None:
    found = budgets(flops)
    assert (found >= flops).all()
    for budget in np.unique(found):
        members = np.array(flops)[found == budget]
        assert budget == members.max() and one_budget(members.min(), members.max())
    ordered = np.unique(found)
    assert (np.diff(ordered) > 0).all() and budgets(ordered).max() == max(flops)


def test_order_does_not_matter_and_a_chain_is_not_one_budget() -> None:
    chain = [1.0, 1.015, 1.03, 1.045]
    assert len(np.unique(budgets(chain))) == 2
    assert budgets(chain[::-1]).tolist() == budgets(chain).tolist()[::-1]
    assert not one_budget(1.0, 1.001 * ONE_BUDGET) and one_budget(ONE_BUDGET, 1.0)


def test_of_one_budget_only_the_best_point_is_on_the_frontier() -> None:
    class Scored:
        def __init__(self, flops: float = 0.0, value: float = 0.0) -> None:
            self.train_flops, self.value = flops, value

    points = [
        (Scored(flops), "", Scored(value=v)) for flops, v in ((20, 0.5), (162.4, 0.69), (162.5, 0.73), (325, 0.7))
    ]
    assert frontier._best(points) == [0, 2]  # type: ignore[arg-type]
    points = [
        (Scored(flops), "", Scored(value=v)) for flops, v in ((20, 0.5), (162.4, 0.73), (162.5, 0.69), (325, 0.8))
    ]
    assert frontier._best(points) == [0, 1, 3]  # type: ignore[arg-type]
