"""The learning rate that a sweep chooses, on records whose best rate is known, and the suites' own rates."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.analysis import evidence, lr_sweep, study_data
from bench.analysis.finding import CheckKind, Reason, Verdict
from bench.analysis.validity_checks import checks
from bench.core.record import Record
from bench.questions import best_learning_rate
from bench.suites import _recipes
from bench.suites import rates as suite
from tests.analysis._records import World, change
from tests.analysis._study import read, swept

REFERENCE = Path(__file__).resolve().parents[2] / "results/reference/rates-cpu"
WITHIN = {1e-3: 0.50, 2e-3: 0.715, 4e-3: 0.70, 8e-3: 0.73, 1.6e-2: 0.40}  # 2e-3 is the lowest within two points


def warnings(made: list[Record]) -> list[tuple[str, ...]]:
    return [check.names for check in checks(read(made)) if check.kind == CheckKind.RATE_AT_EDGE]


def test_the_lowest_rate_within_two_points_of_the_best_is_chosen_by_upstream_accuracy_alone() -> None:
    (sweep,) = lr_sweep.sweeps(read(swept(WITHIN)))
    assert (sweep.best.rate, sweep.chosen.rate, sweep.edge) == (8e-3, 2e-3, None)
    assert sweep.images_seen == 72_000 and [t.rate for t in sweep.tried] == sorted(WITHIN)
    assert warnings(swept(WITHIN)) == []


@pytest.mark.parametrize(
    "accuracies, edge, further",
    [
        ({1e-3: 0.5, 2e-3: 0.6, 4e-3: 0.7}, "highest", (8e-3, 1.6e-2)),
        ({1e-3: 0.7, 3e-3: 0.6, 9e-3: 0.5}, "lowest", (1e-3 / 9, 1e-3 / 3)),
    ],
)
def test_a_best_rate_at_the_edge_is_warned_of_and_the_next_rates_named(accuracies, edge, further) -> None:
    made = swept(accuracies)
    (sweep,) = lr_sweep.sweeps(read(made))
    assert sweep.edge == edge and sweep.further == pytest.approx(further)
    assert warnings(made) == [("ViT-nano/7",)]
    (finding,) = best_learning_rate.best_learning_rates(read(made))
    assert (finding.verdict, finding.reasons, finding.evidence) == (Verdict.NO, (Reason.EDGE_OF_SWEEP,), (sweep,))


def test_a_rate_that_diverges_bounds_the_sweep_and_is_never_chosen() -> None:
    made = swept({1e-3: 0.5, 2e-3: 0.7, 4e-3: None})
    (sweep,) = lr_sweep.sweeps(read(made))
    assert (sweep.chosen.rate, sweep.edge, sweep.tried[-1].diverged) == (2e-3, None, 1)
    (finding,) = best_learning_rate.best_learning_rates(read(made))
    assert (finding.verdict, finding.estimate, finding.reasons) == (Verdict.YES, 2e-3, (Reason.DIVERGED,))
    again = change(swept({1e-3: 0.5, 2e-3: None})[1], {"directory": "another-seed-0123456789", "cell.seed": 1})
    assert lr_sweep.sweeps(read([*made, again]))[0].chosen.rate == 1e-3
    assert lr_sweep.sweeps(read(swept({1e-3: None, 2e-3: None}))) == ()


def test_what_differs_in_more_than_its_rate_is_another_sweep() -> None:
    assert lr_sweep.sweeps(read(swept({1e-3: 0.5}) + swept({2e-3: 0.6}, weight_decay=0.2))) == ()
    both = swept({1e-3: 0.5, 2e-3: 0.6}) + swept({1e-3: 0.7, 2e-3: 0.6}, weight_decay=0.2)
    assert sorted(s.chosen.rate for s in lr_sweep.sweeps(read(both))) == [1e-3, 2e-3]
    assert lr_sweep.sweeps(read(World().records())) == ()


def test_only_what_was_chosen_stands() -> None:
    evidence = lr_sweep.without_rejected(read(swept(WITHIN)))
    assert [s.last.variant for s in evidence.series] and len(evidence.series) == 1
    assert set(evidence.horizons["recipe"].map(lambda recipe: recipe.lr)) == {2e-3}
    assert evidence.swept is not None and lr_sweep.sweeps(evidence) == lr_sweep.sweeps(evidence.swept)
    unswept = read(World().records())
    assert lr_sweep.without_rejected(unswept) is unswept


def test_the_suites_rates_are_those_that_the_committed_sweep_chose() -> None:
    found = lr_sweep.sweeps(evidence.build(study_data.load(REFERENCE, suite="rates")))
    assert len(found) >= 9 and {t.rate for s in found for t in s.tried} == set(suite.RATES)
    assert not [s.model for s in found if s.edge]
    for sweep in found:
        assert _recipes.recipe_for(sweep.model).lr == sweep.chosen.rate
    assert best_learning_rate.family_rates(found) == _recipes.FAMILY_RATES["cpu"]
    assert best_learning_rate.model_rates(found) == _recipes.MODEL_RATES["cpu"]
