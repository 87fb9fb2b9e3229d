"""Branches against trainings of their own, on records whose differences and costs are known."""

from __future__ import annotations

import pytest

from bench.analysis import branches
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Reason, Verdict
from bench.suites import branching as suite
from bench.suites._contract import SuiteOptions
from bench.train import schedule
from tests.analysis._records import World
from tests.analysis._study import ask, beside_own_training, read

GAP = 0.03  # what the cosine runs lack, on every task and seed


@pytest.fixture(scope="module")
def branched() -> Evidence:
    return beside_own_training(gap=GAP)


def test_each_budget_is_paired_and_the_known_gap_is_found(branched: Evidence) -> None:
    for measure in branches.measures(branched):
        found = branches.contrasts(branched, measure)
        assert list(found) == ["same", "cosine"]
        for way, gap in zip(found, (0.0, GAP), strict=True):
            assert len(found[way]) == 6  # two models × three budgets
            assert [c.estimate.value for c in found[way]] == pytest.approx([gap] * 6, abs=1e-12)
            assert all(branches.identical(c) == (gap == 0) for c in found[way])


def test_savings_are_ratios_of_what_was_spent(branched: Evidence) -> None:
    found = branches.savings(branched)
    assert [(s.budgets, s.seeds) for s in found] == [(3, 2), (3, 2)]
    assert [s.flops for s in found] == pytest.approx([0.5, 0.5])
    assert [s.seconds for s in found] == pytest.approx([0.25, 0.25])


def test_findings_say_so(branched: Evidence) -> None:
    found = ask(branched, "branch as accurate", "branches save")
    same, cosine, *_ = found
    assert (same.subject, same.verdict, same.reasons) == (("same",), Verdict.YES, (Reason.IDENTICAL,))
    assert (cosine.subject, cosine.verdict, cosine.reasons) == (("cosine",), Verdict.YES, ())
    assert cosine.estimate == pytest.approx(GAP) and cosine.n.models == 2 and cosine.n.steps == 6
    saved = [f for f in found if f.question == "branches save"]
    assert [f.estimate for f in saved] == pytest.approx([0.5, 0.5]) and {f.verdict for f in saved} == {Verdict.YES}


def test_a_study_of_branches_alone_has_nothing_to_compare() -> None:
    assert not ask(read(World().records()[:4]), "branch as accurate", "branches save")


@pytest.mark.parametrize("scale", ["cpu", "gpu"])
def test_the_suite_saves_what_the_literature_says(scale):
    """Hägele et al. 2024: five budgets spaced x2 cost at most 0.62 of separate trainings, three at most 0.66."""
    cells = suite.cells(SuiteOptions(scale=scale))
    by_model = {}
    for cell in cells:
        by_model.setdefault(cell.model, {})[cell.recipe.schedule, cell.recipe.cooldown] = cell
    assert len(by_model) == 3 and len({c.seed for c in cells}) == 3
    for ways in by_model.values():
        branch, apart, cosine = ways["branch", 0.2], ways["separate", 0.2], ways["separate", 1.0]
        spent = [schedule.images_trained(c.recipe, c.horizons) for c in (branch, apart, cosine)]
        assert spent[1] == spent[2]
        assert spent[0] / spent[1] <= (0.62 if len(branch.horizons) == 5 else 0.66)
