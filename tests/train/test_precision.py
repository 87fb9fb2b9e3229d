"""The precision policy: where bfloat16 is used, and that what it trains are the float32 weights."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bench.core.errors import UserError
from bench.study import registry
from bench.study.cell import Recipe
from bench.train import precision
from bench.train.precision import Working
from bench.train.step import Step
from bench.train.update import make_optimizer

CASES = {
    "ViT-nano/7": {},
    "R5+ViT-pico/14": {},
    "R8x0.125-s2": {},
    "ViT-pico/7": {"stem": "conv", "conv_stem": ((8, 3, 1),)},  # batch normalisation
}


def made(name):
    torch.manual_seed(0)
    model = registry.build_model(name, image_size=28, channels=1, num_classes=10, **CASES.get(name, {})).train()
    with torch.no_grad():
        for parameter in model.parameters():  # layers that start at zero pass no gradient on
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


def batch(size=16):
    generator = torch.Generator().manual_seed(1)
    return torch.rand((size, 1, 28, 28), generator=generator) * 2 - 1, torch.arange(size) % 10


def gradient(model, dtype, parts=1):
    """The gradient that a step would see, as one vector."""
    working = Working(model, dtype)
    working.refresh()
    for x_bCHW, labels_b in zip(*(tensor.chunk(parts) for tensor in batch()), strict=True):
        (F.cross_entropy(working(x_bCHW).float(), labels_b) / parts).backward()
        working.collect()
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("name", CASES)
def test_gradients_in_bfloat16_are_those_in_float32_up_to_its_rounding(name):
    model = made(name)
    wanted, rounded = (gradient(copy.deepcopy(model), dtype) for dtype in ("float32", "bfloat16"))
    assert (rounded - wanted).norm() < 0.1 * wanted.norm()
    assert not torch.equal(rounded, wanted)


def test_gradients_of_micro_batches_add_up_in_float32():
    model = made("ViT-nano/7")
    whole, parts = gradient(copy.deepcopy(model), "bfloat16"), gradient(copy.deepcopy(model), "bfloat16", parts=4)
    assert (whole - parts).norm() < 0.02 * whole.norm()


def test_what_must_stay_float32_is_shared_with_the_copy_and_the_rest_is_not():
    for name in ("ViT-pico/7", "R8x0.125-s2"):
        model = made(name)
        network = Working(model, "bfloat16").network
        for module, twin in zip(model.modules(), network.modules(), strict=True):
            kept = isinstance(module, nn.BatchNorm2d) or getattr(module, "standardises_weight", False)
            for weight, copied in zip(module.parameters(False), twin.parameters(False), strict=True):
                assert (weight is copied) == kept
                assert copied.dtype == (torch.float32 if kept else torch.bfloat16)
        assert all(a is b for a, b in zip(model.buffers(), network.buffers(), strict=True))


def test_updates_smaller_than_a_bfloat16_step_add_up():
    model = made("ViT-nano/7")
    recipe = Recipe(dtype="bfloat16", batch=16)
    step = Step(model=model, recipe=recipe, device="cpu")
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    losses = [float(step(*batch(), lr=2e-5, seed=0)) for _ in range(20)]
    assert losses[-1] < losses[0]
    for name, p in model.named_parameters():
        assert p.dtype == torch.float32
        assert not torch.equal(p, before[name])


def test_a_step_in_float32_is_the_model_itself():
    model = made("ViT-nano/7")
    assert Working(model, "float32").network is model


def test_the_copy_follows_the_model_into_training_mode():
    model = made("ViT-nano/7").eval()
    working = Working(model, "bfloat16")
    model.train()
    working.refresh()
    assert all(module.training for module in working.network.modules())


def test_auto_on_a_cpu_is_bfloat16_only_where_it_pays(monkeypatch):
    with torch.device("meta"):
        sizes = {"image_size": 28, "channels": 1, "num_classes": 10}
        wide = [registry.build_model(name, **sizes) for name in ("ViT-Ti/4", "R26x1-s2")]
        narrow = registry.build_model("ViT-micro/14", **sizes)
        convolutional = registry.build_model("R11x0.25-s2", **sizes)
    for units, expected in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(precision, "multiplies_bfloat16", lambda units=units: units)
        assert [precision.resolve("auto", "cpu", model) for model in wide] == [expected] * 2
        assert precision.resolve("auto", "cpu", narrow) == "float32"
        assert precision.resolve("auto", "cpu", convolutional) == "float32"
        assert precision.resolve("auto", "cpu") == "float32"
        monkeypatch.setattr(  # which older ones imitate
            torch.cuda, "is_bf16_supported", lambda including_emulation=True, units=units: units or including_emulation
        )
        assert precision.resolve("auto", "cuda") == expected
        assert precision.resolve("float32", "cpu", wide[0]) == "float32"
        assert precision.resolve("bfloat16", "cuda") == "bfloat16"


def test_an_unknown_dtype_is_named_with_those_that_are_allowed():
    with pytest.raises(UserError, match="float16"):
        precision.resolve("float16", "cpu")


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("clip", [1e-3, 1e6])
def test_gradients_are_clipped_in_the_update_as_torch_clips_them(optimizer, clip):
    """`torch.nn.utils.clip_grad_norm_` before the update, for gradients above and below the limit."""
    model = made("ViT-nano/7")
    peer = copy.deepcopy(model)
    recipe = Recipe(dtype="bfloat16", batch=16, optimizer=optimizer, clip=clip)
    step, other = Step(model=model, recipe=recipe, device="cpu"), make_optimizer(peer.parameters(), recipe)
    for group in other.param_groups:
        group["lr"] = 0.1
    for number in range(3):
        start = copy.deepcopy(peer)
        step(*batch(), lr=0.1, seed=number)
        gradient(peer, "bfloat16")
        nn.utils.clip_grad_norm_(peer.parameters(), clip)
        other.step()
        other.zero_grad()
        moved = [torch.cat([p.detach().flatten() for p in m.parameters()]) for m in (start, peer, model)]
        assert (moved[2] - moved[1]).norm() <= 1e-4 * (moved[1] - moved[0]).norm()
        peer.load_state_dict(model.state_dict())  # differences of rounding do not add up


@pytest.mark.parametrize("micro_batch", [0, 4])
def test_dropout_on_a_cpu_draws_what_torch_seeds_draw(micro_batch):
    """The step seeds the processor's stream alone; `torch.manual_seed`, which visits every device, is the oracle."""
    states = []
    for seeded in (None, [SimpleNamespace(manual_seed=torch.manual_seed)]):
        torch.manual_seed(0)
        model = registry.build_model("ViT-pico/14", image_size=28, channels=1, num_classes=10, dropout=0.3).train()
        recipe = Recipe(batch=16, dtype="float32", micro_batch=micro_batch)
        step = Step(model=model, recipe=recipe, device="cpu")
        step._generators = seeded or step._generators
        losses = [float(step(*batch(), lr=1e-3, seed=seed)) for seed in (2**63 - 1, 7, 8)]
        states.append((losses, torch.rand(3)))
    assert states[0][0] == states[1][0] and torch.equal(states[0][1], states[1][1])
