"""The suite crossover compares at equal compute, at rates that its sweep chose."""

from __future__ import annotations

import pytest

from bench.core import registry
from bench.cost import flops
from bench.data.sets import lettering
from bench.suites import crossover, crossover_rates
from bench.suites._contract import SuiteOptions
from bench.train.schedule import warmup_steps

CELLS = [cell for cell in crossover.cells(SuiteOptions()) if cell.model != "pixels"]
CLASSES = 100


@pytest.fixture(scope="module")
def per_image() -> dict[str, int]:
    counted = {m: flops.count(m, image_size=28, channels=1, num_classes=CLASSES) for m in crossover.SEEN}
    return {model: cost.train_flops_per_image["paper"] for model, cost in counted.items()}


def test_a_share_of_the_largest_budget_is_as_many_flops_for_every_model(per_image: dict[str, int]) -> None:
    for model, shares in crossover.SHARES.items():
        for share in shares:
            assert crossover.images(model, share) * per_image[model] == pytest.approx(2.6e12 / share, rel=0.025)
    for model in crossover.SEEN:
        assert crossover.SEEN[model] * per_image[model] == pytest.approx(2.6e12, rel=0.01)


def test_compute_spans_two_decades_in_every_family(per_image: dict[str, int]) -> None:
    spent = {(c.model, h): h * per_image[c.model] for c in CELLS for h in c.horizons if h}
    for family in ("ViT", "Hybrid", "ResNet"):
        mine = [work for (model, _), work in spent.items() if family == registry.family_of(model).FAMILY]
        assert max(mine) >= 100 * min(mine)


def test_images_go_from_300_to_all_of_them_and_the_vit_sees_each_once() -> None:
    vit = [c for c in CELLS if c.model == crossover.VIT]
    assert min(c.num_images or 10**9 for c in vit) == 300
    every = lettering.size(crossover.DATA.partition(":")[2])["train"]
    assert max(max(c.horizons) for c in vit if c.num_images is None) == every == 300_000


def test_every_size_of_a_model_is_warmed_up_alike() -> None:
    for model in crossover.SIZES:
        mine = {warmup_steps(c.recipe) for c in CELLS if c.model == model}
        assert len(mine) == 1, model


def test_rates_are_those_of_the_sweep() -> None:
    swept = {(cell.model, cell.recipe.lr) for cell in crossover_rates.cells(SuiteOptions())}
    assert {(model, rate) for model, rate in crossover.RATES.items()} <= swept
    assert {cell.horizons for cell in crossover_rates.cells(SuiteOptions())} <= {
        (crossover.images(model, crossover_rates.SHARE),) for model in crossover.RATES
    }
    assert not any(cell.tasks for cell in crossover_rates.cells(SuiteOptions())), "no downstream score is looked at"
