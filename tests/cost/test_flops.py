"""Counts of whole models and of single operations, against closed forms, known values and other counters."""

import itertools
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from baselines import published
from bench.commands import flops
from bench.core.errors import EXIT_FAILED, EXIT_OK, UserError
from bench.cost import crosscheck, shapes
from bench.cost.counter import FORMULAS, is_uncounted_contraction, tap_pairs
from bench.cost.flops import ModelCost, count, count_forward
from bench.cost.without_weights import built
from bench.study import registry
from vit.config import config_for

# -- counts of whole models: closed forms, known values, and the traps that other counters fall into -------------------


# Forward GMACs and forward+backward GMACs at 224 px with 1000 classes, as torch's FlopCounterMode gives them on the
# meta device for timm's models of the same names (all taps of convolutions).
KNOWN = {
    "ViT-Ti/16": (1.254, 3.732),
    "ViT-S/32": (1.143, 3.371),
    "ViT-S/16": (4.599, 13.739),
    "ViT-S/8": (22.406, 67.159),
    "ViT-B/32": (4.409, 13.112),
    "ViT-B/16": (17.564, 52.576),
    "ViT-B/8": (78.148, 234.33),
    "ViT-L/32": (15.378, 45.978),
    "ViT-L/16": (61.555, 184.51),
    "ViT-L/14": (81.013, 242.89),
    "ViT-H/14": (167.295, 501.69),
    "R+ViT-Ti/16": (0.434, 1.183),
    "R26+ViT-S/32": (3.464, 10.274),
    "R26+ViT-B/32": (6.711, 20.015),
    "R50+ViT-B/16": (21.535, 64.488),
    "R50+ViT-L/32": (19.413, 58.122),
    "R50x1": (4.089, 12.150),
    "R50x2": (16.117, 48.114),
    "R50x3": (36.082, 107.89),
    "R101x1": (7.801, 23.286),
    "R101x3": (69.492, 208.12),
    "R152x1": (11.514, 34.423),
    "R152x2": (45.814, 137.21),
    "R152x4": (182.777, 547.86),
    "R200x3": (134.347, 402.69),
}


def cost_of(name: str, **options: int) -> ModelCost:
    return count(name, **{"image_size": 224, "num_classes": 1000, "activations": False} | options)  # type: ignore


@pytest.mark.parametrize("name", KNOWN)
def test_known_counts(name: str) -> None:
    forward, both = KNOWN[name]
    cost = cost_of(name)
    assert cost.forward_macs["dense"] / 1e9 == pytest.approx(forward, abs=6e-4)
    assert (cost.forward_macs["dense"] + cost.backward_macs["dense"]) / 1e9 == pytest.approx(both, abs=6e-3)


@pytest.mark.parametrize(("name", "size", "gmacs"), [("ViT-B/16", 384, 55.48), ("ViT-L/16", 512, 361.99)])
def test_known_counts_at_other_sizes(name: str, size: int, gmacs: float) -> None:
    assert cost_of(name, image_size=size).forward_macs["dense"] / 1e9 == pytest.approx(gmacs, abs=6e-3)


@pytest.mark.parametrize("row", published.table("parameter_counts"), ids=lambda row: row["name"])
def test_parameter_counts_of_official_checkpoints(row: dict[str, str]) -> None:
    name = row["name"].replace("_", "/")
    if name.endswith("-gap-norep"):
        pytest.skip("a variant by options; counted with the models")
    assert cost_of(name).params == int(row["params"])


@pytest.mark.parametrize("name", ["ViT-Ti/16", "ViT-B/16", "ViT-B/32", "ViT-H/14", "ViT-nano/7"])
@pytest.mark.parametrize("size", [224, 448])
def test_closed_form_of_a_vit(name: str, size: int) -> None:
    """N tokens: patches, then per block q, k, v, out (4 N D^2), two attention products (2 N^2 D), MLP (2 N D M)."""
    c = config_for(name, image_size=size, channels=3, num_classes=1000)
    rows, columns = c.grid
    n, d, m, patch = c.num_tokens, c.width, c.mlp_width, c.patch_size[0]  # type: ignore[index]
    embed = rows * columns * patch * patch * 3 * d
    expected = embed + c.depth * (4 * n * d * d + 2 * n * n * d + 2 * n * d * m) + d * 1000
    cost = cost_of(name, image_size=size)
    assert cost.forward_macs["dense"] == cost.forward_macs["paper"] == expected
    # Backward: twice the forward, but the image wants no gradient.
    assert cost.backward_macs["dense"] == 2 * expected - embed


def test_by_module_adds_up_and_names_the_parts() -> None:
    cost = cost_of("ViT-B/16")
    modules = cost.by_module["dense"]
    assert sum(modules.values()) == cost.forward_macs["dense"]
    assert modules["head"] == 768 * 1000
    assert modules["blocks.0.attn"] == 2 * 197 * 197 * 768  # the products that no submodule owns
    assert modules["embed.proj"] == 196 * 768 * 768


@pytest.mark.parametrize("name", ["R50x1", "R26+ViT-S/32"])
def test_every_layer_is_billed_to_itself(name: str) -> None:
    """Each layer's own bill is its kernel times its outputs, also after composite operations."""
    with torch.device("meta"):
        model = registry.build_model(name, image_size=64, channels=3, num_classes=10).eval()
    expected: dict[str, int] = {}

    def bill(path: str, layer: nn.Module, output: torch.Tensor) -> None:
        expected[path] = output.numel() * layer.weight[0].numel()  # type: ignore[index,operator]

    for path, layer in model.named_modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(lambda m, _, output, path=path: bill(path, m, output))
    billed = count_forward(model, torch.empty(1, 3, 64, 64, device="meta")).by_module["dense"]
    assert {path: macs for path, macs in billed.items() if path in expected} == expected
    assert all(path.endswith("attn") for path in set(billed) - set(expected))
    assert not any(module._forward_pre_hooks for module in model.modules())  # nothing is left behind


def test_body_leaves_out_head_and_embeddings_only() -> None:
    plain, hybrid, resnet = cost_of("ViT-B/16"), cost_of("R50+ViT-B/16"), cost_of("R50x1")
    d = 768
    assert plain.params - plain.params_body == (d * 1000 + 1000) + (16 * 16 * 3 * d + d) + d + 197 * d
    assert hybrid.params_body > plain.params_body  # the backbone is body
    assert resnet.params - resnet.params_body == 2048 * 1000 + 1000


def test_counts_are_exact_integers_beyond_64_bits() -> None:
    cost = cost_of("ViT-G/14", image_size=1792)
    assert all(isinstance(v, int) for v in (*cost.forward_macs.values(), *cost.train_flops_per_image.values()))
    assert cost.train_flops_per_image["paper"] * 10**9 > 2**63


def test_no_weights_are_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[nn.Module] = []
    build = registry.build_model

    def watched(*args: Any, **options: Any) -> nn.Module:
        seen.append(build(*args, **options))
        return seen[-1]

    monkeypatch.setattr(registry, "build_model", watched)
    count.cache_clear()
    cost_of("ViT-H/14")
    assert seen and all(parameter.is_meta for parameter in seen[0].parameters())


def test_pixels_cost_nothing() -> None:
    cost = count("pixels", image_size=28, channels=1, num_classes=10)
    assert (cost.params, cost.forward_macs["dense"], cost.num_features) == (0, 0, 784)


def test_a_model_without_the_contracts_members_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "build_model", lambda *_, **__: nn.Linear(1, 1, device="meta"))
    with pytest.raises(UserError, match=r"'ViT-pico/14' of .*family\.py has no num_features, head, features"):
        count("ViT-pico/14", image_size=28, channels=1, num_classes=12_345)


# -- traps -----------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Two linear maps around fused attention."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 32)

    def forward(self, x_BND: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x_BND).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


MACS = 2 * (16 * 32 * 96 + 2 * 4 * 16 * 16 * 8 + 16 * 32 * 32)
INPUT_GRADIENT = 2 * 16 * 32 * 96


def test_fused_attention_on_cpu_and_meta_alike() -> None:
    for device in ("cpu", "meta", *(["cuda"] if torch.cuda.is_available() else [])):
        counter = count_forward(Attention().to(device), torch.zeros(2, 16, 32, device=device))
        assert counter.total("dense") == MACS, device
        assert counter.backward["dense"] == 2 * MACS - INPUT_GRADIENT, device
    cpu = count_forward(Attention(), torch.zeros(2, 16, 32))
    assert "_scaled_dot_product_flash_attention_for_cpu" in cpu.by_operation["dense"]  # it was the fused kernel


@pytest.mark.parametrize(
    "within", [lambda: sdpa_kernel(SDPBackend.MATH), torch.inference_mode], ids=["math", "inference"]
)
def test_no_mode_of_attention_counts_otherwise(within: Any) -> None:
    with within():
        assert count_forward(Attention().eval(), torch.zeros(2, 16, 32)).total("dense") == MACS


@pytest.mark.machine
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("backend", ["FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"])
def test_every_cuda_backend_counts_the_same(backend: str) -> None:
    model = Attention().to("cuda", torch.bfloat16)
    try:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            counter = count_forward(model, torch.zeros(2, 16, 32, device="cuda", dtype=torch.bfloat16))
    except RuntimeError as error:
        pytest.skip(f"this GPU has no such kernel: {error}")
    assert counter.total("dense") == MACS


def test_torchs_own_encoder_and_its_fast_path() -> None:
    """nn.MultiheadAttention has a fused path without gradients; both must give 4 N D^2 + 2 N^2 D + 2 N D M."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    expected = 2 * (4 * 16 * 32 * 32 + 2 * 16 * 16 * 32 + 2 * 16 * 32 * 64)
    assert count_forward(layer, torch.zeros(2, 16, 32)).total("dense") == expected
    from bench.cost.counter import MacCounter

    for model, fused in ((layer, "_native_multi_head_attention"), (None, "_transformer_encoder_layer_fwd")):
        # Hooks on the modules keep torch from fusing the whole layer; without them it does.
        with torch.no_grad(), MacCounter(model) as counter:
            layer(torch.zeros(2, 16, 32))
        assert fused in counter.by_operation["dense"]
        assert counter.total("dense") == expected


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_compiled_module_counts_the_same(backend: str) -> None:
    if backend == "inductor" and not (shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("no C++ compiler")
    torch._dynamo.reset()
    compiled: Any = torch.compile(Attention(), backend=backend)
    images = torch.zeros(2, 16, 32)
    compiled(images)  # compiled before it is counted
    counter = count_forward(compiled, images)
    assert counter.total("dense") == MACS
    assert counter.by_module["dense"]["qkv"] == 2 * 16 * 32 * 96  # names as if it were not compiled
    in_place = Attention()
    in_place.compile(backend=backend)
    in_place(images)
    assert count_forward(in_place, images).total("dense") == MACS


def test_recomputation_is_not_the_models_work() -> None:
    model = Attention()

    def run(x: torch.Tensor) -> None:
        from torch.utils.checkpoint import checkpoint

        checkpoint(model, x.requires_grad_(), use_reentrant=False)

    assert count_forward(model, torch.zeros(2, 16, 32), run=run).total("dense") == MACS


def test_activations_without_the_attention_matrix() -> None:
    """Twice the tokens keep twice the memory, where an N x N matrix would quadruple its part."""
    small = count("ViT-Ti/16", image_size=224, num_classes=10).activation_bytes
    large = count("ViT-Ti/16", image_size=448, num_classes=10).activation_bytes
    tokens = (785 / 197, 784 / 196)
    assert large / small == pytest.approx(tokens[0], rel=0.01)
    # Lower bound by hand: per block 2 norm inputs, 2 norm outputs, q, k, v, attention's result, MLP hidden twice.
    assert small > 12 * 197 * 192 * (2 + 2 + 3 + 1 + 2 * 4) * 4 * 0.9
    assert small < 12 * 197 * 192 * (2 + 2 + 3 + 1 + 2 * 4) * 4 * 1.6


# -- the formulas against counting by brute force ----------------------------------------------------------------------


AXES = list(itertools.product((1, 5, 8, 13), (1, 2, 3, 7), (1, 2, 3), (0, 1, 3), (1, 2)))


@pytest.mark.parametrize("size", (1, 5, 8, 13))
def test_taps_inside_equal_a_convolution_of_ones(size: int) -> None:
    """Convolving ones with ones, the result at each position is the number of taps that read the image."""
    for _, kernel, stride, padding, dilation in (axis for axis in AXES if axis[0] == size):
        if size + 2 * padding < dilation * (kernel - 1) + 1:
            continue
        ones = F.conv1d(torch.ones(1, 1, size), torch.ones(1, 1, kernel), None, stride, padding, dilation)
        outputs = ones.shape[-1]
        pairs = tap_pairs(size=size, outputs=outputs, kernel=kernel, stride=stride, dilation=dilation, before=padding)
        assert pairs == int(ones.sum()), (size, kernel, stride, padding, dilation)


def by_brute_force(conv: nn.Module, pads: tuple[int, ...], image: torch.Tensor) -> int:
    """MACs without padded taps: with weights and image one and no bias, outputs sum to the products of ones."""
    nn.init.ones_(conv.weight)  # type: ignore[arg-type]
    return int(conv(F.pad(torch.ones_like(image, dtype=torch.float32), pads)).double().sum())


@pytest.mark.parametrize("groups", (1, 2))
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "pads"),
    [
        (3, 1, 1, 1, (0, 0, 0, 0)),
        (7, 2, 3, 1, (0, 0, 0, 0)),
        (7, 2, 0, 1, (2, 3, 2, 3)),  # TensorFlow's SAME: the padding is an operation of its own, and lopsided
        ((3, 1), (2, 1), (1, 0), (1, 1), (0, 0, 0, 0)),
        (3, 2, 2, 2, (0, 1, 0, 0)),
        (4, 4, 0, 1, (0, 0, 0, 0)),
    ],
)
def test_convolution_without_padded_taps(kernel, stride, padding, dilation, pads, groups: int) -> None:
    conv = nn.Conv2d(4, 6, kernel, stride, padding, dilation, groups=groups, bias=False)
    image = torch.ones(2, 4, 11, 9)
    counter = count_forward(conv, image, run=lambda x: conv(F.pad(x, pads)))
    dense = conv(F.pad(image, pads)).numel() * math.prod(conv.weight.shape[1:])
    assert counter.total("dense") == dense
    assert counter.total("paper") == by_brute_force(conv, pads, image)


def test_transposed_convolution_leaves_out_cropped_taps() -> None:
    conv = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2, bias=False)
    image = torch.ones(2, 4, 5, 7)
    counter = count_forward(conv, image)
    assert counter.total("dense") == 2 * 4 * 3 * 9 * 5 * 7
    assert counter.total("paper") == by_brute_force(conv, (0, 0, 0, 0), image)


def test_padding_of_one_convolution_does_not_leak_into_another() -> None:
    conv = nn.Conv2d(1, 1, 3, bias=False)

    def run(image: torch.Tensor) -> torch.Tensor:
        padded = F.pad(image, (1, 1, 1, 1))
        conv(padded)
        return conv(padded * 1.0)  # no longer known to be padding

    counter = count_forward(conv, torch.ones(1, 1, 4, 4), run=run)
    assert counter.total("dense") == 2 * 16 * 9
    assert counter.total("paper") == 100 + 16 * 9  # 4 corners x 4 + 8 edges x 6 + 4 inside x 9 = 100


def test_matrix_products() -> None:
    a, b, v = torch.ones(3, 4), torch.ones(4, 5), torch.ones(4)
    c = torch.ones(2, 3, 4)

    def run(_: torch.Tensor) -> None:
        torch.addmm(torch.ones(3, 5), a, b)  # 60
        torch.mv(a, v)  # 12
        torch.dot(v, v)  # 4
        torch.baddbmm(torch.ones(2, 3, 5), c, b.expand(2, 4, 5))  # 120
        torch.einsum("bij,jk->bik", c, b)  # 120
        F.linear(c, b.t())  # 120

    assert count_forward(nn.Identity(), a, run=run).total("dense") == 60 + 12 + 4 + 3 * 120


def test_an_unknown_contraction_is_refused_not_missed() -> None:
    lstm = nn.LSTM(4, 4)
    with pytest.raises(NotImplementedError, match=r"bench/cost/counter\.py"):
        count_forward(lstm, torch.ones(3, 2, 4))


def test_a_model_with_an_unknown_contraction_is_refused_for_that_reason(tmp_path: Path) -> None:
    """Not for being unable to run on the meta device: `NotImplementedError` is a `RuntimeError` too."""
    net = tmp_path / "net.py"
    net.write_text(
        "from torch import nn\n\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, *, num_classes, channels, image_size):\n"
        "        super().__init__()\n"
        "        self.body, self.head = nn.Bilinear(image_size, image_size, 4), nn.Linear(4, num_classes)\n\n"
        "    def forward(self, x_BCHW):\n"
        "        return self.head(self.body(x_BCHW[:, 0, 0], x_BCHW[:, 0, 1]))\n"
    )
    with pytest.raises(UserError, match=r"cannot be counted: No formula for aten::_trilinear") as refused:
        count(f"{net}:Net", image_size=8, num_classes=2)
    assert "meta device" not in str(refused.value)


def test_what_looks_like_a_contraction() -> None:
    for name in ("aten::_flash_attention_forward", "aten::mkldnn_linear", "aten::_sparse_mm", "aten::_trilinear"):
        assert name in FORMULAS or is_uncounted_contraction(name), name
    for name in ("aten::add", "aten::native_layer_norm", "aten::_fused_sdp_choice", "aten::comma", "aten::gather"):
        assert not is_uncounted_contraction(name), name


# -- what others' formulas and counters got wrong in public (docs/flops.md), counted by hand ---------------------------


class Of(nn.Module):
    """Named parts, and what is done with them."""

    def __init__(self, run: Any, **parts: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *inputs: Tensor) -> Any:
        return self.run(self, *inputs)


def tied(words: nn.Embedding) -> nn.Linear:
    """A classifier with the weights of a look-up."""
    head = nn.Linear(words.embedding_dim, words.num_embeddings, bias=False)
    head.weight = words.weight
    return head


def attend(x_ND: Tensor, keys_NKD: Tensor) -> Tensor:
    """Every query to keys of its own, which are its values too."""
    return F.scaled_dot_product_attention(x_ND[:, None], keys_NKD, keys_NKD)[:, 0]


ENCODER_AND_TEXT = Of(  # image patches go through an encoder of their own, then with text tokens through a decoder
    lambda m, patches, text: m.decoder(torch.cat([m.encoder(patches), text], 1)),
    encoder=nn.Linear(12, 8),
    decoder=nn.Linear(8, 8),
)
EXPERTS = Of(  # each token visits the best of 4
    lambda m, x: [e(x[best == n]) for best in [m.router(x).argmax(-1)] for n, e in enumerate(m.experts)],
    router=nn.Linear(8, 4),
    experts=nn.ModuleList(nn.Linear(8, 16) for _ in range(4)),
)
UNTIED = Of(lambda m, x: m.head(m.words(x)), words=nn.Embedding(50, 8), head=nn.Linear(8, 50, bias=False))
WORDS = nn.Embedding(50, 8)
TIED = Of(lambda m, x: m.head(m.words(x)), words=WORDS, head=tied(WORDS))
WINDOW = Of(  # two blocks of 4 tokens attend to the 4 before each: sliced, not masked
    lambda _, x: [F.scaled_dot_product_attention(*(x[..., a : a + 4, :] for a in (s, s - 4, s - 4))) for s in (8, 12)]
)
ATTENTION = Of(lambda _, x: (x @ x.transpose(-2, -1)).softmax(-1) @ x)
INDEXED = Of(  # scores of all 16 keys choose 4 for each of 16 queries; then a head for this token and for the next
    lambda m, x: [m.head(y) for y in 2 * [attend(x, x[(x @ x.T).topk(4).indices])]], head=nn.Linear(8, 50, bias=False)
)
TWICE = Of(lambda m, x: m.layer(m.layer(x)), layer=nn.Linear(8, 8))
FROZEN = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).requires_grad_(False).eval()
ENCODER = 4 * 16 * 32 * 32 + 2 * 16 * 16 * 32 + 2 * 16 * 32 * 64
PUBLIC_MISTAKES: list[tuple[str, nn.Module, tuple[Tensor, ...], int]] = [
    ("an encoder per text token", ENCODER_AND_TEXT, (torch.ones(1, 4, 12), torch.ones(1, 3, 8)), 4 * 12 * 8 + 7 * 64),
    ("experts not visited", EXPERTS, (torch.randn(10, 8),), 10 * 8 * 4 + 10 * 8 * 16),
    ("a look-up; untied", UNTIED, (torch.arange(5),), 5 * 8 * 50),
    ("a look-up; tied", TIED, (torch.arange(5),), 5 * 8 * 50),
    ("a window", WINDOW, (torch.ones(1, 2, 16, 8),), 2 * 2 * (2 * 4 * 4 * 8)),
    ("an indexer; a head run again", INDEXED, (torch.randn(16, 8),), 16 * 16 * 8 + 2 * 16 * 4 * 8 + 2 * 16 * 8 * 50),
    ("the second product", ATTENTION, (torch.ones(2, 6, 8),), 2 * 2 * 6 * 6 * 8),
    ("fused on a CPU", Attention(), (torch.ones(2, 16, 32),), MACS),
    (
        "frozen, fused",
        FROZEN,
        (torch.ones(1, 16, 32),),
        ENCODER,
    ),
    ("used twice", TWICE, (torch.ones(3, 8),), 2 * 3 * 64),
]


@pytest.mark.parametrize(
    "module, inputs, expected", [row[1:] for row in PUBLIC_MISTAKES], ids=[r[0] for r in PUBLIC_MISTAKES]
)
def test_what_was_miscounted_in_public(module: nn.Module, inputs: tuple[Tensor, ...], expected: int) -> None:
    cost = flops.count(module, *inputs)
    assert cost.forward_macs == {"dense": expected, "paper": expected}
    assert sum(cost.by_module["dense"].values()) == expected
    assert cost.params == sum(p.numel() for p in module.parameters())  # a tied one once
    if all(not p.requires_grad for p in module.parameters()):
        assert cost.backward_macs["dense"] == 0


# -- every kind of model against two independent counters, and what `vit-bench flops --check` says of a difference -----


# Others of test_flops.KNOWN are compared with torch's counter there; of fvcore they are the same operations.
ALSO = {"ViT-Ti/16", "ViT-B/16", "R50x1", "R+ViT-Ti/16", "R26+ViT-S/32"}
NAMES = tuple(name for name in registry.model_names() if name != "pixels" and (name in ALSO or name not in KNOWN))
SIZES = (56, 64, 96, 112, 128)  # the smallest that a model takes: the method is what is checked
LARGE = re.compile(r"ViT-[BLHgG]/")  # of many equal blocks, two


def on_meta(name: str, **options: int) -> tuple[nn.Module, int]:
    """The model without weights, and an image size it takes."""
    for size in SIZES:
        try:
            sizes = {"image_size": size, "channels": 3, "num_classes": 10}
            return built(name, **sizes, **options).eval(), size
        except UserError:
            continue
    raise AssertionError(f"{name} takes none of {SIZES} px")


@pytest.mark.parametrize("name", NAMES)
def test_torch_and_fvcore_count_the_same(name: str) -> None:
    model, size = on_meta(name, **({"depth": 2} if LARGE.search(name) else {}))
    images = torch.empty(1, 3, size, size, device="meta")
    counted = count_forward(model, images)
    logits = model(images)
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    assert 2 * counted.backward["dense"] == backward.get_total_flops()
    assert counted.total("paper") <= counted.total("dense")
    for module in model.modules():
        if hasattr(module, "standardised_weight"):  # elementwise work on every weight, which is not counted anyway
            module.standardised_weight = lambda _dtype, module=module: module.weight  # type: ignore[assignment]
    three = crosscheck.compare(model, images)
    assert sum(three.ours.values()) == counted.total("dense")
    assert three.ours == three.torch == three.fvcore and not three.missed
    assert sum(three.beyond.values()) + sum(three.fvcore.values()) == three.by_module[""]
    assert three.params[""] == sum(parameter.numel() for parameter in model.parameters())


ODD = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.fc = nn.Linear(28, num_classes)

    def forward(self, x):
        {line}
        return self.fc(x.mean((1, 2)))
"""


@pytest.mark.parametrize(
    ("line", "agrees", "missed"),
    [
        ("x = x @ x", True, []),
        ("x = torch.baddbmm(x[:, 0], x[:, 0], x[:, 0])[:, None]", False, ["aten::baddbmm"]),
        ("assert not torch.jit.is_tracing(), 'only eagerly'", None, []),
    ],
)
def test_the_command_says_which_counters_agree_and_why_not(line, agrees, missed, tmp_path: Path, capsys) -> None:
    (tmp_path / "odd.py").write_text(ODD.format(line=line))
    asked = [f"{tmp_path}/odd.py:Net", "--image-size", "28", "--channels", "1", "--classes", "10", "--check"]
    assert flops.main([*asked, "--json"]) == (EXIT_FAILED if agrees is False else EXIT_OK)
    check = json.loads(capsys.readouterr().out)["check"]
    assert check["agree"] == {"torch": True, "fvcore": agrees}
    assert check["missed_by_fvcore"] == missed and ("only eagerly" in check["why_not"]) == (agrees is None)
    flops.main(asked)
    assert all(name in capsys.readouterr().out for name in missed)


# -- results of common operations, found by rule, against torch's own functions for the meta device --------------------


aten: Any = torch.ops.aten
OWN = ("ViT-B/16", "ViT-pico/7", "R8x0.125-s2", "R50x1", "R5+ViT-pico/14", "R50+ViT-B/16", "ResNet-20", "CCT-2/3x2")


def meta(*shape: int, dtype: torch.dtype = torch.float32, order: tuple[int, ...] | None = None) -> Tensor:
    """A tensor of a shape; `order`: its axes from the slowest to the fastest in memory."""
    if order is None:
        return torch.empty(shape, dtype=dtype, device="meta")
    there = torch.empty([shape[axis] for axis in order], dtype=dtype, device="meta")
    return there.permute([order.index(axis) for axis in range(len(shape))])


IMAGES = meta(2, 8, 9, 7)
NHWC = meta(2, 8, 9, 7, order=(0, 2, 3, 1))
GREY = meta(2, 1, 9, 7, order=(0, 2, 3, 1))
TURNED = meta(2, 6, 8, order=(0, 2, 1))
CASES: list[tuple[Any, ...]] = [
    *((aten.add.Tensor, x, y) for x, y in itertools.product((TURNED, meta(2, 6, 8), meta(6, 8), 2.0), repeat=2)),
    (aten.add.Tensor, TURNED, meta(8)),
    (aten.add.Tensor, meta(2, 1, 8), meta(1, 6, 8)),
    (aten.mul.Tensor, meta(2, 6, 8, order=(2, 0, 1)), meta(2, 6, 8)),
    (aten.mul.Tensor, meta(2, 6, 8)[:, ::2], meta(2, 3, 8)),
    (aten.mul.Tensor, meta(2, 6, 8), meta(dtype=torch.float64)),
    (aten.mul.Tensor, meta(2, 6, 8).bfloat16(), meta(2, 6, 8)),
    (aten.add.Tensor, meta(3, dtype=torch.int64), 0.5),
    (aten.add.Tensor, meta(1, 1, 8).expand(2, 6, 8), meta(2, 6, 8)),
    (aten.sub.Tensor, meta(4, 5), meta(4, 1)),
    (aten.div.Tensor, meta(4, 5), meta(4, 1)),
    (aten.div.Tensor, meta(4, 5, dtype=torch.int64), 2),
    (aten.mul.Scalar, TURNED, 0.5),
    (aten.sqrt.default, meta(4, 1)),
    (aten.gelu.default, TURNED),
    (aten.mm.default, meta(3, 4), meta(4, 5)),
    (aten.mm.default, meta(3, 4), meta(5, 4).t()),
    (aten.bmm.default, meta(2, 3, 4), meta(2, 4, 5, order=(0, 2, 1))),
    (aten.addmm.default, meta(5), meta(3, 4), meta(5, 4).t()),
    (aten.cat.default, [meta(2, 1, 8), TURNED], 1),
    (aten.cat.default, [meta(2, 8), meta(3, 8)]),
    (aten.cat.default, [IMAGES, NHWC], -1),
    (aten.cat.default, [NHWC, NHWC], 1),
    (aten.cat.default, [meta(0), meta(2, 8)]),
    *(
        (aten.convolution.default, x, meta(16, 8 // groups, 3, 3), bias, [step, 1], [pad, 1], [1, gap], *more, groups)
        for x, bias, step, pad, gap, groups in itertools.product(
            (IMAGES, NHWC, IMAGES[..., ::2, ::2]), (None, meta(16)), (1, 2), (0, 1), (1, 2), (1, 4)
        )
        for more in [(False, [0, 0])]
    ),
    (aten.convolution.default, IMAGES, meta(8, 4, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1),
    (aten.convolution.default, meta(2, 8, 9), meta(4, 8, 3), None, [2], [1], [1], False, [0], 1),
    (aten.convolution.default, GREY, meta(4, 1, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    (aten.native_layer_norm.default, meta(2, 6, 8), [8], meta(8), meta(8), 1e-6),
    (aten.native_layer_norm.default, TURNED, [8], meta(8), meta(8), 1e-6),
    (aten.native_layer_norm.default, meta(2, 6, 8), [6, 8], None, None, 1e-6),
    (aten.native_layer_norm.default, meta(2, 8).bfloat16(), [8], meta(8).bfloat16(), meta(8).bfloat16(), 1e-6),
    (aten.native_group_norm.default, IMAGES, meta(8), meta(8), 2, 8, 63, 4, 1e-6),
    (aten.native_group_norm.default, NHWC, meta(8), meta(8), 2, 8, 63, 4, 1e-6),
    (aten.native_batch_norm.default, IMAGES, meta(8), meta(8), meta(8), meta(8), True, 0.1, 1e-5),
    (aten.native_batch_norm.default, IMAGES, meta(8), meta(8), meta(8), meta(8), False, 0.1, 1e-5),
    (aten.native_batch_norm.default, NHWC, meta(8), meta(8), meta(8), meta(8), True, 0.1, 1e-5),
    (aten.mean.dim, IMAGES, [-1, -2], True),
    (aten.mean.dim, NHWC, [2, 3]),
    (aten.mean.dim, TURNED, [1]),
    (aten.mean.dim, TURNED, [0]),
    (aten.mean.dim, meta(1, 6, 8, order=(0, 2, 1)), [1]),
    (aten.mean.dim, meta(2, 6), []),
    (aten.max_pool2d_with_indices.default, IMAGES, [3, 3], [2, 2]),
    (aten.max_pool2d_with_indices.default, NHWC, [3, 3], [2, 2]),
    (aten.max_pool2d_with_indices.default, IMAGES, [3, 3], [2, 2], [1, 1]),
    (aten._softmax.default, meta(2, 6, 8), -1, False),
    (aten._safe_softmax.default, meta(2, 6, 6), -1),
    (aten._safe_softmax.default, TURNED, -1),
]
WRONG: list[tuple[Any, ...]] = [
    (aten.add.Tensor, meta(2, 3), meta(2, 4)),
    (aten.mm.default, meta(3, 4), meta(5, 4)),
    (aten.bmm.default, meta(2, 3, 4), meta(3, 4, 5)),
    (aten.addmm.default, meta(6), meta(3, 4), meta(4, 5)),
    (aten.cat.default, [meta(2, 8), meta(3, 7)]),
    (aten.convolution.default, IMAGES, meta(4, 3, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    (aten.convolution.default, IMAGES, meta(4, 8, 11, 11), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    (aten.native_layer_norm.default, meta(2, 8), [7], meta(7), meta(7), 1e-6),
    (aten.native_group_norm.default, IMAGES, meta(8), meta(8), 2, 8, 63, 3, 1e-6),
    (aten.native_batch_norm.default, IMAGES, meta(7), meta(7), meta(7), meta(7), True, 0.1, 1e-5),
    (aten.mean.dim, meta(2, 8), [2]),
    (aten.max_pool2d_with_indices.default, IMAGES, [3, 3], [2, 2], [2, 2]),
    (aten.max_pool2d_with_indices.default, IMAGES, [11, 11], [2, 2]),
]


def shown(case: tuple[Any, ...]) -> str:
    return case[0].name().removeprefix("aten::")


def layout(result: Any) -> list[tuple[Any, ...]]:
    """Properties of each tensor that another operation, or a count of bytes, can tell."""
    return [
        (
            t.shape,
            [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1],
            t.dtype,
            t.device.type,
            t.is_contiguous(),
        )
        for t in tree_leaves(result)
    ]


@pytest.mark.parametrize("case", CASES, ids=shown)
def test_a_result_has_the_shape_and_the_layout_that_torch_gives_it(case: tuple[Any, ...]) -> None:
    operation, *args = case
    with shapes.KnownShapes():
        result = operation(*args)
    assert layout(result) == layout(operation(*args))


@pytest.mark.parametrize("dim, keepdim", [((1,), True), ((1,), False), ((0,), True), (None, False)])
def test_variances_too(dim: tuple[int, ...] | None, keepdim: bool) -> None:
    def statistics() -> Any:
        return aten.var_mean.correction(meta(16, 72), dim, correction=0, keepdim=keepdim)

    with shapes.KnownShapes():
        result = statistics()
    assert layout(result) == layout(statistics())


def test_every_rule_finds_a_result_of_these() -> None:
    """Or it would be torch that is compared with itself."""
    used = {operation for operation, *args in CASES if shapes.RULES[operation](*args) is not None}
    assert used | {aten.var_mean.correction} == set(shapes.RULES)
    assert shapes.RULES[aten.var_mean.correction](meta(16, 72), (1,), keepdim=True) is not None


@pytest.mark.parametrize("case", WRONG, ids=shown)
def test_what_torch_refuses_is_refused(case: tuple[Any, ...]) -> None:
    operation, *args = case
    for rules in (False, True):
        with pytest.raises((RuntimeError, IndexError, ValueError)), shapes.KnownShapes() if rules else torch.no_grad():
            operation(*args)


def test_tensors_with_values_are_computed_by_torch() -> None:
    x = torch.arange(6.0).view(2, 3)
    with shapes.KnownShapes():
        assert torch.equal(x + x, 2 * x) and (x @ x.t()).tolist() == [[5.0, 14.0], [14.0, 50.0]]


@pytest.mark.parametrize("name", sorted({*OWN, *KNOWN}))
def test_a_model_costs_what_it_costs_without_rules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 28 if "pico" in name or "-s2" in name else 224
    costs = []
    for rules in (shapes.RULES, {}):
        monkeypatch.setattr(shapes, "RULES", rules)
        costs.append(count.__wrapped__(name, image_size=size, channels=3, num_classes=10))
    assert costs[0] == costs[1]


@pytest.mark.gate
@pytest.mark.parametrize("name", OWN)
def test_counting_our_own_models_loads_no_other_library(name: str, project: Path) -> None:
    """Neither timm nor torchvision, which nothing of these models is made of, nor torch's compiler and SymPy: together
    they take longer than torch itself."""
    code = f"""
import sys
from bench.commands.flops import main
assert main([{name!r}]) == 0
print(sorted({{"timm", "torchvision", "torch._dynamo", "sympy"}} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=project)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
