"""BiT ResNets, hybrids, pixels: names, counts, and what they compute."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from baselines import _resnet, bit, hybrid, pixels
from tests.vit.test_vit_peers import scrambled
from vit import layers
from vit.checkpoints import CheckpointError, export, load, save

# -- resNets and hybrids: the same logits as timm, as the official definition, and after checkpoints went out and in ---


timm = pytest.importorskip("timm")

TOLERANCE = 1e-5
ROUNDING = 2**-53 * 4608  # of float64, times the terms of a 3 × 3 convolution of 512 channels
SCATTER = 4.0


def build(name: str, *, image_size: int = 64, channels: int = 3, num_classes: int = 7, **options: Any) -> nn.Module:
    family = hybrid if "+" in name else bit
    return family.build(name, image_size=image_size, channels=channels, num_classes=num_classes, **options)


def images(size: int, channels: int = 3) -> Tensor:
    return torch.rand(2, channels, size, size, generator=torch.Generator().manual_seed(1)) * 2 - 1


def against_timm(name: str, peer_name: str, image_size: int, **options: Any) -> None:
    with torch.device("meta"):
        gelu, size = ({"gelu": "exact"}, {"img_size": image_size}) if "+" in name else ({}, {})
        ours = build(name, image_size=image_size, numerics="timm", **gelu)
        peer = timm.create_model(peer_name, num_classes=7, **size, **options)
    ours.to_empty(device="cpu")
    scrambled(ours)
    peer.load_state_dict(export(ours, "timm"), strict=True, assign=True)
    peer.eval()
    x = images(image_size)
    with torch.inference_mode():
        a, b = ours(x), peer(x)
        exact, theirs = ours.double()(x.double()), peer.double()(x.double())
    assert exact.std() > 0.05 and (exact - theirs).abs().max() <= ROUNDING * exact.abs().max()
    # In float32 the two round differently, by an amount that grows with depth and depends on the processor's kernels:
    # ours may be no further from the exact logits than theirs, within the scatter of a maximum over 14 of them.
    assert (a - exact).abs().max() <= SCATTER * (b - exact).abs().max()


@pytest.mark.parametrize(
    ("name", "peer", "image_size", "options"),
    [
        ("R+ViT-Ti/16", "vit_tiny_r_s16_p8_224", 64, {}),
        ("R26+ViT-S/32", "vit_small_r26_s32_224", 64, {}),
        ("R50+ViT-B/16", "vit_base_r50_s16_224", 32, {}),
        ("R50+ViT-B/32", "vit_large_r50_s32_224", 64, {"embed_dim": 768, "depth": 12, "num_heads": 12}),
        ("R50x1", "resnetv2_50x1_bit", 64, {}),
        ("R101x1", "resnetv2_101x1_bit", 48, {}),
        pytest.param("R50+ViT-L/32", "vit_large_r50_s32_224", 64, {}, marks=pytest.mark.nightly),
        pytest.param("R50x3", "resnetv2_50x3_bit", 32, {}, marks=pytest.mark.nightly),
        pytest.param("R152x2", "resnetv2_152x2_bit", 32, {}, marks=pytest.mark.nightly),
    ],
)
def test_logits_equal_timms(name: str, peer: str, image_size: int, options: dict) -> None:
    against_timm(name, peer, image_size, **options)


@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_rows_over_their_deviation_and_its_gradient(eps: float) -> None:
    x_ON = torch.randn(5, 40, dtype=torch.float64, requires_grad=True)
    variance, mean = torch.var_mean(x_ON, dim=1, correction=0, keepdim=True)
    torch.testing.assert_close(_resnet.OverDeviation.apply(x_ON, eps), (x_ON - mean) / (variance.sqrt() + eps))
    assert torch.autograd.gradcheck(lambda x: _resnet.OverDeviation.apply(x, eps), (x_ON,))


# --- the official definition, written out from the key tables ---------------------------------------------------------


def standardised(kernel_HWIO: Tensor, *, eps_on_std: bool) -> Tensor:
    mean = kernel_HWIO.mean((0, 1, 2))
    std = kernel_HWIO.std((0, 1, 2), correction=0)
    return (kernel_HWIO - mean) / (std + 1e-5 if eps_on_std else (std**2 + 1e-10) ** 0.5)


def convolve(x: Tensor, kernel_HWIO: Tensor, stride: int, pads: tuple[int, int]) -> Tensor:
    return F.conv2d(F.pad(x, (*pads, *pads)), kernel_HWIO.permute(3, 2, 0, 1), stride=stride)


def same_pads(size: int, kernel: int, stride: int) -> tuple[int, int]:
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def group_normed(x: Tensor, scale: Tensor, bias: Tensor, eps: float, smallest: int) -> Tensor:
    """Of 32 groups; narrow layers, which the official code does not have, of fewer."""
    parts = x.reshape(x.shape[0], min(32, x.shape[1] // smallest), -1)
    parts = (parts - parts.mean(-1, keepdim=True)) / (parts.var(-1, correction=0, keepdim=True) + eps).sqrt()
    return parts.reshape(x.shape) * scale[:, None, None] + bias[:, None, None]


def official_bit(w: dict[str, Tensor], x: Tensor, blocks: tuple[int, ...], smallest: int) -> Tensor:
    """big_transfer: pre-activation, the norm of a, b, c precedes its convolution, stride on b."""

    def conv(x: Tensor, key: str, stride: int = 1) -> Tensor:
        kernel = standardised(w[f"resnet/{key}/standardized_conv2d/kernel"], eps_on_std=False)
        return convolve(x, kernel, stride, (kernel.shape[0] // 2,) * 2)

    def act(x: Tensor, key: str) -> Tensor:
        scale, bias = w[f"resnet/{key}group_norm/gamma"], w[f"resnet/{key}group_norm/beta"]
        return group_normed(x, scale, bias, 1e-5, smallest).relu()

    x = F.max_pool2d(F.pad(conv(x, "root_block", 2), (1, 1, 1, 1)), 3, 2)
    for stage, units in enumerate(blocks, start=1):
        for unit in range(1, units + 1):
            key, stride = f"block{stage}/unit{unit:02d}", 2 if unit == 1 and stage > 1 else 1
            a = act(x, f"{key}/a/")
            shortcut = conv(a, f"{key}/a/proj", stride) if unit == 1 else x
            b = act(conv(a, f"{key}/a"), f"{key}/b/")
            x = shortcut + conv(act(conv(b, f"{key}/b", stride), f"{key}/c/"), f"{key}/c")
    return act(x, "").mean((2, 3)) @ w["resnet/head/conv2d/kernel"][0, 0] + w["resnet/head/conv2d/bias"]


def official_backbone(w: dict[str, Tensor], x: Tensor, blocks: tuple[int, ...], smallest: int) -> Tensor:
    """vit_jax models_resnet: post-activation, SAME padding, stride on conv2, then the 1x1 embedding."""

    def conv(x: Tensor, key: str, stride: int = 1) -> Tensor:
        kernel = standardised(w[f"{key}/kernel"], eps_on_std=True)
        return convolve(x, kernel, stride, same_pads(x.shape[-1], kernel.shape[0], stride))

    def gn(x: Tensor, key: str) -> Tensor:
        return group_normed(x, w[f"{key}/scale"], w[f"{key}/bias"], 1e-6, smallest)

    x = gn(conv(x, "conv_root", 2), "gn_root").relu()
    x = F.max_pool2d(F.pad(x, same_pads(x.shape[-1], 3, 2) * 2, value=-torch.inf), 3, 2)
    for stage, units in enumerate(blocks, start=1):
        for unit in range(1, units + 1):
            key, stride = f"block{stage}/unit{unit}", 2 if unit == 1 and stage > 1 else 1
            shortcut = gn(conv(x, f"{key}/conv_proj", stride), f"{key}/gn_proj") if unit == 1 else x
            y = gn(conv(x, f"{key}/conv1"), f"{key}/gn1").relu()
            y = gn(conv(y, f"{key}/conv2", stride), f"{key}/gn2").relu()
            x = (shortcut + gn(conv(y, f"{key}/conv3"), f"{key}/gn3")).relu()
    return convolve(x, w["embedding/kernel"], 1, (0, 0)) + w["embedding/bias"][:, None, None]


@pytest.mark.parametrize(
    ("name", "size", "strides", "smallest"),
    [
        ("R14x0.25", 64, (1, 1, 1, 1), 8),
        ("R14x0.25", 75, (1, 1, 1, 1), 8),
        ("R11x1", 33, (1, 1, 1), 2),
        ("R20x0.25+ViT-nano/16", 64, (2, 2, 2), 8),
    ],
)
def test_bit_and_hybrids_equal_the_official_definition(
    name: str, size: int, strides: tuple[int, ...], smallest: int
) -> None:
    model = scrambled(build(name, image_size=size).double())
    weights = {key: tensor.detach() for key, tensor in export(model, "google").items()}
    x = images(size).double()
    with torch.inference_mode():
        if "+" in name:
            given, expected = (
                model.embed(x).transpose(1, 2).reshape(2, 64, 4, 4),
                official_backbone(weights, x, strides, smallest),
            )
        else:
            given, expected = model(x), official_bit(weights, x, strides, smallest)
        torch.testing.assert_close(given, expected, atol=1e-9, rtol=1e-9)


def test_official_and_timms_epsilons_hardly_differ() -> None:
    for name in ("R14x0.25", "R20x0.25+ViT-nano/16"):
        official, ported = scrambled(build(name)), scrambled(build(name, numerics="timm"))
        with torch.inference_mode():
            assert 0 < (official(images(64)) - ported(images(64))).abs().max() < 2e-2
    with pytest.raises(ValueError, match="neither 'official' nor 'timm'"):
        build("R50x1", numerics="jax")


# --- initialisation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["R11x0.25-s2", "R11x0.25-s1", "R8+ViT-nano/4", "R+ViT-Ti/16", "R50+ViT-Ti/16"])
def test_same_seed_same_model_whatever_the_path(name: str) -> None:
    generator = torch.Generator
    direct = build(name, generator=generator().manual_seed(3))
    with torch.device("meta"):
        later = build(name)
    later.to_empty(device="cpu")
    later.init_weights(generator().manual_seed(3))
    assert all(torch.equal(a, b) for a, b in zip(direct.parameters(), later.parameters(), strict=True))
    assert torch.equal(direct.features(images(64)), later.features(images(64)))
    assert all(parameter.isfinite().all() for parameter in direct.parameters())


def test_head_and_last_norms_start_at_zero() -> None:
    model = build("R11x0.25-s2")
    assert not model(images(64)).any() and model.features(images(64)).std() > 0
    backbone = build("R8+ViT-nano/4").embed.backbone
    assert all(not block.norm3.weight.any() for stage in backbone.stages for block in stage.blocks)


def test_gradients_reach_every_weight() -> None:
    for name in ("R11x0.25-s2", "R8+ViT-nano/4"):
        model = scrambled(build(name, image_size=28, channels=1)).train()
        model(images(28, 1)).square().sum().backward()
        assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


# --- checkpoints ------------------------------------------------------------------------------------------------------

NAMES = ("R14x0.25", "R11x0.25-s2", "R20x0.25+ViT-nano/16", "R8+ViT-nano/4", "R+ViT-Ti/16")


@pytest.mark.parametrize("layout", ["google", "timm", "safetensors"])
@pytest.mark.parametrize("name", NAMES)
def test_round_trip_is_bitwise(tmp_path: Path, name: str, layout: str) -> None:
    source, target = scrambled(build(name)), build(name)
    path = tmp_path / ("w.npz" if layout == "google" else "w.safetensors")
    save(source, path, layout=layout)
    load(target, path)
    assert all(torch.equal(a, b) for a, b in zip(source.parameters(), target.parameters(), strict=True))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "peer_name"),
    [
        ("R50x1", "resnetv2_50x1_bit"),
        ("R26+ViT-S/32", "vit_small_r26_s32_224"),
        ("R+ViT-Ti/16", "vit_tiny_r_s16_p8_224"),
    ],
)
def test_timms_own_npz_loader_reads_our_files(tmp_path: Path, name: str, peer_name: str) -> None:
    hybrid = "+ViT" in name
    options = {"position": "learned-1d", "pooling": "cls", "gelu": "exact"} if hybrid else {}
    source = scrambled(build(name, numerics="timm", **options))
    save(source, tmp_path / "w.npz", layout="google")
    peer = timm.create_model(peer_name, num_classes=7, **({"img_size": 64} if hybrid else {})).eval()
    peer.load_pretrained(str(tmp_path / "w.npz"))
    with torch.inference_mode():
        assert (source(images(64)) - peer(images(64))).abs().max() <= TOLERANCE


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("R14x0.25", lambda key: key.removeprefix("resnet/").replace("standardized_conv2d", "standardized_conv2d_3")),
        ("R8+ViT-nano/4", str),
    ],
)
def test_old_names_and_shapes_of_the_official_files(tmp_path: Path, name: str, old: Callable[[str], str]) -> None:
    source, target = scrambled(build(name)), build(name)
    tensors = {old(key): tensor.detach().numpy() for key, tensor in export(source, "google").items()}
    np.savez(tmp_path / "w.npz", **{k: v[None, None, None] if "/gn" in k else v for k, v in tensors.items()})
    load(target, tmp_path / "w.npz")
    assert all(torch.equal(a, b) for a, b in zip(source.parameters(), target.parameters(), strict=True))


@pytest.mark.parametrize(
    ("saved", "wanted", "message"),
    [
        ("R14x0.25", "R14x0.5", "mis-shaped"),
        ("R14x0.25", "R26x0.25", "missing"),
        ("R8+ViT-nano/4", "R5+ViT-nano/4", "unexpected"),
        ("R14x0.25", "R8+ViT-nano/4", "missing"),
    ],
)
def test_other_models_checkpoints_are_refused(tmp_path: Path, saved: str, wanted: str, message: str) -> None:
    save(build(saved), tmp_path / "w.npz", layout="google")
    with pytest.raises(CheckpointError, match=message):
        load(build(wanted), tmp_path / "w.npz")


def test_wrong_number_of_classes(tmp_path: Path) -> None:
    save(scrambled(build("R14x0.25", num_classes=9)), tmp_path / "w.npz", layout="google")
    with pytest.raises(CheckpointError, match="num_classes=9, or load with head='fresh'"):
        load(build("R14x0.25"), tmp_path / "w.npz")
    assert load(build("R14x0.25"), tmp_path / "w.npz", head="fresh").fresh == ("head.fc.bias", "head.fc.weight")
    assert load(build("R14x0.25", num_classes=0), tmp_path / "w.npz").dropped


@pytest.mark.parametrize("name", ["R8x0.25-s2", "R8+ViT-nano/4"])
def test_maps_lie_channels_last_on_a_gpu_and_not_on_a_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else compiled blocks would hand them over in the other order, and each turn them twice."""
    for low in (False, True):
        monkeypatch.setattr(layers, "runs_on_cpu", lambda _, low=low: not low)
        dtype = torch.bfloat16 if low else torch.float32
        model, maps = build(name, image_size=32).to(dtype), list[Tensor]()
        for module in model.modules():
            if isinstance(module, _resnet.StdConv):
                module.register_forward_hook(lambda _, given, y, maps=maps: maps.append(y))
        model(images(32).to(dtype))
        assert len(maps) > 3 and all(y.is_contiguous(memory_format=torch.channels_last) == low for y in maps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["R8x0.25-s2", "R8+ViT-nano/4"])
def test_maps_are_nchw_on_a_cpu(name: str, channels: int, dtype: torch.dtype) -> None:
    """torch's group norm is slow on the others, and weight gradients would come in the wrong order."""
    model, maps = build(name, image_size=32, channels=channels).to(dtype), list[Tensor]()
    for module in model.modules():
        if isinstance(module, _resnet.StdConv):
            module.register_forward_hook(lambda _, given, y: maps.append(y))
    model(torch.rand((2, 32, 32, channels)).to(dtype).permute(0, 3, 1, 2))
    assert len(maps) > 3 and all(y.stride() == torch.empty(y.shape).stride() for y in maps)


@pytest.mark.parametrize("size", [(8, 8), (7, 5)])
@pytest.mark.parametrize("same", [False, True])
def test_a_strided_product_of_pixels_reads_only_those_it_needs(same: bool, size: tuple[int, int]) -> None:
    """In float32 on a CPU they are picked out first. torch's strided convolution, which double precision takes, is the
    oracle for the output and the gradients."""
    conv = _resnet.StdConv(24, 16, 1, stride=2, same=same)
    exact = copy.deepcopy(conv).double()
    x = torch.randn((3, 24, *size), generator=torch.Generator().manual_seed(0))
    results = []
    for module in (conv, exact):
        given = x.to(module.weight.dtype, copy=True).requires_grad_()
        y = module(given)
        y.backward(torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y))
        results.append((y, given.grad, module.weight.grad))
    assert results[0][0].shape == (3, 16, -(-size[0] // 2), -(-size[1] // 2))
    for result, wanted in zip(*results, strict=True):
        assert (result - wanted).norm() < 1e-6 * wanted.norm()


def test_weights_are_standardised_alike_in_either_precision() -> None:
    """Against the definition in float64; the gradient too."""
    conv = _resnet.StdConv(24, 16, 3, eps=1e-10)
    weight = torch.randn(conv.weight.shape, generator=torch.Generator().manual_seed(0)) + 0.3
    conv.weight.data.copy_(weight)
    exact = weight.double().requires_grad_()
    flat = exact.flatten(1)
    wanted = ((flat - flat.mean(1, keepdim=True)) / flat.std(1, correction=0, keepdim=True)).view_as(weight)
    towards = torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    wanted.backward(towards.double())
    for dtype, rounding in ((torch.float32, 1e-6), (torch.bfloat16, 2**-8)):
        conv.weight.grad = None
        rounded = conv.standardised_weight(dtype)
        rounded.backward(towards.to(dtype))
        assert rounded.dtype == dtype and (rounded.double() - wanted).norm() < rounding * wanted.norm()
        assert (conv.weight.grad.double() - exact.grad).norm() < 1e-5 * exact.grad.norm()


# -- the contract of a family, the grammars of names, and parameter counts (on the meta device) ------------------------


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


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts(name: str) -> None:
    with torch.device("meta"):
        model = build(name, image_size=224, num_classes=1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == COUNTS[name]


@pytest.mark.nightly
@pytest.mark.parametrize("family", [bit, hybrid])
def test_every_registered_model_keeps_the_contract(family) -> None:
    for name in family.FAMILY.names:
        assert family.accepts(name)
        with torch.device("meta"):
            model = family.build(name, image_size=224, channels=3, num_classes=11)
            assert model.features(torch.empty(2, 3, 224, 224)).shape == (2, model.num_features)
        assert sum(parameter.numel() for parameter in model.head.parameters()) == (model.num_features + 1) * 11


@pytest.mark.parametrize(
    "family, name",
    [
        *((bit, name) for name in ("R50", "R51x1", "R50x0", "R50x0.1", "R50x1-s3", "r50x1", "R50x1-s2 ", "ViT-B/16")),
        (bit, "R50+ViT-B/16"),
        *((hybrid, name) for name in ("R50+ViT-B", "R50+ViT-X/16", "R51+ViT-B/16", "R50+ViT-B/18", "R50x1")),
        *((hybrid, name) for name in ("ViT-B/16", "R+ViT-B/16")),
    ],
)
def test_names_that_are_refused(family, name: str) -> None:
    assert not family.accepts(name)
    with pytest.raises(ValueError, match=r"is not R<depth>x<width>" if family is bit else "is not R<depth>"):
        family.build(name, image_size=224, channels=3, num_classes=2)


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


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("R50+ViT-B/16", {"image_size": 220}, "208 or 224"),
        ("R50x1", {"image_size": 28}, "at least 32 px, or a small-image stem"),
        ("R50+ViT-B/16", {"widht": 3}, "unknown option widht"),
        ("R50x1", {"gelu": "exact"}, "unknown option gelu"),
    ],
)
def test_what_does_not_fit_is_explained(name: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(name, **options)


def test_pixels_are_a_floor_without_parameters() -> None:
    model = pixels.build("pixels", image_size=(4, 6), channels=2, num_classes=10)
    x = torch.randn(3, 2, 4, 6)
    assert torch.equal(model.features(x), x.reshape(3, 48)) and model.num_features == 48
    assert not list(model.parameters())
    with pytest.raises(NotImplementedError, match="no classifier"):
        model(x)
    with pytest.raises(ValueError, match="is not 'pixels'"):
        pixels.build("pixel", image_size=4, channels=1)
