"""Names, sizes and presets: everything that is known before torch is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vit import family
from vit.config import PRESETS, VARIANTS, ViTConfig, config_for, parse


def test_every_row_takes_every_patch_that_divides() -> None:
    for row in VARIANTS:
        for patch in (1, 2, 4, 7, 14, 28):
            assert config_for(f"ViT-{row}/{patch}", image_size=28, channels=1, num_classes=3).grid == (28 // patch,) * 2


@pytest.mark.parametrize("name", ["ViT-B", "ViT-B/0", "ViT-X/16", "vit-B/16", "ViT-B/16 ", "R50x1", "R50+ViT-B/32", ""])
def test_other_names_are_refused(name: str) -> None:
    assert not family.accepts(name)
    with pytest.raises(ValueError, match="is not ViT-"):
        config_for(name, image_size=224, channels=3, num_classes=10)


def test_legal_names_beyond_the_registered() -> None:
    assert family.accepts("ViT-S/7") and "ViT-S/7" not in family.names()
    assert all(family.accepts(name) for name in (*family.names(), *PRESETS))


def test_indivisible_image_says_which_sizes_would_do() -> None:
    with pytest.raises(ValueError) as error:
        config_for("ViT-B/16", image_size=(224, 230), channels=3, num_classes=10)
    text = str(error.value)
    assert "width 230" in text and "224 or 240" in text and "1, 2, 5, 10, 23, 46, 115, 230" in text


def test_image_smaller_than_the_patch() -> None:
    with pytest.raises(ValueError, match="Nearest legal image sizes: 16 px"):
        config_for("ViT-B/16", image_size=8, channels=3, num_classes=10)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"heads": 5}, "not divisible by 5 heads"),
        ({"pooling": "max"}, "not one of cls, mean"),
        ({"position": "rotary"}, "not one of none"),
        ({"cls_token": False}, "needs the class token"),
        ({"width": 66, "heads": 3, "position": "sincos-2d"}, "divisible by 4"),
        ({"stem": "conv", "patch_size": 1}, "needs an even patch size"),
        ({"stem": "conv", "conv_stem": ((8, 3, 3),)}, "does not divide the patch size"),
        ({"dept": 3}, "unknown option dept"),
        ({"stem": "resnet"}, "go together"),
    ],
)
def test_illegal_options_are_explained(override: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        family.build("ViT-B/16", image_size=32, channels=3, num_classes=10, **override)


def test_head_dim_need_not_divide_the_width() -> None:
    config = config_for("ViT-Ti/16", image_size=32, channels=3, num_classes=0, heads=5, head_dim=24)
    assert config.attention_width == 120


def test_config_is_frozen_and_hashable() -> None:
    config = ViTConfig(image_size=8, patch_size=4, channels=1, num_classes=2, width=8, depth=1, heads=2, mlp_width=8)
    assert config.image_size == (8, 8) and hash(config) == hash(config)
    assert parse("ViT-B/16") != parse("ViT-b/16")


def test_listing_models_does_not_import_torch() -> None:
    code = (
        "import sys, vit, vit.config, vit.family\n"
        "from baselines import bit, hybrid, pixels\n"
        "for f in (vit.family, bit, hybrid, pixels): assert all(map(f.accepts, f.names())) and f.FAMILY\n"
        "assert not {'torch', 'timm', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
