"""Scale `paper`: every suite trains what Tables 3 and 6 of the paper say, read off its pages."""

from __future__ import annotations

import pytest

from baselines import published
from bench.core import registry
from bench.core.spec import Cell
from bench.suites import _contract, _paper
from bench.suites._contract import SuiteOptions
from bench.train import schedule

JFT = {  # Table 3, first ten rows: epochs, base rate; linear decay, weight decay 0.1, no dropout
    "ViT-B/32": ((7,), 8e-4),
    "ViT-B/16": ((7,), 8e-4),
    "ViT-L/32": ((7,), 6e-4),
    "ViT-L/16": ((7, 14), 4e-4),
    "ViT-H/14": ((14,), 3e-4),
    "R50x1": ((7,), 1e-3),
    "R50x2": ((7,), 1e-3),
    "R101x1": ((7,), 8e-4),
    "R152x1": ((7,), 6e-4),
    "R152x2": ((7, 14), 6e-4),
    "R50+ViT-B/32": ((7,), 8e-4),
    "R50+ViT-B/16": ((7,), 8e-4),
    "R50+ViT-L/32": ((7,), 2e-4),
    "R50+ViT-L/16": ((7, 14), 4e-4),
    "ViT-b/32": ((7,), 8e-4),
    "R200x3": ((14,), 6e-4),  # not in Table 3: as ViT-B/32 and R152x2
}
OTHERS = {
    "imagenet-21k": (90, 14_094_722, 1e-3, "linear", 0.03, 0.0),
    "imagenet": (300, 1_281_167, 3e-3, "cosine", 0.3, 1.0),
}


def cells(suite: str, **options) -> list[Cell]:
    return registry.load("suite", suite).cells(SuiteOptions(scale="paper", **options))


@pytest.mark.parametrize("suite", ["scaling", "data", "transfer", "vtab"])
def test_every_cell_is_trained_as_table_3_says(suite: str) -> None:
    for cell in cells(suite):
        recipe, where = cell.recipe, f"{cell.model} on {cell.data}"
        if cell.data == "jft-300m":
            epochs, rate = JFT[cell.model]
            expected = (rate, "linear", 0.1, 0.0)
            assert set(cell.horizons) - {0} <= {n * 303_000_000 for n in epochs}, where
        else:
            epochs, images, *expected = OTHERS[cell.data]
            assert cell.horizons == (epochs * images,), where
        assert (recipe.lr, recipe.cooldown_shape, recipe.weight_decay, recipe.clip) == tuple(expected), where
        assert dict(cell.model_options).get("dropout", 0.0) == (0.0 if cell.data == "jft-300m" else 0.1), where
        assert (recipe.batch, recipe.betas, recipe.optimizer) == (4096, (0.9, 0.999), "adamw"), where
        assert (recipe.loss, recipe.head_bias, recipe.shift, recipe.flip) == ("sigmoid", "prior", 0, True), where
        assert schedule.warmup_steps(recipe) == 10_000, where


def test_the_compute_axis_is_table_6() -> None:
    wanted = {(published.model_name(row["name"]), int(row["epochs"])) for row in published.table("table6")}
    found = {(c.model, h // 303_000_000) for c in cells("scaling") if "compute" in c.axes for h in c.horizons}
    assert found == wanted


@pytest.mark.parametrize(
    "model, data, row",
    [
        ("ViT-L/16", "imagenet", ("ViT-L/16", "ImageNet")),
        ("ViT-S/16", "imagenet-21k", ("ViT-B/16", "ImageNet-21k")),
        ("R101x3", "jft-300m", ("R50x1", "JFT-300M")),
        ("R26+ViT-S/32", "folder:flowers:224px", ("R50+ViT-B/16", "JFT-300M")),
        ("R152x1", "imagenet-21k", ("R152x1", "JFT-300M")),
    ],
)
def test_what_the_table_leaves_out_is_trained_as_what_is_nearest(model: str, data: str, row: tuple[str, str]) -> None:
    found = _paper.row_for(model, data)
    assert (found.model, found.data) == row


def test_a_set_of_one_s_own_is_trained_on_as_the_suite_s_first() -> None:
    (cell,) = cells("transfer", data=("folder:flowers",), models=("ViT-B/16",))
    assert (cell.data, cell.recipe.lr, cell.recipe.cooldown_shape) == ("folder:flowers", 3e-3, "cosine")


@pytest.mark.parametrize("suite", registry.names("suite"))
def test_a_headline_names_every_measure_once(suite: str) -> None:
    headline = _contract.load(suite).headline
    assert len(set(headline)) == len(headline)
