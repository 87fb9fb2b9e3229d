"""Same weights, same logits: against timm and torchvision. float32, random weights and images, difference <= 1e-5.

The peer is built on the meta device and adopts our exported tensors. Large models are compared whole by the names and
shapes of their weights, and by the logits of their first two blocks: the others are equal to these.
"""

import pytest
import torch
from torch import Tensor, nn

from vit import family, resize
from vit.checkpoints import export

timm = pytest.importorskip("timm")

TOLERANCE = 1e-5


def scrambled(model: nn.Module, seed: int = 0) -> nn.Module:
    """Weights that leave no term out: nothing zero, norms not the identity. Logits are of the order of one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if not tensor.is_floating_point():
                continue
            # 0.7 / sqrt(fan in) keeps the residual stream, and with it the rounding errors, of the order of one.
            std = 0.7 * tensor[0].numel() ** -0.5 if tensor.ndim > 1 else 0.1
            tensor.normal_(std=std, generator=generator)
            if name.endswith("running_var"):
                tensor.abs_().add_(0.5)
            elif tensor.ndim == 1 and name.endswith("weight"):
                tensor.add_(0.5 if "norm3" in name else 1)  # so that residual branches add up
    return model.eval()


def difference(ours: nn.Module, peer: nn.Module, x_BCHW: Tensor) -> float:
    with torch.inference_mode():
        a, b = ours(x_BCHW), peer(x_BCHW)
    assert a.std() > 0.1  # something is being compared
    return (a - b).abs().max().item()


def adopt(peer: nn.Module, ours: nn.Module, layout: str) -> nn.Module:
    peer.load_state_dict(export(ours, layout), strict=True, assign=True)
    return peer.eval()


SIZES = {
    "ViT-Ti/16": ("vit_tiny_patch16_224", 64),
    "ViT-S/16": ("vit_small_patch16_224", 64),
    "ViT-S/32": ("vit_small_patch32_224", 224),
    "ViT-B/32": ("vit_base_patch32_224", 224),
    "ViT-B/16": ("vit_base_patch16_224", 48),
}
LARGE = {"ViT-L/16": ("vit_large_patch16_224", 32), "ViT-H/14": ("vit_huge_patch14_224", 28)}


def on_meta(name: str, peer_name: str, image_size: int, **options: int) -> tuple[nn.Module, nn.Module]:
    """Our model and timm's, without weights."""
    with torch.device("meta"):
        ours = family.build(name, image_size=image_size, channels=3, num_classes=7, gelu="exact", **options)
        return ours, timm.create_model(peer_name, img_size=image_size, num_classes=7, **options)


def check_against_timm(name: str, peer_name: str, image_size: int, **options: int) -> None:
    ours, peer = on_meta(name, peer_name, image_size, **options)
    ours.to_empty(device="cpu")
    scrambled(ours)
    x = torch.rand(2, 3, image_size, image_size, generator=torch.Generator().manual_seed(1)) * 2 - 1
    assert difference(ours, adopt(peer, ours, "timm"), x) <= TOLERANCE


@pytest.mark.parametrize("name", SIZES)
def test_logits_equal_timms(name: str) -> None:
    check_against_timm(name, *SIZES[name])


@pytest.mark.parametrize("name", LARGE)
def test_large_models_have_timms_blocks_and_as_many(name: str) -> None:
    ours, peer = on_meta(name, *LARGE[name])
    adopt(peer, ours, "timm")
    assert len(ours.blocks) == len(peer.blocks) > 20
    check_against_timm(name, *LARGE[name], depth=2)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"pooling": "mean"}, {"global_pool": "avg", "class_token": False, "fc_norm": False}),
        ({"pooling": "mean", "norm_after_pool": True}, {"global_pool": "avg", "class_token": False}),
        ({"pooling": "mean", "cls_token": True}, {"global_pool": "avg", "fc_norm": False}),
        ({"position_on_cls": False}, {"no_embed_class": True}),
        ({"pooling": "mean", "position": "sincos-2d"}, {"global_pool": "avg", "class_token": False, "fc_norm": False}),
        ({"position": "none"}, {"pos_embed": "none"}),
    ],
)
def test_variants_equal_timms(ours: dict, theirs: dict) -> None:
    sizes = {"image_size": (32, 48), "channels": 1, "num_classes": 5}
    model = scrambled(family.build("ViT-Ti/8", **sizes, depth=2, gelu="exact", **ours))
    with torch.device("meta"):
        peer = timm.create_model(
            "vit_tiny_patch16_224", img_size=(32, 48), patch_size=8, in_chans=1, num_classes=5, depth=2, **theirs
        )
    assert difference(model, adopt(peer, model, "timm"), torch.randn(2, 1, 32, 48)) <= TOLERANCE


def test_the_tanh_gelu_is_a_visible_difference() -> None:
    sizes = {"image_size": 32, "channels": 3, "num_classes": 5}
    exact = scrambled(family.build("ViT-Ti/16", **sizes, gelu="exact"))
    assert 1e-5 < difference(exact, scrambled(family.build("ViT-Ti/16", **sizes)), torch.randn(2, 3, 32, 32)) < 1e-1


TORCHVISIONS = ("torchvision-vit_b_16", "torchvision-vit_b_16-rep", "torchvision-vit_b_16-conv")


def with_torchvisions(preset: str, *, image_size: int) -> tuple[nn.Module, nn.Module]:
    """Our model and torchvision's, without weights."""
    from torchvision.models.vision_transformer import ConvStemConfig, VisionTransformer

    with torch.device("meta"):
        ours = family.build(preset, image_size=image_size, channels=3, num_classes=7)
        return ours, VisionTransformer(
            image_size=image_size,
            patch_size=16,
            num_layers=12,
            num_heads=12,
            hidden_dim=768,
            mlp_dim=3072,
            num_classes=7,
            representation_size=768 if preset.endswith("rep") else None,
            conv_stem_configs=[ConvStemConfig(*layer) for layer in ours.config.conv_stem] or None,
        )


@pytest.mark.parametrize("preset", TORCHVISIONS)
def test_presets_have_torchvisions_weights_by_name_and_shape(preset: str) -> None:
    ours, peer = with_torchvisions(preset, image_size=224)
    adopt(peer, ours, "torchvision")


@pytest.mark.nightly
@pytest.mark.parametrize("preset", TORCHVISIONS)
def test_logits_equal_torchvisions(preset: str) -> None:
    ours, peer = with_torchvisions(preset, image_size=48)
    scrambled(ours.to_empty(device="cpu"))
    assert difference(ours, adopt(peer, ours, "torchvision"), torch.randn(2, 3, 48, 48)) <= TOLERANCE


def test_patch_kernels_are_resized_as_timm_does() -> None:
    from timm.layers import resample_patch_embed

    kernel = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    for size in ((32, 32), (8, 8), (14, 20)):
        expected = resample_patch_embed(kernel, list(size), interpolation="bilinear", antialias=False)
        torch.testing.assert_close(resize.resize_patch_kernel(kernel, size), expected, atol=2e-5, rtol=1e-4)


def test_a_larger_patch_kernel_gives_resized_patches_the_same_embedding() -> None:
    kernel = torch.randn(4, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    patch = torch.randn(1, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    large = torch.nn.functional.interpolate(patch, size=(8, 8), mode="bilinear", align_corners=False)
    before = (kernel * patch).sum((1, 2, 3))
    torch.testing.assert_close((resize.resize_patch_kernel(kernel, (8, 8)) * large).sum((1, 2, 3)), before)
