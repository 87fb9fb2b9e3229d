"""Networks for images of 28 to 64 px: ResNets of He et al., Compact Transformers, and narrow BiTs."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from baselines import _basic_resnet, _resnet, basic_hybrid, bit, cct, hybrid, resnet
from bench.cost import flops
from bench.study import registry
from vit import family as vit_family
from vit import layers
from vit.model_family import ModelFamily
from vit.resize import carry_over


def build(name: str, *, image_size: int = 28, channels: int = 1, num_classes: int = 7, **options: Any) -> Any:
    return registry.build_model(name, image_size=image_size, channels=channels, num_classes=num_classes, **options)


def seeded(number: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def images(size: int = 28, channels: int = 1) -> torch.Tensor:
    return torch.rand(2, channels, size, size, generator=seeded(1)) * 2 - 1


def parameters(name: str, *, image_size: int = 32, channels: int = 3, num_classes: int = 10) -> int:
    with torch.device("meta"):
        model = build(name, image_size=image_size, channels=channels, num_classes=num_classes)
    return sum(parameter.numel() for parameter in model.parameters())


# -- what the papers print ---------------------------------------------------------------------------------------------

MILLIONS = {  # of parameters, for 10 classes of 32 px colour images
    # He et al. 2016, Table 6
    "ResNet-20": (0.27, 2),
    "ResNet-32": (0.46, 2),
    "ResNet-44": (0.66, 2),
    "ResNet-56": (0.85, 2),
    "ResNet-110": (1.7, 1),
    # Hassani et al. 2021, and the table of their code
    "ViT-Lite-6/4": (3.191, 3),
    "ViT-Lite-7/4": (3.717, 3),
    "CCT-2/3x2": (0.284, 3),
    "CCT-4/3x2": (0.482, 3),
    "CCT-6/3x2": (3.327, 3),
    "CCT-7/3x2": (3.853, 3),
    "CCT-7/3x1": (3.760, 3),
    "CCT-6/3x1:position=none": (3.168, 3),  # theirs counts none here
}


@pytest.mark.parametrize("name", MILLIONS)
def test_parameters_are_those_of_the_paper(name: str) -> None:
    printed, digits = MILLIONS[name]
    assert round(parameters(name) / 1e6, digits) == printed


@pytest.mark.parametrize(
    ("name", "printed"),
    [("CCT-2/3x2", 0.033), ("CCT-4/3x2", 0.046), ("CCT-6/3x1", 0.813), ("CCT-7/3x1", 0.947), ("CCT-7/3x2", 0.275)],
)
def test_multiplications_are_those_of_the_paper_which_leaves_out_products_of_tokens(name: str, printed: float) -> None:
    cost = flops.count(name, image_size=32, channels=3, num_classes=10, activations=False)
    of_attention = sum(macs for path, macs in cost.by_module["dense"].items() if path.endswith("attn"))
    assert round((cost.forward_macs["dense"] - of_attention) / 1e9, 3) == pytest.approx(printed, abs=0.0011)


# -- resNets of He et al. ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(16, 16, 1), (16, 32, 2), (16, 16, 2)])
def test_a_block_is_torchvisions(inputs: int, outputs: int, stride: int) -> None:
    torchvision = pytest.importorskip("torchvision")
    ours = _basic_resnet.BasicBlock(inputs, outputs, stride=stride, norm=nn.BatchNorm2d, shortcut="conv")
    downsample = None
    if ours.downsample is not None:
        downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))
    theirs = torchvision.models.resnet.BasicBlock(inputs, outputs, stride=stride, downsample=downsample)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    x = torch.randn(3, inputs, 14, 14, generator=seeded())
    for mode in (True, False):
        assert torch.equal(ours.train(mode)(x.clone()), theirs.train(mode)(x.clone()))
    running = [(a, b) for a, b in zip(ours.buffers(), theirs.buffers(), strict=True)]
    assert running and all(torch.equal(a, b) for a, b in running)


def test_the_shortcut_without_weights_copies_every_second_pixel_between_new_channels_of_zeros() -> None:
    x = torch.randn(2, 16, 7, 7, generator=seeded())
    y = _basic_resnet.Pad(16, stride=2)(x)
    assert y.shape == (2, 32, 4, 4) and torch.equal(y[:, 8:24], x[..., ::2, ::2])
    assert not y[:, :8].any() and not y[:, 24:].any()
    assert parameters("ResNet-20:shortcut=conv") - parameters("ResNet-20") == 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64


@pytest.mark.parametrize(
    ("name", "maps"),
    [
        ("ResNet-8", [28, 28, 14, 7]),
        ("ResNet-20", [28, 28, 14, 7]),
        ("ResNet-8-s2", [14, 14, 7, 4]),
        ("ResNet-8-s4", [14, 7, 4, 2]),
    ],
)
def test_maps_shrink_as_the_name_says(name: str, maps: list[int]) -> None:
    model, sizes = build(name).eval(), []
    for module in (model.bn1, *model.stages):
        module.register_forward_hook(lambda _m, _i, output: sizes.append(output.shape[-1]))
    assert model.features(images()).shape == (2, 64)
    assert sizes == maps


def test_depth_and_width_are_those_of_the_name() -> None:
    for name, depth, last in (("ResNet-8x2-s4", 8, 128), ("ResNet-14x0.5", 14, 32), ("ResNet-44", 44, 64)):
        model = build(name)
        weighted = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
        assert len(weighted) == depth and model.num_features == last


def test_the_control_of_a_tiny_resnet_has_the_multiplications_that_it_should() -> None:
    cost = flops.count("ResNet-8-s4:shortcut=conv", image_size=28, channels=1, num_classes=100, activations=False)
    assert round(cost.forward_macs["dense"] / 1e6, 2) == 0.73


def test_groups_of_its_group_norm_have_at_least_four_channels() -> None:
    for name in ("ResNet-8x0.25:norm=group", "ResNet-8:norm=group", "ResNet-8x4:norm=group"):
        norms = [m for m in build(name).modules() if isinstance(m, nn.GroupNorm)]
        assert norms and all(m.num_channels // m.num_groups >= 4 for m in norms)
        assert not any(isinstance(m, nn.BatchNorm2d) for m in build(name).modules())


def test_weights_begin_as_he_et_al_say() -> None:
    model = resnet.build("ResNet-20x4", image_size=28, channels=3, num_classes=10, generator=seeded())
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            wanted = math.sqrt(2 / (9 * module.out_channels))
            assert module.weight.std().item() == pytest.approx(wanted, rel=4 / math.sqrt(2 * module.weight.numel()))
    assert not model.head.bias.any() and model.head.weight.any()


@pytest.mark.parametrize(
    ("family", "name"),
    [
        *((resnet, name) for name in ("ResNet", "ResNet-2", "ResNet-9", "ResNet-18", "ResNet-8x0", "ResNet-8x0.3")),
        *((resnet, name) for name in ("ResNet-8-s1", "ResNet-50", "ResNet-152", "resnet-20", "ResNet-20-s2 ")),
        *((cct, name) for name in ("CCT-3/3x2", "CCT-2/4x2", "CCT-2/3", "CCT-2/3x0", "CCT-2/3x4", "cct-2/3x2")),
    ],
)
def test_names_that_are_refused(family: Any, name: str) -> None:
    assert not family.accepts(name)
    with pytest.raises(ValueError, match=" is not "):
        family.build(name, image_size=28, channels=1, num_classes=2)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ResNet-8", {"norm": "layer"}, "norm='layer' is not one of batch, group"),
        ("ResNet-8", {"shortcut": "none"}, "shortcut='none' is not one of pad, conv"),
        ("ResNet-8", {"depth": 3}, "unknown option depth"),
        ("ResNet-8-s4", {"image_size": 8}, "smaller than the total down-sampling of 16"),
        ("CCT-2/3x2", {"pooling": "cls"}, "unknown option pooling"),
        ("CCT-2/3x2", {"width": 65}, "not divisible by 2 heads"),
        ("CCT-2/3x2", {"stochastic_depth": 1.0}, "stochastic_depth=1.0 is not a number"),
        ("CCT-2/3x2", {"position": "relative"}, "position='relative' is not one of"),
    ],
)
def test_what_does_not_fit_is_explained(name: str, options: dict, message: str) -> None:
    family = cct if name.startswith("CCT") else resnet
    with pytest.raises(ValueError, match=message):
        family.build(name, **{"image_size": 28, "channels": 1, "num_classes": 2, **options})


@pytest.mark.parametrize("name", ["ResNet-8-s4", "ResNet-14:norm=group:shortcut=conv", "CCT-2/3x2", "ViT-Lite-2/7"])
def test_same_seed_same_model_whatever_the_path(name: str) -> None:
    direct = build(name, generator=seeded())
    with torch.device("meta"):
        later = build(name)
    layers.allocate(later, torch.device("cpu"))
    later.init_weights(seeded())
    assert all(torch.equal(a, b) for a, b in zip(direct.parameters(), later.parameters(), strict=True))
    assert torch.equal(direct.eval()(images()), later.eval()(images()))


@pytest.mark.parametrize("family", [resnet.FAMILY, cct.FAMILY])
def test_every_registered_model_keeps_the_contract(family: ModelFamily) -> None:
    for name in family.names:
        assert registry.family_of(name).label == family.label
        with torch.device("meta"):
            model: Any = family.build(name, image_size=64, channels=3, num_classes=11)
            assert model.features(torch.empty(2, 3, 64, 64)).shape == (2, model.num_features)
        assert sum(parameter.numel() for parameter in model.head.parameters()) == (model.num_features + 1) * 11


# -- compact Transformers ----------------------------------------------------------------------------------------------


def as_vit_pytorch(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights of a CCT under the names of the package vit-pytorch."""
    parts = {
        "tokenizer.": "tokenizer.conv_layers.",
        "positions.0.weight": "classifier.positional_emb",
        "pool.": "classifier.attention_pool.",
        "head.": "classifier.fc.",
        "norm.": "classifier.norm.",
        "blocks.": "classifier.blocks.",
    }
    inner = {".norm1.": ".pre_norm.", ".norm2.": ".norm1.", ".attn.": ".self_attn.", ".mlp.fc": ".linear"}
    made = {}
    for name, value in state.items():
        start = next(start for start in parts if name.startswith(start))
        theirs = parts[start] + name.removeprefix(start)
        for ours, there in inner.items():
            if ours in name:
                theirs = theirs.replace(ours, there)
                break
        made[theirs] = value
    return made


@pytest.mark.parametrize(
    ("name", "size"), [("CCT-2/3x2", 28), ("CCT-4/3x2", 32), ("CCT-6/3x1", 30), ("CCT-7/3x1", 16), ("CCT-7/7x2", 64)]
)
def test_logits_of_a_cct_are_those_of_vit_pytorch(name: str, size: int) -> None:
    theirs = pytest.importorskip("vit_pytorch.cct")
    layer_count, kernel, convolutions = (int(part) for part in name[4:].replace("/", "x").split("x"))
    ours = build(name, image_size=size, channels=3).eval()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=seeded(parameter.numel())))
    peer = getattr(theirs, f"cct_{layer_count}")(
        img_size=size,
        n_conv_layers=convolutions,
        kernel_size=kernel,
        num_classes=7,
        positional_embedding="learnable",
    ).eval()
    peer.load_state_dict(as_vit_pytorch(ours.state_dict()), strict=True)
    x = images(size, 3)
    with torch.no_grad():
        a, b = ours.double()(x.double()), peer.double()(x.double())
    assert b.std() > 0.01 and (a - b).abs().max() <= 1e-5 * b.abs().max()


def test_stochastic_depth_leaves_out_a_layer_of_whole_images_and_keeps_the_mean() -> None:
    block = build("CCT-2/3x2:stochastic_depth=0.5").blocks[1].train()
    y = torch.ones(4000, 3, 2)
    torch.manual_seed(0)
    kept = block.path(y)
    assert set(kept.unique().tolist()) == {0.0, 2.0} and torch.equal(kept, kept[:, :1, :1].expand_as(kept))
    assert kept.mean().item() == pytest.approx(1.0, abs=4 / math.sqrt(4000))
    assert block.eval().path(y) is y
    assert [b.drop_path for b in build("CCT-7/3x1:stochastic_depth=0.3").blocks] == pytest.approx(
        [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]
    )


def test_a_cct_is_fine_tuned_at_another_size_with_its_positions_stretched() -> None:
    trained = build("CCT-2/3x2:width=64")
    larger = carry_over(trained, build("CCT-2/3x2:width=64", image_size=56))
    old, new = trained.positions[0].weight, larger.positions[0].weight
    assert old.shape == (1, 49, 64) and new.shape == (1, 196, 64)
    assert torch.equal(old[0, 0], new[0, 0]) and torch.equal(old[0, -1], new[0, -1])  # corners stay where they are


@pytest.mark.parametrize(("name", "size", "tokens"), [("CCT-2/3x2", 30, 64), ("CCT-2/3x1", 28, 196)])
def test_tokens_of_a_cct(name: str, size: int, tokens: int) -> None:
    model = build(name, image_size=size).eval()
    assert model.forward_features(images(size)).shape == (2, tokens, 128)
    assert model.config.num_tokens == tokens


def test_sequence_pooling_is_a_mean_where_all_tokens_weigh_alike() -> None:
    model = build("CCT-2/3x2").eval()
    nn.init.zeros_(model.pool.weight)
    x = images()
    torch.testing.assert_close(model.features(x), model.forward_features(x).mean(1))


def test_vit_lite_is_the_vit_of_its_paper() -> None:
    model = build("ViT-Lite-6/4", image_size=32, channels=3)
    config = model.config
    assert (config.depth, config.heads, config.width, config.mlp_width) == (6, 4, 256, 512)
    assert config.has_cls and config.num_tokens == 65 and model.blocks[0].attn.qkv.bias is None
    assert model.positions[0].weight.std().item() == pytest.approx(0.2, rel=0.05)
    assert {"ViT-Lite-2/4", "ViT-Lite-7/7"} <= set(vit_family.FAMILY.names)


# -- narrow BiTs and hybrids -------------------------------------------------------------------------------------------


def norms(name: str, size: int = 224) -> list[_resnet.GroupNorm]:
    with torch.device("meta"):
        model = build(name, image_size=size, channels=3)
    return [module for module in model.modules() if isinstance(module, _resnet.GroupNorm)]


@pytest.mark.parametrize("name", ["R8x0.125-s2", "R14x0.5", "R11x0.875", "R5+ViT-pico/4", "R8x0.5+ViT-nano/16"])
def test_groups_of_narrow_networks_have_at_least_eight_channels(name: str) -> None:
    assert registry.model_revision(name) == registry.model_revision(f"{name}:numerics=timm") == 2
    for module in norms(name):
        assert module.num_channels % module.num_groups == 0 and module.num_channels // module.num_groups >= 8
        assert module.num_groups == min(32, module.num_channels // 8) or module.num_channels % 32


@pytest.mark.parametrize(
    "name",
    [n for n in (*bit._PAPER, *hybrid._PAPER, hybrid._STEM_ONLY) if n.startswith(("R+", "R2", "R50"))] + ["R14x1.25"],
)
def test_at_width_one_and_above_nothing_has_changed(name: str) -> None:
    assert registry.model_revision(name) == 1
    found = norms(name)
    assert found
    for module in found:
        groups = min(32, module.num_channels // 2)
        while module.num_channels % groups:
            groups -= 1
        assert module.num_groups == groups


# -- a small ResNet before a ViT ---------------------------------------------------------------------------------------


def test_a_hybrids_stem_is_the_resnet_on_the_padded_image() -> None:
    """With the ResNet's weights, the tokens are a linear map of its last feature map, 4 x 4 of 28 px made 32."""
    model, plain = build("ResNet-8-s2+ViT-pico/8").eval(), build("ResNet-8-s2").eval()
    weights = {name: value for name, value in plain.state_dict().items() if not name.startswith("head.")}
    model.embed.backbone.load_state_dict(weights)
    seen = {}
    model.embed.register_forward_hook(lambda module, given, made: seen.update(tokens=made))
    with torch.no_grad():
        model(images())
        map_BCHW = plain.forward_features(nn.functional.pad(images(), (2, 2, 2, 2), mode="replicate"))
        wanted = map_BCHW.flatten(2).transpose(1, 2) @ model.embed.proj.weight[..., 0, 0].T + model.embed.proj.bias
    assert wanted.shape[1] == 16 and torch.allclose(seen["tokens"], wanted, atol=1e-5)


@pytest.mark.parametrize(
    "name, blocks, tokens",
    [
        ("ResNet-8-s4+ViT-pico/8", (1, 2), 16),
        ("ResNet-20-s2+ViT-nano/8", (3, 3, 3), 16),
        ("ResNet-8+ViT-pico/2", (1, 2), 196),
    ],
)
def test_stages_beyond_the_down_sampling_go_to_the_one_before(name: str, blocks: tuple[int, ...], tokens: int) -> None:
    model = build(name)
    assert tuple(len(stage) for stage in model.embed.backbone.stages) == blocks
    assert math.prod(model.config.grid) == tokens
    assert model(images()).shape == (2, 7)


@pytest.mark.parametrize(
    "name", ["ResNet-8-s4+ViT-pico/7", "ResNet-9+ViT-pico/8", "ResNet-8+ViT-none/8", "ResNet-8+ViT-pico/0"]
)
def test_what_is_no_hybrid_of_a_small_resnet(name: str) -> None:
    assert not basic_hybrid.accepts(name)


def test_an_image_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="20, 20"):
        build("ResNet-8-s2+ViT-pico/8")(images(20))
