"""Budgets within 2 % are one, wherever families are compared or a frontier is drawn."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis.budgets import ONE_BUDGET, budgets, one_budget
from bench.report.figures import frontier
from bench.study.record import Horizon, Score
from tests.analysis._records import World, map_scores
from tests.analysis._study import read

FLOPS = st.lists(st.floats(min_value=1e6, max_value=1e24), min_size=1, max_size=30)


def test_two_hybrids_of_162_gigaflops_have_one_budget() -> None:
    assert budgets([162.450e9, 20.4e9, 162.547e9, 325.1e9]) == pytest.approx([162.547e9, 20.4e9, 162.547e9, 325.1e9])


@given(FLOPS)
def test_groups_are_no_wider_than_one_budget_and_never_below_what_was_spent(flops: list[float]) -> None:
    budget_of = budgets(flops)
    assert (budget_of >= flops).all()
    for budget in np.unique(budget_of):
        members = np.array(flops)[budget_of == budget]
        assert budget == members.max() and one_budget(members.min(), members.max())
    ordered = np.unique(budget_of)
    assert (np.diff(ordered) > 0).all() and budgets(ordered).max() == max(flops)


def test_order_does_not_matter_and_a_chain_is_not_one_budget() -> None:
    chain = [1.0, 1.015, 1.03, 1.045]
    assert len(np.unique(budgets(chain))) == 2
    assert budgets(chain[::-1]).tolist() == budgets(chain).tolist()[::-1]
    assert not one_budget(1.0, 1.001 * ONE_BUDGET) and one_budget(ONE_BUDGET, 1.0)


@pytest.mark.parametrize("ahead", (-0.04, 0.04))
def test_of_one_budget_only_the_best_point_is_on_the_frontier(ahead: float) -> None:
    """Two ViTs whose budgets differ by 0.6 %: whichever is better is bold, the dearer one or the cheaper one."""
    world = World()
    family, params, macs = world.models["ViT-mini/7"]
    world.models = {"ViT-mini/7": (family, params, macs), "ViT-twin/7": (family, params, round(1.006 * macs))}

    def moved(horizon: Horizon, score: Score) -> Score:
        return replace(score, value=score.value + ahead)

    records = [map_scores(r, moved) if r.cell.model == "ViT-twin/7" else r for r in world.records()]
    drawn = frontier.draw(read(records)).data
    better = "ViT-twin/7" if ahead > 0 else "ViT-mini/7"
    assert len(drawn) == 2 * len(world.horizons[1:]) and list(drawn["best"]) == list(drawn["series"] == better)
