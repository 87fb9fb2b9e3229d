"""How much of an image a feature sees, compared with where the gradient of one reaches."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.cost import receptive_field
from bench.cost.sight import Sight
from bench.plan import calibrate, notes
from bench.plan.estimate import Rates, rate_key
from bench.plan.sizes import DataSizes
from bench.study import registry
from bench.study.cell import Cell

LARGE = 96  # pixels a side, more than any feature of the networks below sees


def reached(name: str) -> int:
    """Pixels a side at which the feature in the middle of the last map has a gradient."""
    torch.manual_seed(0)
    model: Any = registry.build_model(name, image_size=LARGE, channels=1, num_classes=2).eval().double()
    for module in model.modules():
        if isinstance(module, nn.GroupNorm):  # whose statistics are of the whole map
            module.forward = nn.Identity().forward  # type: ignore[method-assign]
    rows = torch.zeros(LARGE, dtype=torch.bool)
    for _ in range(8):
        x = torch.randn(4, 1, LARGE, LARGE, dtype=torch.float64, requires_grad=True)
        map_BCHW = model.forward_features(x)
        middle = map_BCHW.shape[-1] // 2
        (gradient,) = torch.autograd.grad(map_BCHW[:, :, middle, middle].sum(), x)
        rows |= gradient.ne(0).any(dim=(0, 1, 3))
    return int(rows.sum())


@pytest.mark.parametrize(
    "name", ["R8x0.125-s2", "R11x0.25-s2", "R8x0.25-s1", "ResNet-8", "ResNet-8-s2", "ResNet-8-s4:shortcut=conv"]
)
def test_it_is_where_the_gradient_of_a_feature_reaches(name: str) -> None:
    sight = receptive_field.of_model(name, image_size=LARGE, channels=1)
    assert sight.pixels == reached(name)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("R50x1", 224),
        ("R50+ViT-B/16", 224),
        ("R11x0.125", 28),
        ("ResNet-8-s4", 28),
        ("ResNet-20", 32),
        ("ViT-pico/7", 28),
        ("CCT-2/3x2", 28),
        ("R5+ViT-pico/4", 28),
        ("pixels", 28),
        ("torchvision:resnet18", 28),
        ("torchvision:mobilenet_v3_small", 64),
    ],
)
def test_nothing_is_said_of_networks_that_are_as_they_should_be(name: str, size: int) -> None:
    sight = receptive_field.of_model(name, image_size=size, channels=1)
    assert sight == Sight() and not sight.sentence(image_size=size)


def test_a_plan_has_a_note_on_them() -> None:
    models, sizes = ("R8x0.125-s2", "ResNet-8-s4"), DataSizes()
    cells = [Cell(model=model, data="digits", image_size=28, channels=1) for model in models]
    rates = {}
    for cell in cells:
        answered = calibrate.answer(cell, 10, device="cpu", threads=1, measure=False)["rates"]
        rates[rate_key(cell, 10)] = Rates(**json.loads(json.dumps(answered)))
    (note,) = notes.short_sighted([*cells, cells[0]], rates, sizes)
    assert note.startswith("R8x0.125-s2: a feature sees 11 of 28 pixels")


def test_the_smallest_network_of_earlier_studies_is_named() -> None:
    sight = receptive_field.of_model("R8x0.125-s2", image_size=28, channels=1)
    assert "sees 11 of 28 pixels a side" in sight.sentence(image_size=28)


class Net(nn.Module):
    """A convolution, then whatever."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), *parts)

    def features(self, x_BCHW: Tensor) -> Tensor:
        return self.body(x_BCHW)


class Excite(nn.Module):
    """Squeeze and excitation: every position learns of the average over all."""

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return x_BCHW * x_BCHW.mean((2, 3), keepdim=True).sigmoid()


AVERAGE = (nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.mark.parametrize(
    ("parts", "pixels"),
    [
        (AVERAGE, 3),
        ((nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, dilation=2), *AVERAGE), 12),
        ((nn.AvgPool2d(3, 2), nn.Conv2d(8, 8, (1, 3)), *AVERAGE), 5),  # the side that sees less
        ((nn.AdaptiveAvgPool2d(8), *AVERAGE), 6),
        ((nn.Upsample(scale_factor=2), nn.Conv2d(8, 8, 5), *AVERAGE), 5),
        ((nn.MaxPool2d(16), nn.Conv2d(8, 8, 2), *AVERAGE), None),
        ((nn.Flatten(),), None),
        ((Excite(), *AVERAGE), None),
        ((nn.ConvTranspose2d(8, 8, 2, stride=2), *AVERAGE), None),  # nobody has said how far those see
    ],
)
def test_of_each_kind_of_layer(parts: tuple[nn.Module, ...], pixels: int | None) -> None:
    assert receptive_field.of_network(Net(*parts).to("meta"), image_size=32, channels=1).pixels == pixels


@pytest.mark.parametrize(("groups", "few"), [(1, None), (2, None), (4, 2), (8, 1)])
def test_few_channels_in_a_group_of_the_last_norm_are_named(groups: int, few: int | None) -> None:
    network = Net(nn.GroupNorm(8, 8), nn.MaxPool2d(16), nn.GroupNorm(groups, 8), nn.Flatten()).to("meta")
    sight = receptive_field.of_network(network, image_size=32, channels=1)
    assert sight == Sight(group=few)
    assert bool(sight.sentence(image_size=32)) == bool(few)
