"""Learning rates: which rule gives one, and what the suite `rates` sweeps."""

import math

import pytest

from bench.study import suite as suites
from bench.study.suite import SuiteOptions
from bench.suites import _recipes
from bench.suites._recipes import DEFAULT, FAMILY, PAPER, SWEPT, WIDTH, at_budget, rate_and_rule, recipe_for
from bench.suites.rates import RATES, SEEDS
from bench.train.schedule import WARMUP_PART, segments, total_steps, warmup_steps

TABLE_3 = {  # as it is printed, for JFT-300M
    "ViT-B/32": 8e-4,
    "ViT-B/16": 8e-4,
    "ViT-L/32": 6e-4,
    "ViT-L/16": 4e-4,
    "ViT-H/14": 3e-4,
    "R50x1": 1e-3,
    "R50x2": 1e-3,
    "R101x1": 8e-4,
    "R152x1": 6e-4,
    "R152x2": 6e-4,
    "R50+ViT-B/32": 8e-4,
    "R50+ViT-B/16": 8e-4,
    "R50+ViT-L/32": 2e-4,
    "R50+ViT-L/16": 4e-4,
}


@pytest.mark.parametrize("model, rate", TABLE_3.items())
def test_networks_of_the_paper_have_its_rates_at_scale_gpu(model: str, rate: float) -> None:
    for batch in (256, 512, 4096):
        found = rate_and_rule(model, scale="gpu", batch=batch)
        assert (found.value, found.rule) == (pytest.approx(rate * math.sqrt(batch / 4096)), PAPER)
    assert recipe_for(model, scale="gpu", batch=512).lr == pytest.approx(rate * math.sqrt(1 / 8))
    assert recipe_for(f"{model}:position=none" if "ViT" in model else model, scale="gpu", batch=4096).lr == rate


def test_other_networks_have_the_rate_of_the_nearest_width() -> None:
    widths = {"ViT-S/16": 384, "ViT-Ti/8": 192, "R8+ViT-S/16": 384}  # of B: 768, 8e-4
    for model, width in widths.items():
        found = rate_and_rule(model, scale="gpu", batch=4096)
        assert (found.value, found.rule) == (pytest.approx(8e-4 * 768 / width), WIDTH)
    by_depth = {"R26x1-s2": 1e-3, "R50x1-s2": 1e-3, "R101x1-s2": 8e-4, "R26x0.25": 4e-3}
    for model, rate in by_depth.items():
        assert rate_and_rule(model, scale="gpu", batch=4096).value == pytest.approx(rate)
    assert rate_and_rule("ResNet-20", scale="gpu", batch=4096).value == 1e-3  # of the kind; its name says no width


def test_a_model_of_no_family_of_the_paper_has_the_default_and_the_scale_cpu_its_own_rates() -> None:
    assert rate_and_rule("timm:mixer_b16_224", scale="gpu").rule == DEFAULT
    assert rate_and_rule("ViT-B/16", scale="cpu") == _recipes.Rate(_recipes.FAMILY_RATES["cpu"]["ViT"], FAMILY)
    assert rate_and_rule("ViT-pico/7", scale="cpu").rule == SWEPT


def test_a_rate_is_log_linear_between_the_budgets_that_were_swept_and_constant_beyond(monkeypatch) -> None:
    budgets = {1_000: 8e-3, 64_000: 1e-3}
    monkeypatch.setitem(_recipes.MODEL_RATES, "gpu", {"ViT-S/16": budgets})
    slope = math.log(8) / math.log(64)
    for images in (1_000, 2_000, 8_000, 64_000):
        wanted = 8e-3 * (images / 1_000) ** -slope
        assert recipe_for("ViT-S/16", scale="gpu", images=images).lr == pytest.approx(wanted)
    assert at_budget(budgets, 10) == 8e-3 and at_budget(budgets, 10**9) == 1e-3
    assert rate_and_rule("ViT-S/16:depth=3", scale="gpu") == _recipes.Rate(1e-3, SWEPT)  # the longest that was swept
    assert at_budget({500: 3e-3}, 1) == at_budget({500: 3e-3}, None) == 3e-3


@pytest.mark.parametrize("scale", ["cpu", "gpu"])
def test_the_suite_sweeps_two_budgets_of_one_trunk_with_seeds(scale: str) -> None:
    cells = suites.load("rates").cells(SuiteOptions(scale=scale))
    sweeps = {(c.model, c.seed): set() for c in cells}
    for cell in cells:
        sweeps[cell.model, cell.seed].add(cell.recipe.lr)
        assert cell.held_out and not cell.tasks and cell.num_images is None
        assert 1 <= len(cell.horizons) <= 2 and cell.horizons[0] > 0
        assert warmup_steps(cell.recipe) * WARMUP_PART <= total_steps(cell.horizons[0], cell.recipe.batch)
        assert segments(cell.recipe, cell.horizons)
    assert {seed for _, seed in sweeps} == set(range(SEEDS)) and SEEDS >= 3
    assert all(sorted(tried) == sorted(RATES[scale]) for tried in sweeps.values())
    assert all(b == pytest.approx(2 * a) for a, b in zip(RATES[scale], RATES[scale][1:], strict=False))
    assert sum(len(c.horizons) == 2 for c in cells) > len(cells) / 2


def test_rates_of_the_rules_lie_well_inside_of_the_sweep() -> None:
    for scale in ("cpu", "gpu"):
        cells = suites.load("rates").cells(SuiteOptions(scale=scale))
        for cell in cells:
            lr = rate_and_rule(cell.model, scale=scale, batch=cell.recipe.batch).value
            assert 1.9 * min(RATES[scale]) <= lr <= max(RATES[scale]) / 1.9, cell.model
