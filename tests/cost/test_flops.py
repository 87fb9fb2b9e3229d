"""Counts of whole models: closed forms, known values, and the traps that other counters fall into."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from baselines import published
from bench.core import registry
from bench.core.errors import UserError
from bench.cost.flops import ModelCost, count, count_forward
from vit.config import config_for

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
    counter = count_forward(model, torch.empty(1, 3, 64, 64, device="meta"))
    found = counter.by_module["dense"]
    assert {path: macs for path, macs in found.items() if path in expected} == expected
    assert all(path.endswith("attn") for path in set(found) - set(expected))
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


def test_every_attention_backend_counts_the_same() -> None:
    with sdpa_kernel(SDPBackend.MATH):
        assert count_forward(Attention(), torch.zeros(2, 16, 32)).total("dense") == MACS


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


def test_inference_mode_and_evaluation_lose_nothing() -> None:
    model = Attention().eval()
    with torch.inference_mode():
        assert count_forward(model, torch.zeros(2, 16, 32)).total("dense") == MACS


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
    assert small is not None and large is not None
    tokens = (785 / 197, 784 / 196)
    assert large / small == pytest.approx(tokens[0], rel=0.01)
    # Lower bound by hand: per block 2 norm inputs, 2 norm outputs, q, k, v, attention's result, MLP hidden twice.
    assert small > 12 * 197 * 192 * (2 + 2 + 3 + 1 + 2 * 4) * 4 * 0.9
    assert small < 12 * 197 * 192 * (2 + 2 + 3 + 1 + 2 * 4) * 4 * 1.6
