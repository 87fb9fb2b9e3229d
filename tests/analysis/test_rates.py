"""The learning rate that a sweep chooses, on records whose best rate is known, and the suites' own rates."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.analysis import evidence, rates, study_data
from bench.analysis import validity as checks
from bench.core.record import Horizon, Record, Score
from bench.report import findings, tables
from bench.suites import _recipes
from bench.suites import rates as suite
from tests.analysis._records import World, change, map_scores
from tests.analysis._study import read

REFERENCE = Path(__file__).resolve().parents[2] / "results/reference/rates-cpu"
WITHIN = {1e-3: 0.50, 2e-3: 0.715, 4e-3: 0.70, 8e-3: 0.73, 1.6e-2: 0.40}  # 2e-3 is the lowest within two points


def swept(accuracies: dict[float, float | None], *, model: str = "ViT-nano/7", **recipe: Any) -> list[Record]:
    """One record per rate whose upstream accuracy at the longest budget is as given; None for one that diverged.

    At shorter budgets, and downstream, the highest rate is the best everywhere.
    """
    world = World(seed=3)
    world.models, world.seeds = {model: world.models[model]}, (0,)
    base = next(r for r in world.records() if r.cell.model == model)
    made = []
    for rate, accuracy in accuracies.items():
        directory = base.directory + f"-{rate:g}" + "".join(f"{value}" for value in recipe.values())
        record = change(base, {"directory": directory, "cell.recipe": replace(base.cell.recipe, lr=rate, **recipe)})

        def changed(horizon: Horizon, score: Score, rate: float = rate, accuracy: float | None = accuracy) -> Score:
            last = score.task == "upstream" and horizon is base.horizons[-1]
            return replace(score, value=accuracy if last else min(0.99, 0.1 + 50 * rate))

        record = map_scores(record, changed)
        if accuracy is None:
            record = replace(record, status="diverged", reason="not finite", horizons=record.horizons[:1])
        made.append(record)
    return made


def warnings(made: list[Record]) -> list[str]:
    return [check.text for check in checks.run(read(made)) if check.name == "learning rate"]


def test_the_lowest_rate_within_two_points_of_the_best_is_chosen_by_upstream_accuracy_alone() -> None:
    (sweep,) = rates.sweeps(read(swept(WITHIN)))
    assert (sweep.best.rate, sweep.chosen.rate, sweep.edge) == (8e-3, 2e-3, None)
    assert sweep.images_seen == 72_000 and [t.rate for t in sweep.tried] == sorted(WITHIN)
    assert warnings(swept(WITHIN)) == []


@pytest.mark.parametrize(
    "accuracies, edge, beyond",
    [
        ({1e-3: 0.5, 2e-3: 0.6, 4e-3: 0.7}, "highest", "0.008,0.016"),
        ({1e-3: 0.7, 3e-3: 0.6, 9e-3: 0.5}, "lowest", "0.000111,0.000333"),
    ],
)
def test_a_best_rate_at_the_edge_is_warned_of_and_the_next_rates_named(accuracies, edge, beyond) -> None:
    made = swept(accuracies)
    (sweep,) = rates.sweeps(read(made))
    assert sweep.edge == edge
    assert len(warnings(made)) == 1 and beyond in warnings(made)[0]
    lines = "\n".join(findings.find(read(made)).lines())
    assert f"the {edge} rate tried: go on with --sweep lr={beyond}" in lines and "is the edge of its sweep" in lines


def test_a_rate_that_diverges_bounds_the_sweep_and_is_never_chosen() -> None:
    made = swept({1e-3: 0.5, 2e-3: 0.7, 4e-3: None})
    (sweep,) = rates.sweeps(read(made))
    assert (sweep.chosen.rate, sweep.edge, sweep.tried[-1].diverged) == (2e-3, None, 1)
    assert "Diverged: 0.004" in rates.answers(read(made))[0].sentence
    one_seed_of_two = [*made, swept({1e-3: 0.5, 2e-3: None})[1] | {"directory": "another-seed-0123456789"}]
    one_seed_of_two[-1]["cell"]["seed"] = 1
    assert rates.sweeps(read(one_seed_of_two))[0].chosen.rate == 1e-3
    assert rates.sweeps(read(swept({1e-3: None, 2e-3: None}))) == ()


def test_what_differs_in_more_than_its_rate_is_another_sweep() -> None:
    assert rates.sweeps(read(swept({1e-3: 0.5}) + swept({2e-3: 0.6}, weight_decay=0.1))) == ()
    both = swept({1e-3: 0.5, 2e-3: 0.6}) + swept({1e-3: 0.7, 2e-3: 0.6}, weight_decay=0.1)
    assert sorted(s.chosen.rate for s in rates.sweeps(read(both))) == [1e-3, 2e-3]
    assert rates.sweeps(read(World().records())) == () and rates.table(read(World().records())) is None


def test_the_table_has_a_row_per_model_and_rate_and_says_which_was_chosen() -> None:
    made = read(swept(WITHIN) + swept({1e-3: 0.3, 2e-3: 0.6, 4e-3: None}, model="ResNet-mini"))
    (table,) = (t for t in tables.build(made) if t.name == "rates")
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert len(rows) == 5 + 3
    chosen = {(r["model"], float(r["rate"])) for r in rows if r["chosen"]}
    assert chosen == {("ViT-nano/7", 2e-3), ("ResNet-mini", 2e-3)}
    assert [r["diverged"] for r in rows if r["model"] == "ResNet-mini"] == ["", "", "1"]
    answers = {a.subject: a.sentence for a in rates.answers(made)}
    assert all(sentence.startswith("--set lr=0.002: ") for sentence in answers.values()) and len(answers) == 2
    assert 'FAMILY_RATES = {"ViT": 0.002, "ResNet": 0.002}' in table.note


def test_the_suites_rates_are_those_that_the_committed_sweep_chose() -> None:
    found = rates.sweeps(evidence.build(study_data.load(REFERENCE, suite="rates")))
    assert len(found) >= 9 and {t.rate for s in found for t in s.tried} == set(suite.RATES)
    assert not [s.model for s in found if s.edge]
    for sweep in found:
        assert _recipes.recipe_for(sweep.model).lr == sweep.chosen.rate
    assert rates.family_rates(found) == _recipes.FAMILY_RATES
    assert rates.model_rates(found) == _recipes.MODEL_RATES
