"""The control's networks are what its table says, and none of them is of this project."""

import pytest

from bench.cost import flops
from bench.study import registry
from tools.control.kinds import OUTSIDE

OUTSIDERS = [(model, cost) for of_kind in OUTSIDE.values() for model, cost in of_kind.items()]


@pytest.mark.parametrize("model, cost", OUTSIDERS)
def test_costs_are_those_of_the_counter(model: str, cost: float) -> None:
    if model.startswith("tools/"):
        pytest.importorskip("vit_pytorch")
    assert cost == pytest.approx(
        flops.count(model, image_size=28, channels=1, num_classes=10).train_flops_per_image["paper"], rel=1e-3
    )


def test_every_kind_has_three_networks_of_other_hands() -> None:
    assert all(len(of_kind) >= 3 for of_kind in OUTSIDE.values())
    assert all(registry.family_of(model).from_outside or model.startswith("tools/") for model, _ in OUTSIDERS)
