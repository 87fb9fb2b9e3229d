"""Grids for a budget: what is chosen fits, answers better than shorter trainings, and can be run."""

import math
import re
from dataclasses import replace

import pytest

from bench.analysis import evidence
from bench.analysis.study_data import Records
from bench.core.errors import UserError
from bench.cost.hardware import parse
from bench.plan import budget
from bench.plan.passes import chosen_grid
from bench.study.cell import Cell
from tests.plan import recorded
from tests.plan.making import changed

CELLS = [Cell(model="ViT-pico/14", data="glyphs", horizons=(0, 4000, 8000), seed=seed) for seed in (0, 1, 2)]
PIXELS = Cell(model="pixels", data="glyphs")


# -- what is typed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, amount, unit",
    [
        ("200gpuh", 200, "device"),
        ("12h", 12, "wall"),
        ("30min", 0.5, "wall"),
        ("500eur", 500, "money"),
        ("99.5$", 99.5, "money"),
    ],
)
def test_budgets(text, amount, unit):
    assert budget.parse(text) == budget.Budget(amount=amount, unit=unit)


def test_a_budget_is_the_time_of_one_worker():
    plan = changed(recorded.plan(), workers=4)
    assert budget.within(plan, budget.parse("1h")) == 4 * 3600
    assert budget.within(changed(plan, ranks=2), budget.parse("1gpuh")) == 1800
    with pytest.raises(UserError, match="price"):
        budget.within(plan, budget.parse("5eur"))
    priced = changed(plan, hardware=parse("4xH100"), price="10/h")
    assert budget.within(priced, budget.parse("5eur")) == budget.within(priced, budget.parse("30min"))
    assert budget.within(changed(priced, price="2.5/gpuh"), budget.parse("5eur")) == 2 * 3600
    for text, words in (
        ("a lot", "is no budget"),
        ("0h", r"is no budget.\n  Give"),
        ("20000gph", "Did you mean 20000gpuh"),
    ):
        with pytest.raises(UserError, match=words):  # there is no currency gph
            budget.parse(text)


def test_a_grid_leaves_budgets_and_seeds_and_names_what_it_does_not_know():
    kept = chosen_grid.within([*CELLS, PIXELS], ("ViT-pico/14=8000 x2",))
    assert [(c.model, c.horizons, c.seed) for c in kept] == [
        ("ViT-pico/14", (0, 8000), 0),
        ("ViT-pico/14", (0, 8000), 1),
        ("pixels", (0,), 0),
    ]
    assert chosen_grid.within(CELLS, ()) == CELLS
    for line in ("ViT-pico/14=9 x2", "ViT-nano/14=8000 x1", "ViT-pico/14@300=8000 x1", "ViT-pico/14"):
        with pytest.raises(UserError):
            chosen_grid.within(CELLS, (line,))


def test_names_with_options_are_read():
    line = chosen_grid.parse("ViT-pico/7:position=none:depth=6@300=4000,8000 x2")
    assert line.model == "ViT-pico/7:position=none:depth=6" and line.unit[1] == 300 and line.horizons == (4000, 8000)
    assert chosen_grid.parse(str(line)) == line


# -- whatever there is of a study --------------------------------------------------------------------------------------


def test_a_set_that_is_cut_is_compared_as_a_whole_one_is(asked):
    """NAME@N: no cell is on all images, and those on N are compared over compute as those on all would be."""
    plan = recorded.plan()
    cells = [replace(p, cell=replace(p.cell, num_images=p.cell.num_images or 5000)) for p in plan.cells]
    cut = budget.question(replace(plan, cells=tuple(cells)), recorded.evidence())
    widths, wanted = cut.half_widths(cut.whole()), asked.half_widths(asked.whole())
    over_compute = [key for key in wanted if key.endswith(budget.LEAD_OVER["compute"])]
    assert len(over_compute) == 3 and widths.keys() == wanted.keys()
    assert all(widths[key] == pytest.approx(wanted[key]) for key in over_compute)
    assert all(math.isfinite(width) for width in widths.values())
    lines = budget.lines_of(budget.choose(cut, 0.5 * cut.seconds(cut.whole())))
    kept = chosen_grid.within([p.cell for p in cells], lines)
    assert any("@5000=" in line for line in lines) and kept


def test_every_data_set_and_recipe_is_paid_for(asked):
    """Twice the cells, on another set or at another rate, are twice the time; what is chosen is chosen for all."""
    once = recorded.plan()
    other = [replace(p, cell=replace(p.cell, data="lettering")) for p in once.cells]
    rate = [replace(p, cell=replace(p.cell, recipe=replace(p.cell.recipe, lr=0.5))) for p in once.cells]
    seconds = asked.seconds(asked.whole())
    for more in (other, rate):
        both = budget.question(replace(once, cells=(*once.cells, *more)), recorded.evidence())
        assert both.seconds(both.whole()) == pytest.approx(2 * seconds)
        assert both.whole() == asked.whole() and both.components == asked.components
    uneven = replace(once, cells=(*once.cells, *(replace(p, cell=replace(p.cell, horizons=(0, 77))) for p in other)))
    with pytest.raises(UserError, match="several of"):
        budget.question(uneven)


def test_other_recipes_and_sets_are_no_repeats_of_a_training():
    """A second recipe of a model is another training of it, and another set has another law."""
    mine = recorded.evidence().records.records
    again = [
        replace(r, directory=f"{r.directory}-b", cell=replace(r.cell, recipe=replace(r.cell.recipe, clip=0.5)))
        for r in mine
        if r.cell.model == "ViT-pico/14" and r.cell.num_images is None
    ]
    far = [
        replace(
            r,
            directory=f"{r.directory}-c",
            cell=replace(r.cell, data="lettering"),
            data=replace(r.data, name="lettering"),
        )
        for r in mine[:2]
    ]
    seen = budget.observations(evidence.build(Records(suite="scaling", records=(*mine, *again, *far))))
    whole = budget.observations(evidence.build(Records(suite="scaling", records=mine)))
    assert len(set(seen.trunks)) == len(set(whole.trunks)) + len(again) > len(set(whole.trunks))
    assert len(set(seen.variants)) == len(set(whole.variants)) + 1 and set(seen.models) == set(whole.models)


# -- half the main study's time ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asked():
    return budget.question(recorded.plan(), recorded.evidence())


@pytest.fixture(scope="module")
def half(asked):
    return budget.choose(asked, asked.seconds(asked.whole()) / 2)


def test_half_the_time_answers_better_than_every_horizon_halved(asked, half):
    assert asked.seconds(half) <= asked.seconds(asked.whole()) / 2
    widths, halved, whole = asked.half_widths(half), budget.halved(asked), asked.half_widths(asked.whole())
    leads = [key for key in widths if key.endswith(budget.LEAD_OVER[budget.COMPUTE])]
    assert len(leads) == 3
    for key in leads:
        assert whole[key] < halved[key] and widths[key] < halved[key], key
    assert all(math.isfinite(width) for width in widths.values())


def test_what_was_chosen_is_a_part_of_the_suite(half):
    lines = budget.lines_of(half)
    most = max(seeds for _, seeds in half.values())
    trained = [p.cell for p in recorded.plan().cells if p.cell.seed == 0 and p.cell.model != "pixels"]
    cells = chosen_grid.within([replace(cell, seed=seed) for cell in trained for seed in range(most)], lines)
    assert len(cells) == sum(seeds for _, seeds in half.values())
    for cell in cells:
        horizons, seeds = half[cell.model, cell.num_images]
        assert set(cell.horizons) - {0} == set(horizons) and cell.seed < seeds


def test_too_little_is_refused(asked):
    with pytest.raises(UserError, match="too small") as refused:
        budget.chosen(asked, 5.0, budget=budget.parse("10eur"))
    least = re.search(r"about ([\d,]+)eur", refused.value.what)
    assert least, refused.value.what
    seconds = 5.0 * float(least[1].replace(",", "")) / 10
    assert budget.choose(asked, 1.05 * seconds), "what is called the least is enough"
