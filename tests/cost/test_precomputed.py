"""A process takes over what another found out about a study's models and machine; nothing else changes."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from bench.cost import flops, peaks, precomputed
from bench.cost.peaks import PeakRate
from bench.study.cell import Recipe
from bench.train.update import make_optimizer

SIZES = {"image_size": 28, "channels": 1, "num_classes": 10}
MODELS = (("ViT-pico/14", ()), ("R5+ViT-pico/14", ()), ("ViT-pico/14", (("dropout", 0.1),)))


@pytest.fixture
def nothing_known(monkeypatch):
    monkeypatch.setattr(peaks, "PRECOMPUTED", {})
    monkeypatch.setattr(flops, "PRECOMPUTED", {})
    flops.count.cache_clear()
    yield
    flops.count.cache_clear()


def test_costs_and_peaks_arrive_as_they_were_found(nothing_known, monkeypatch):
    counted = [(flops.count(name, **SIZES, model_options=o, activations=False), o) for name, o in MODELS]
    measured = {"float32": PeakRate(flops_per_second=1e11, source="measured matmul, float32", measured=True)}
    sent = json.loads(json.dumps(precomputed.merge([precomputed.to_json(measured=measured, costs=counted)])))
    flops.count.cache_clear()
    precomputed.install(sent, device="cpu", threads=1)

    def forbidden(*_, **__):
        raise AssertionError("found out again")

    monkeypatch.setattr(flops, "count_forward", forbidden)
    monkeypatch.setattr(peaks, "measured_peak", forbidden)
    for cost, options in counted:
        assert flops.count(cost.model, **SIZES, model_options=options, activations=False) == cost
    peak = peaks.peak("float32", device="cpu", threads=1)
    assert (peak.flops_per_second, peak.measured) == (1e11, True)
    assert peak.source == "measured matmul, float32, once for the study"
    for unknown in ({"dtype": "bfloat16", "threads": 1}, {"dtype": "float32", "threads": 2}):
        with pytest.raises(AssertionError, match="found out again"):
            peaks.peak(**unknown)
    with pytest.raises(AssertionError, match="found out again"):  # memory was not asked for when it was counted
        flops.count("ViT-pico/14", **SIZES)


def test_of_several_measurements_the_highest_counts():
    parts = [
        {"peaks": {"float32": {"flops_per_second": rate, "source": f"{rate}", "measured": True}}, "costs": [rate]}
        for rate in (2.0, 3.0, 1.0)
    ]
    merged = precomputed.merge(parts)
    assert merged["peaks"]["float32"]["flops_per_second"] == 3.0 and merged["costs"] == [2.0, 3.0, 1.0]
    assert precomputed.merge([]) == {"peaks": {}, "costs": []}


@pytest.mark.parametrize(
    "recipe", [Recipe(lr=0.01), Recipe(optimizer="sgd", lr=0.1, weight_decay=0.01)], ids=lambda r: r.optimizer
)
def test_optimizers_take_torchs_own_steps_to_the_last_bit(recipe):
    torch.manual_seed(0)
    start = [torch.randn(17, 5), torch.randn(3)]
    ours, theirs = ([nn.Parameter(t.clone()) for t in start] for _ in range(2))
    mine = make_optimizer(ours, recipe)
    common = {"lr": recipe.lr, "weight_decay": recipe.weight_decay, "fused": True}
    if recipe.optimizer == "sgd":
        other = torch.optim.SGD(theirs, momentum=recipe.momentum, **common)
    else:
        other = torch.optim.AdamW(theirs, betas=recipe.betas, **common)
    for step in range(5):
        gradients = [torch.randn_like(t) * 10**-step for t in start]
        for optimizer, parameters in ((mine, ours), (other, theirs)):
            optimizer.zero_grad(set_to_none=True)
            assert all(p.grad is None for p in parameters)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    for a, b in zip(ours, theirs, strict=True):
        assert mine.state[a].keys() == other.state[b].keys()
        assert all(torch.equal(mine.state[a][key], other.state[b][key]) for key in mine.state[a])


@pytest.mark.gate
@pytest.mark.parametrize("name", ["ViT-pico/14", "R8x0.125-s2", "R5+ViT-pico/14"])
def test_a_worker_that_is_handed_the_costs_loads_torch_alone(name, project):
    """Not its compiler or SymPy, nor timm and torchvision, which load both: that takes as long as torch itself."""
    code = """
import json, sys
import torch
from bench.cost import flops, precomputed
from bench.study.cell import Recipe
from bench.train.update import make_optimizer
NAME = sys.argv[1]
cost = dict(model=NAME, image_size=28, channels=1, num_classes=10, params=1, params_body=1, num_features=48,
            forward_macs={"dense": 1, "paper": 1}, backward_macs={}, by_module={})
precomputed.install({"costs": [{"options": [], "cost": cost}]}, device="cpu", threads=1)
flops.count(NAME, image_size=28, channels=1, num_classes=10, activations=False)
from bench.study import registry
from bench.train.step import Step
model = registry.build_model(NAME, image_size=28, channels=1, num_classes=10)
step = Step(model=model, recipe=Recipe(), device="cpu")
step(torch.zeros(2, 1, 28, 28), torch.tensor([0, 1]), lr=1e-3, seed=0)
print(sorted({"torch._dynamo", "sympy", "timm", "torchvision"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, cwd=project)
    assert done.stdout.strip() == "[]", done.stderr
