"""The Vision Transformer: its configuration, its parameters, and what it computes."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vit import family, layers
from vit import model as vit_model
from vit.config import PRESETS, VARIANTS, config_for, parse
from vit.layers import RelativePosition, sincos_2d
from vit.model import VisionTransformer

# -- the model itself: shapes, initialisation, positions, pooling, attention -------------------------------------------


SMALL = {"width": 32, "depth": 2, "heads": 4, "mlp_width": 48}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def build(
    name: str = "ViT-nano/7", *, image_size: object = 28, classes: int = 10, **options: object
) -> VisionTransformer:
    options.setdefault("generator", seeded())
    return family.build(name, image_size=image_size, channels=1, num_classes=classes, **options)  # type: ignore[arg-type]


def images(model: VisionTransformer, count: int = 3) -> Tensor:
    return torch.rand(count, model.config.channels, *model.config.image_size, generator=seeded(1)) * 2 - 1


COMBINATIONS = list(
    itertools.product(
        ("none", "learned-1d", "learned-2d", "sincos-2d", "relative"),
        ("stem", "every-layer", "shared"),
        ("cls", "mean"),
        ("linear", "mlp"),
    )
)


@pytest.mark.parametrize(("position", "at", "pooling", "head"), COMBINATIONS)
def test_every_combination_runs_forward_and_backward(position: str, at: str, pooling: str, head: str) -> None:
    model = build(position=position, position_at=at, pooling=pooling, head=head, image_size=(14, 21), **SMALL)
    nn.init.normal_(model.head.weight, generator=seeded())  # type: ignore[arg-type]
    logits = model(images(model))
    assert logits.shape == (3, 10) and model.features(images(model)).shape == (3, model.num_features)
    logits.square().sum().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not without
    with torch.no_grad():  # the fused kernel answers as the plain one did
        torch.testing.assert_close(model(images(model)), logits.detach(), atol=2e-5, rtol=1e-4)


def test_the_product_with_flattened_patches_is_the_convolution() -> None:
    """Where sums may be found in any order; pixels are scaled on the way, to the bits of images that were before."""
    model = build("ViT-nano/7", image_size=(14, 21)).double()
    x_BCHW = images(model).double()
    wanted_BND = model.embed.proj(x_BCHW).flatten(2).transpose(1, 2)
    torch.testing.assert_close(model.embed(x_BCHW), wanted_BND, rtol=1e-12, atol=1e-12)
    pixels_BHWC = torch.randint(0, 256, (3, 28, 28, 1), dtype=torch.uint8, generator=seeded(2))
    for dtype in (torch.float32, torch.bfloat16):
        own = build("ViT-nano/7").to(dtype)
        nn.init.normal_(own.head.weight, generator=seeded())  # type: ignore[arg-type]
        x_BCHW = pixels_BHWC.permute(0, 3, 1, 2)
        assert torch.equal(own(x_BCHW), own((x_BCHW.float() * (2 / 255) - 1).to(dtype)))


@pytest.mark.parametrize("channels", [1, 3])
def test_patches_are_in_the_order_of_a_convolutions_weights(channels: int) -> None:
    pixels_BHWC = torch.randint(0, 256, (2, 12, 10, channels), dtype=torch.uint8, generator=seeded())
    x_BCHW = pixels_BHWC.permute(0, 3, 1, 2)
    unfolded_BPN = nn.functional.unfold(x_BCHW.float() * (2 / 255) - 1, (3, 5), stride=(3, 5))
    patches_BNP = layers.Patches((3, 5))(x_BCHW, torch.float32)
    assert patches_BNP.is_contiguous() and torch.equal(patches_BNP, unfolded_BPN.transpose(1, 2))


def test_only_a_plain_network_takes_pixels() -> None:
    assert build().takes_pixels and not build(head="masked").takes_pixels
    assert not build(stem="conv", conv_stem=((8, 3, 1),)).takes_pixels


@pytest.mark.parametrize(
    "options", [{"position": "learned-1d", "pooling": "cls"}, {"position": "sincos-2d", "head": "mlp"}], ids=str
)
def test_same_seed_same_model_whatever_the_path(options: dict) -> None:
    """Weights, and tables that are computed and not stored."""
    direct = build(**options)
    with torch.device("meta"):
        later = build(generator=None, **options)
    later.to_empty(device="cpu")
    later.init_weights(seeded())
    state, x = direct.state_dict(), images(direct)
    assert all(torch.equal(state[name], tensor) for name, tensor in later.state_dict().items())
    assert torch.equal(direct.features(x), later.features(x))
    other = build(generator=seeded(1), **options).state_dict()
    assert any(not torch.equal(state[name], tensor) for name, tensor in other.items())


def test_the_seed_alone_decides_also_where_numbers_are_copied() -> None:
    expected = build(position="learned-1d", pooling="cls").state_dict()
    torch.set_default_dtype(torch.float64)  # as on another device: drawn in float32 elsewhere, then copied
    try:
        double = build(position="learned-1d", pooling="cls").state_dict()
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(tensor.dtype == torch.float64 for tensor in double.values())
    assert all(torch.equal(expected[name].double(), tensor) for name, tensor in double.items())


def test_initialisation_is_the_papers() -> None:
    model = family.build(
        "ViT-Ti/16", image_size=224, channels=3, num_classes=10, head_bias=-10.0, head="mlp", generator=seeded()
    )
    block = model.blocks[0]
    bound = math.sqrt(6 / (192 + 192))
    for part in block.attn.qkv.weight.chunk(3):  # each of q, k, v by itself, not the fused matrix
        assert 0.98 * bound < part.abs().max() <= bound
        assert part.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert block.mlp.fc1.weight.abs().max() <= math.sqrt(6 / (192 + 768))
    assert 0 < block.mlp.fc1.bias.std() < 2e-6
    assert model.embed.proj.weight.std().item() == pytest.approx(1 / math.sqrt(768), rel=0.02)
    assert model.positions[0].weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert model.pre_logits is not None and model.pre_logits.weight.std().item() == pytest.approx(192**-0.5, rel=0.02)
    assert not model.cls.any() and not model.head.weight.any() and (model.head.bias == -10).all()
    zero = (block.attn.qkv.bias, block.attn.proj.bias, model.embed.proj.bias, block.norm1.bias, model.norm.bias)
    assert not any(tensor.any() for tensor in zero) and (block.norm2.weight == 1).all()


def test_norms_have_the_papers_epsilon_and_gelu_is_a_choice() -> None:
    model = build("ViT-nano/7")
    assert {module.eps for module in model.modules() if isinstance(module, nn.LayerNorm)} == {1e-6}
    assert model.blocks[0].mlp.act.approximate == "tanh"
    assert build("ViT-nano/7", gelu="exact").blocks[0].mlp.act.approximate == "none"


def test_sincos_table_is_that_of_moco_and_big_vision() -> None:
    rows, columns, width = 3, 5, 16
    table = sincos_2d((rows, columns), width)[0].reshape(rows, columns, 4, width // 4)
    for y, x, k in itertools.product(range(rows), range(columns), range(width // 4)):
        frequency = 10_000 ** (-k / (width // 4 - 1))
        expected = [math.sin(x * frequency), math.cos(x * frequency), math.sin(y * frequency), math.cos(y * frequency)]
        assert table[y, x, :, k].tolist() == pytest.approx(expected, abs=1e-6)


def test_relative_logits_equal_the_definition() -> None:
    model = build(position="relative", **SMALL)
    relative = model.relatives[0]
    assert isinstance(relative, RelativePosition) and len(model.relatives) == 2
    q_BHNE = torch.randn(2, 4, 16, 8, generator=seeded())
    bias = relative(q_BHNE)
    for i, j in ((0, 0), (3, 9), (15, 0), (0, 15)):
        expected = q_BHNE[:, :, i] @ relative.weight[i - j + 15]
        torch.testing.assert_close(bias[:, :, i, j], expected)
    assert len(build(position="relative", position_at="shared", **SMALL).relatives) == 1


@pytest.mark.parametrize("position", ["none", "sincos-2d"])
def test_only_positions_tell_patches_apart(position: str) -> None:
    model = build("ViT-nano/14", position=position)
    x = images(model)
    swapped = torch.cat([x[..., 14:], x[..., :14]], dim=-1)
    assert torch.allclose(model.features(x), model.features(swapped), atol=1e-5) == (position == "none")


def test_tables_are_added_where_they_should_be() -> None:
    assert len(build(position="learned-1d", position_at="every-layer", **SMALL).positions) == 2
    assert len(build(position="learned-1d", position_at="shared", **SMALL).positions) == 1
    stem = build(position="learned-1d", position_at="stem", depth=1, heads=4)
    layer = build(position="learned-1d", position_at="shared", depth=1, heads=4)
    layer.load_state_dict(stem.state_dict())
    assert torch.equal(stem.features(images(stem)), layer.features(images(layer)))  # one layer: no difference


def test_two_dimensional_table_is_column_and_row() -> None:
    table = build(position="learned-2d", image_size=(14, 21), pooling="cls", **SMALL).positions[0]
    full = table()
    assert full.shape == (1, 7, 32) and not full[:, 0].any()  # the class token has no place in the plane
    torch.testing.assert_close(full[0, 1 + 1 * 3 + 2], torch.cat([table.columns[2], table.rows[1]]))


def test_pooling_and_its_norm() -> None:
    model = build("ViT-nano/7", pooling="mean")
    x_BND = model.tokens(images(model))
    torch.testing.assert_close(model.features(images(model)), model.norm(x_BND).mean(1))
    after = build("ViT-nano/7", pooling="mean", norm_after_pool=True)
    torch.testing.assert_close(after.features(images(model)), after.norm(after.tokens(images(model)).mean(1)))
    every = build("ViT-atto/7")
    assert every.num_features == every.head.in_features == 16 * 16
    torch.testing.assert_close(every.features(images(every)), every.norm(every.tokens(images(every))).flatten(1))
    both = build("ViT-nano/7", pooling="mean", cls_token=True)
    assert both.tokens(images(both)).shape[1] == 17
    torch.testing.assert_close(both.features(images(both)), both.norm(both.tokens(images(both))[:, 1:]).mean(1))


def test_hidden_layer_of_the_head_is_what_a_probe_sees() -> None:
    model = build("ViT-nano/7", head="mlp", head_width=20)
    assert model.num_features == 20 and model.features(images(model)).abs().max() < 1
    assert model.head.in_features == 20


def test_dropout_only_in_training() -> None:
    model = build("ViT-nano/7", dropout=0.5, dropout_weights=0.5)
    x = images(model)
    assert not torch.equal(model.train().features(x), model.features(x))
    assert torch.equal(model.eval().features(x), model.features(x))


@pytest.mark.parametrize("site", ["drop", "blocks.0.drop1", "blocks.0.mlp.drop", "blocks.0.drop2"])
def test_each_dropout_site_acts_by_itself(site: str) -> None:
    model = build("ViT-nano/7", dropout=0.5).train()
    x, sites = images(model), {n: m for n, m in model.named_modules() if isinstance(m, torch.nn.Dropout)}
    for name, module in sites.items():
        module.p = 0.5 * (name == site)
    assert not torch.equal(model.features(x), model.features(x))
    sites[site].p = 0.0
    assert torch.equal(model.features(x), model.features(x))


def test_attention_follows_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = torch.randn(3, 2, 4, 9, 8, dtype=torch.float64, generator=seeded()).unbind(0)
    bias = torch.randn(2, 4, 9, 9, dtype=torch.float64, generator=seeded(2))
    expected = ((q @ k.mT + bias).exp() / (q @ k.mT + bias).exp().sum(-1, keepdim=True)) @ v
    for plain in (True, False):
        monkeypatch.setattr(layers, "prefers_plain_attention", lambda q, plain=plain: plain)
        torch.testing.assert_close(layers.attend(q, k, v, bias_BHNN=bias, dropout=0.0), expected)


def test_training_on_cpu_avoids_the_fused_kernel() -> None:
    q = torch.zeros(1, 1, 2, 2, requires_grad=True)
    assert layers.prefers_plain_attention(q) and not layers.prefers_plain_attention(q.detach())
    with torch.no_grad():
        assert not layers.prefers_plain_attention(q)


@pytest.mark.parametrize("position", ["learned-1d", "relative"])
def test_the_last_block_computes_only_what_is_read(position: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In double precision it gives the same features and gradients; in bfloat16 gradients as near to the right ones. In
    float32 on a CPU, and where operations are counted, all is computed."""
    model = build("ViT-nano/7", pooling="cls", cls_token=True, position=position).double()
    x, seen = images(model).double(), list[int]()
    model.blocks[-1].register_forward_hook(lambda _, args, out: seen.append(out.shape[1]))

    def gradients(dtype: torch.dtype, whole: bool) -> tuple[torch.Tensor, ...]:
        with monkeypatch.context() as patch:
            for module in (layers, vit_model):
                patch.setattr(module, "keeps_order", lambda _: whole)
            features = model.to(dtype).features(x.to(dtype))
        out = torch.autograd.grad(features.square().sum(), list(model.parameters()), allow_unused=True)
        return features.detach().double(), *(g.double() for g in out if g is not None)

    right, pruned = gradients(torch.float64, True), gradients(torch.float64, False)
    assert seen == [17, 1]
    for gradient, expected in zip(pruned, right, strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-10)

    def error(whole: bool) -> float:
        computed = gradients(torch.bfloat16, whole)
        return sum(float((f - e).norm() / e.norm().clamp(min=1e-9)) for f, e in zip(computed, right, strict=True))

    assert error(False) < 1.1 * error(True)
    assert layers.keeps_order(torch.zeros(1)) and layers.keeps_order(torch.zeros(1, device="meta"))


def test_a_bias_gradient_is_summed_image_by_image_on_a_gpu() -> None:
    """In double precision it is what nn.Linear finds, in bfloat16 as near to that. On a CPU nn.Linear does it all."""
    torch.manual_seed(0)
    linear, x, grad = layers.Linear(16, 24), torch.randn(5, 7, 16), torch.randn(5, 7, 24)

    def gradients(dtype: torch.dtype, forward: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        given = x.to(dtype).requires_grad_()
        module = linear.to(dtype)
        out = forward(given, module.weight, module.bias)
        assert ("_Linear" in out.grad_fn.name()) == (forward is own)
        grads = torch.autograd.grad(out, [given, module.weight, module.bias], grad.to(dtype))
        assert all(g.dtype == dtype for g in grads)
        return [out.detach().double(), *(g.double() for g in grads)]

    usual, own = torch.nn.functional.linear, layers._Linear.apply
    right = gradients(torch.float64, usual)
    torch.testing.assert_close(gradients(torch.float64, own), right, rtol=1e-12, atol=1e-12)
    errors = [(gradients(torch.bfloat16, forward)[-1] - right[-1]).norm() for forward in (own, usual)]
    assert errors[0] <= 1.1 * errors[1]
    for dtype in (torch.float32, torch.bfloat16):
        assert "_Linear" not in linear.to(dtype)(x.to(dtype).requires_grad_()).grad_fn.name()


def test_logits_of_attention_are_scaled_within_their_product() -> None:
    """As queries scaled before it give them, forward and backward, in double precision; and in bfloat16 no farther from
    the right ones."""
    q, k, v = torch.randn(3, 2, 4, 9, 16, generator=torch.Generator().manual_seed(0)).unbind(0)

    def computed(dtype: torch.dtype, *, within: bool) -> torch.Tensor:
        given = [x.to(dtype).requires_grad_() for x in (q, k, v)]
        scaled = given if within else [given[0] * 0.25, *given[1:]]
        out = layers.attend(*scaled, bias_BHNN=None, dropout=0.0, scale=0.25 if within else 1.0)
        return torch.stack([out, *torch.autograd.grad(out.square().sum(), given)]).double()

    right = computed(torch.float64, within=False)
    torch.testing.assert_close(computed(torch.float64, within=True), right, rtol=1e-12, atol=1e-12)
    own, usual = ((computed(torch.bfloat16, within=within) - right).norm() for within in (True, False))
    assert own <= 1.1 * usual


def test_images_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="built for"):
        build("ViT-nano/7")(torch.zeros(1, 1, 35, 35))


def test_conv_stem_has_the_tokens_of_the_patch_size() -> None:
    model = build("ViT-nano/4", stem="conv", conv_stem=((8, 3, 2), (12, 3, 1)))
    assert model.tokens(images(model)).shape == (3, 49, 64) and model.embed.proj.kernel_size == (2, 2)


# -- names, sizes and presets: everything that is known before torch is imported ---------------------------------------


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
    assert family.accepts("ViT-S/7") and "ViT-S/7" not in family.FAMILY.names
    assert all(family.accepts(name) for name in (*family.FAMILY.names, *PRESETS))
    assert parse("ViT-B/16") != parse("ViT-b/16")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"heads": 5}, "not divisible by 5 heads"),
        ({"pooling": "max"}, "not one of cls, mean"),
        ({"pooling": "tokens", "head": "mlp"}, "goes with head='linear'"),
        ({"position": "rotary"}, "not one of none"),
        ({"cls_token": False}, "needs the class token"),
        ({"width": 66, "heads": 3, "position": "sincos-2d"}, "divisible by 4"),
        ({"stem": "conv", "patch_size": 1}, "needs an even patch size"),
        ({"stem": "conv", "conv_stem": ((8, 3, 3),)}, "does not divide the patch size"),
        ({"dept": 3}, "unknown option dept"),
        ({"stem": "resnet"}, "go together"),
        ({"image_size": 8}, "Nearest legal image sizes: 16 px"),
        ({"image_size": (224, 230)}, r"width 230.*224 or 240.*1, 2, 5, 10, 23, 46, 115, 230"),
    ],
)
def test_illegal_options_are_explained(override: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        family.build("ViT-B/16", **{"image_size": 32, "channels": 3, "num_classes": 10, **override})


def test_head_dim_need_not_divide_the_width() -> None:
    config = config_for("ViT-Ti/16", image_size=32, channels=3, num_classes=0, heads=5, head_dim=24)
    assert config.attention_width == 120


# -- parameter counts: of the official checkpoints, of timm and torchvision, and by hand. On the meta device -----------


def count(name: str, **options: object) -> int:
    with torch.device("meta"):
        model = family.build(name, **{"image_size": 224, "channels": 3, "num_classes": 1000, **options})
    assert all(parameter.is_meta for parameter in model.parameters())
    return sum(parameter.numel() for parameter in model.parameters())


# Every width of B/32 halved: matrices of a block a quarter, vectors a half.
HALF_B = 12 * (4 * 384 * 384 + 2 * 384 * 1536 + 9 * 384 + 1536) + 3 * 32 * 32 * 384 + 384 + 384 + 50 * 384
MNIST = 50 * 16 + 2 * (4 * 16 * 17 + 16 * 64 * 2 + 64 + 16 + 4 * 16) + 2 * 16 + 17 * 10
WIDE = 3 * 32 * 32 * 1024 + 1024 + 2 * 1024 + 1025 * 1000
WIDE += 6 * (4 * (1024 * 1024 + 1024) + (1024 * 2048 + 2048) + (2048 * 1024 + 1024) + 4 * 1024)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [  # at 224 px with 1000 classes, where nothing else is said; in millions to three decimals or one, where not exact
        ("ViT-S/8", {}, 22.055),
        ("ViT-L/14", {}, 304.204),
        ("ViT-H/16", {}, 632.199),
        ("ViT-g/14", {}, 1012.6),
        ("ViT-G/14", {}, 1844.4),
        # The released "gap" model: no class token, no hidden layer in the head, one position per patch. Eight heads
        # instead of 12 and the norm's place change no count.
        ("ViT-B/16", {"pooling": "mean"}, 86_566_120),
        ("mean-norm-b16", {}, 86_566_120),
        ("ViT-B/16", {"num_classes": 0}, 86_567_656 - 769_000),
        ("ViT-B/16", {"num_classes": 0, "head": "mlp"}, 86_567_656 - 769_000 + 768 * 769),
        ("ViT-b/32", {"num_classes": 10}, HALF_B + 2 * 384 + 385 * 10),
        ("mnist-7562", {"image_size": 28, "channels": 1, "num_classes": 10}, MNIST),
        ("patch32-d1024", {"image_size": 256}, WIDE + 65 * 1024 + 1024),
        ("patch32-d1024", {"image_size": 256, "pooling": "mean"}, WIDE + 64 * 1024),
    ],
)
def test_counts_by_hand_and_as_published(name: str, options: dict, expected: float) -> None:
    """Those of the official checkpoints: tests/cost/test_flops.py; as torchvision counts: test_vit_peers.py."""
    counted = count(name, **options)
    assert counted == expected or round(counted / 1e6, len(str(expected).partition(".")[2])) == expected
    assert MNIST == 7_562


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
        count("ViT-H/14")
    assert made.largest < 1280 * 1280
    with Made() as made:
        torch.ones(7, device="cpu")
    assert made.largest == 7
