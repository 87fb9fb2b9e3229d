"""Parameter counts: of the official checkpoints, of timm and torchvision, and by hand. On the meta device."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vit import family


def count(name: str, image_size: int, *, channels: int = 3, num_classes: int = 1000, **options: object) -> int:
    with torch.device("meta"):
        model = family.build(name, image_size=image_size, channels=channels, num_classes=num_classes, **options)
    assert all(parameter.is_meta for parameter in model.parameters())
    return sum(parameter.numel() for parameter in model.parameters())


# The official models at 224 px with 1000 classes.
OFFICIAL = {
    "ViT-Ti/16": 5_717_416,
    "ViT-S/16": 22_050_664,
    "ViT-S/32": 22_878_952,
    "ViT-B/8": 86_576_872,
    "ViT-B/16": 86_567_656,
    "ViT-B/32": 88_224_232,
    "ViT-L/16": 304_326_632,
    "ViT-L/32": 306_535_400,
    "ViT-H/14": 632_045_800,
}
# Others at 224 px, in millions to three decimals or one.
MILLIONS = {"ViT-S/8": 22.055, "ViT-L/14": 304.204, "ViT-H/16": 632.199, "ViT-g/14": 1012.6, "ViT-G/14": 1844.4}


@pytest.mark.parametrize(("name", "expected"), OFFICIAL.items())
def test_official_counts(name: str, expected: int) -> None:
    assert count(name, 224) == expected


@pytest.mark.parametrize(("name", "expected"), MILLIONS.items())
def test_counts_of_other_sizes(name: str, expected: float) -> None:
    digits = len(str(expected).split(".")[1])
    assert round(count(name, 224) / 1e6, digits) == expected


def test_mean_pooling_without_a_class_token_but_with_its_rows() -> None:
    # The released "gap" model: no class token, no hidden layer in the head, one position per patch.
    assert count("ViT-B/16", 224, pooling="mean") == 86_566_120


def test_no_head() -> None:
    assert count("ViT-B/16", 224, num_classes=0) == 86_567_656 - 769_000
    assert count("ViT-B/16", 224, num_classes=0, head="mlp") == 86_567_656 - 769_000 + 768 * 769


def test_half_width_b() -> None:
    # Every width of B/32 halved: matrices of a block a quarter, vectors a half.
    block = 4 * 384 * 384 + 2 * 384 * 1536 + 9 * 384 + 1536
    stem = 3 * 32 * 32 * 384 + 384 + 384 + 50 * 384
    assert count("ViT-b/32", 224, num_classes=10) == 12 * block + stem + 2 * 384 + 385 * 10


def test_mnist_preset_has_7562_parameters() -> None:
    patches, block, norm, head = 50 * 16, 4 * 16 * 17 + 16 * 64 * 2 + 64 + 16 + 4 * 16, 2 * 16, 17 * 10
    assert patches + 2 * block + norm + head == 7_562
    assert count("mnist-7562", 28, channels=1, num_classes=10) == 7_562


def test_preset_of_1024_wide_patches_of_32() -> None:
    block = 4 * (1024 * 1024 + 1024) + (1024 * 2048 + 2048) + (2048 * 1024 + 1024) + 4 * 1024
    shared = 3 * 32 * 32 * 1024 + 1024 + 6 * block + 2 * 1024 + 1025 * 1000
    assert count("patch32-d1024", 256) == shared + 65 * 1024 + 1024
    assert count("patch32-d1024", 256, pooling="mean") == shared + 64 * 1024


def test_preset_of_mean_then_norm() -> None:
    # As B/16 without class token: 8 heads instead of 12 and the norm's place change no count.
    assert count("mean-norm-b16", 224) == 86_566_120


@pytest.mark.parametrize("preset", ["torchvision-vit_b_16", "torchvision-vit_b_16-rep", "torchvision-vit_b_16-conv"])
def test_presets_count_as_torchvision(preset: str) -> None:
    assert count(preset, 224) == sum(parameter.numel() for parameter in torchvision_peer(preset).parameters())


def torchvision_peer(preset: str) -> nn.Module:
    """torchvision's model of the same name, on the meta device."""
    from torchvision.models.vision_transformer import ConvStemConfig, VisionTransformer

    from vit.config import PRESETS

    convs = [ConvStemConfig(*layer) for layer in PRESETS[preset].get("conv_stem", ())]
    with torch.device("meta"):
        return VisionTransformer(
            image_size=224,
            patch_size=16,
            num_layers=12,
            num_heads=12,
            hidden_dim=768,
            mlp_dim=3072,
            representation_size=768 if preset.endswith("rep") else None,
            conv_stem_configs=convs or None,
        )


class Made(TorchDispatchMode):
    """The number of elements of the largest tensor made elsewhere than on the meta device."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and not tensor.is_meta:
                self.largest = max(self.largest, tensor.numel())
        return made


def test_the_largest_model_is_built_without_making_a_weight() -> None:
    """On the meta device it takes milliseconds, and not the memory of a single layer."""
    with Made() as made:
        count("ViT-H/14", 224)
    assert made.largest < 1280 * 1280
    with Made() as made:
        torch.ones(7, device="cpu")
    assert made.largest == 7
