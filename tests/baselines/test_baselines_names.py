"""The contract of a family, the grammars of names, and parameter counts (on the meta device)."""

from __future__ import annotations

import pytest
import torch

from baselines import bit, hybrid, pixels

# At 224 px with 1000 classes: official counts for the hybrids, timm's to the last digit for BiT where it has them.
COUNTS = {
    "R+ViT-Ti/16": 6_337_704,
    "R26+ViT-S/32": 36_431_912,
    "R26+ViT-B/32": 101_383_976,
    "R50+ViT-B/16": 98_659_112,
    "R50+ViT-B/32": 110_945_832,
    "R50+ViT-L/16": 316_483_624,
    "R50+ViT-L/32": 328_994_856,
    "R50x1": 25_549_352,
    "R50x2": 97_988_712,
    "R50x3": 217_319_080,
    "R101x1": 44_541_480,
    "R101x3": 387_934_888,
    "R152x1": 60_185_128,
    "R152x2": 236_335_208,
    "R152x4": 936_533_224,
    "R200x3": 568_633_000,
}
# The same in millions, as published or listed, with 1000 classes and without a head.
MILLIONS = {
    "R+ViT-Ti/16": (6.338, 6.145),
    "R26+ViT-S/32": (36.432, 36.047),
    "R26+ViT-B/32": (101.384, 100.615),
    "R50+ViT-B/16": (98.659, 97.890),
    "R50+ViT-L/32": (328.995, 327.970),
    "R50+ViT-B/32": (110.946, None),
    "R50+ViT-L/16": (316.484, None),
    "R50x1": (25.549, 23.500),
    "R50x3": (217.319, 211.174),
    "R101x1": (44.541, 42.492),
    "R101x3": (387.935, 381.790),
    "R152x2": (236.335, 232.238),
    "R152x4": (936.533, 928.340),
    "R50x2": (97.989, 93.892),
    "R152x1": (60.185, 58.136),
    "R200x3": (568.633, 562.488),
}


def family_of(name: str):
    return hybrid if "+" in name else bit


def count(name: str, *, num_classes: int = 1000) -> int:
    with torch.device("meta"):
        model = family_of(name).build(name, image_size=224, channels=3, num_classes=num_classes)
    assert all(parameter.is_meta for parameter in model.parameters())
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts(name: str) -> None:
    with_head, without = MILLIONS[name]
    assert count(name) == COUNTS[name] and round(COUNTS[name] / 1e6, 3) == with_head
    assert without is None or round(count(name, num_classes=0) / 1e6, 3) == without


@pytest.mark.slow
@pytest.mark.parametrize("family", [bit, hybrid])
def test_every_registered_model_keeps_the_contract(family) -> None:
    for name in family.names():
        assert family.accepts(name)
        with torch.device("meta"):
            model = family.build(name, image_size=224, channels=3, num_classes=11)
            assert model.features(torch.empty(2, 3, 224, 224)).shape == (2, model.num_features)
        head = sum(parameter.numel() for parameter in model.head.parameters())
        assert head == (model.num_features + 1) * 11


@pytest.mark.parametrize(
    "name", ["R50", "R51x1", "R50x0", "R50x0.1", "R50x1-s3", "r50x1", "R50x1-s2 ", "ViT-B/16", "R50+ViT-B/16"]
)
def test_names_that_bit_refuses(name: str) -> None:
    assert not bit.accepts(name)
    with pytest.raises(ValueError, match="is not R<depth>x<width>"):
        bit.build(name, image_size=224, channels=3, num_classes=2)


@pytest.mark.parametrize(
    "name", ["R50+ViT-B", "R50+ViT-X/16", "R51+ViT-B/16", "R50+ViT-B/18", "R50x1", "ViT-B/16", "R+ViT-B/16"]
)
def test_names_that_hybrids_refuse(name: str) -> None:
    assert not hybrid.accepts(name)
    with pytest.raises(ValueError, match="is not R<depth>"):
        hybrid.build(name, image_size=224, channels=3, num_classes=2)


@pytest.mark.parametrize(
    ("name", "blocks", "stride", "patch"),
    [
        ("R50+ViT-B/32", (3, 4, 6, 3), 32, 1),
        ("R50+ViT-B/16", (3, 4, 9), 16, 1),
        ("R26+ViT-S/32", (2, 2, 2, 2), 32, 1),
        ("R50+ViT-B/64", (3, 4, 6, 3), 32, 2),
        ("R+ViT-Ti/16", (), 4, 8),
        ("R8+ViT-nano/4", (1, 1), 4, 1),
        ("R5+ViT-nano/4", (1,), 2, 2),
        ("R8+ViT-nano/8", (1, 1), 4, 2),
        ("R5+ViT-nano/7", (1,), 1, 7),
    ],
)
def test_the_number_is_the_total_down_sampling(name: str, blocks: tuple, stride: int, patch: int) -> None:
    with torch.device("meta"):
        model = hybrid.build(name, image_size=448, channels=3, num_classes=0)
    backbone = model.embed.backbone
    assert tuple(len(stage.blocks) for stage in backbone.stages) == blocks
    assert backbone.stride == stride and model.embed.proj.kernel_size == (patch, patch)


def test_sizes_that_do_not_fit_are_explained() -> None:
    with pytest.raises(ValueError, match="208 or 224"):
        hybrid.build("R50+ViT-B/16", image_size=220, channels=3, num_classes=2)
    with pytest.raises(ValueError, match="at least 32 px, or a small-image stem"):
        bit.build("R50x1", image_size=28, channels=3, num_classes=2)
    with pytest.raises(ValueError, match="unknown option widht"):
        hybrid.build("R50+ViT-B/16", image_size=224, channels=3, num_classes=2, widht=3)
    with pytest.raises(ValueError, match="unknown option gelu"):
        bit.build("R50x1", image_size=224, channels=3, num_classes=2, gelu="exact")


def test_pixels_are_a_floor_without_parameters() -> None:
    model = pixels.build("pixels", image_size=(4, 6), channels=2, num_classes=10)
    x = torch.randn(3, 2, 4, 6)
    assert torch.equal(model.features(x), x.reshape(3, 48)) and model.num_features == 48
    assert not list(model.parameters())
    with pytest.raises(NotImplementedError, match="no classifier"):
        model(x)
    with pytest.raises(ValueError, match="is not 'pixels'"):
        pixels.build("pixel", image_size=4, channels=1)
