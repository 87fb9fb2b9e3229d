"""Branches against trainings of their own, on records whose differences and costs are known."""

from __future__ import annotations

import copy

import pytest

from bench.analysis import branching, evidence
from bench.analysis import study_data as records_module
from bench.report.figures import branching as figure
from bench.report.figures._contract import NothingToDraw
from bench.suites import branching as suite
from bench.suites._contract import SuiteOptions
from bench.train import schedule
from tests.analysis._records import World, write

GAP = 0.03  # what the cosine runs lack, on every task and seed


def study(folder):
    world = World()
    world.models = {name: world.models[name] for name in ("ViT-nano/7", "ResNet-mini")}
    made = []
    for record in (world.records())[:-1]:
        if "data_size" in record["cell"]["axes"]:
            continue
        apart, cosine = copy.deepcopy(record), copy.deepcopy(record)
        record["cell"]["axes"] = ["compute", "branching"]
        changes = ((apart, "a", {}, 0.0), (cosine, "b", {"cooldown": 1.0, "cooldown_shape": "cosine"}, GAP))
        for other, end, change, gap in changes:
            other["cell"]["axes"] = ["branching"]
            other["cell"]["recipe"] |= {"schedule": "separate"} | change
            other["directory"] += end
            other["cost"]["spent_flops"] = {k: 2 * v for k, v in record["cost"]["spent_flops"].items()}
            other["cost"]["seconds"]["train"] *= 4
            for row in other["horizons"]:
                for score in row["scores"]:
                    score["value"] -= gap
        made += [record, apart, cosine]
    path = write(made, folder)
    return evidence.build(records_module.load(path, suite="scaling"), headline=("mnist",))


@pytest.fixture(scope="module")
def branched(tmp_path_factory):
    return study(tmp_path_factory.mktemp("branching") / "scaling")


def test_each_budget_is_paired_and_the_known_gap_is_found(branched):
    for measure in branching.measures(branched):
        found = branching.contrasts(branched, measure)
        assert set(found) == {"apart, same schedule", "apart, cosine schedule"}
        for way, gap in zip(found, (0.0, GAP), strict=True):
            assert len(found[way]) == 6  # two models × three budgets
            assert [c.estimate.value for c in found[way]] == pytest.approx([gap] * 6, abs=1e-12)
            assert all(branching.same(c) == (gap == 0) for c in found[way])


def test_savings_are_ratios_of_what_was_spent(branched):
    found = branching.savings(branched)
    assert [(s.horizons, s.seeds) for s in found] == [(3, 2), (3, 2)]
    assert [s.flops for s in found] == pytest.approx([0.5, 0.5])
    assert [s.seconds for s in found] == pytest.approx([0.25, 0.25])


def test_answers_table_and_figure_say_so(branched):
    answers = {(a.question, a.subject): a for a in branching.answers(branched)}
    same, cosine, *_ = answers.values()
    assert same.verdict == cosine.verdict == "yes" and "last digit" in same.sentence
    assert "+3.0 points" in cosine.sentence
    table = branching.table(branched)
    assert len(table.rows) == 6 and "0.50 for 3 budgets" in table.note
    data = figure.draw(branched).data
    assert set(data["model"]) == {"ViT-nano/7", "ResNet-mini"} and len(data) == 2 * 6 + 2


def test_a_study_of_branches_alone_has_nothing_to_compare(tmp_path):
    path = write(World().records()[:4], tmp_path / "scaling")
    alone = evidence.build(records_module.load(path, suite="scaling"))
    assert not branching.answers(alone) and branching.table(alone) is None
    with pytest.raises(NothingToDraw):
        figure.draw(alone)


@pytest.mark.parametrize("scale", suite.SCALES)
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
