"""Every kind of model against two independent counters."""

from __future__ import annotations

import logging
import math
import re
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bench.core import registry
from bench.core.errors import UserError
from bench.cost.flops import count_forward
from tests.cost.test_flops import KNOWN

# Others of test_flops.KNOWN are compared with torch's counter there; of fvcore they are the same operations.
ALSO = {"ViT-Ti/16", "ViT-B/16", "R50x1", "R+ViT-Ti/16", "R26+ViT-S/32"}
NAMES = tuple(name for name in registry.model_names() if name != "pixels" and (name in ALSO or name not in KNOWN))
SIZES = (56, 64, 96, 112, 128)  # the smallest that a model takes: the method is what is checked
CONTRACTIONS = ("conv", "linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "einsum", "scaled_dot_product_attention")


def on_meta(name: str, **options: int) -> tuple[nn.Module, int]:
    """The model without weights, and an image size it takes."""
    for size in SIZES:
        try:
            with torch.device("meta"):
                return registry.build_model(name, image_size=size, channels=3, num_classes=10, **options).eval(), size
        except UserError:
            continue
    raise AssertionError(f"{name} takes none of {SIZES} px")


LARGE = re.compile(r"ViT-[BLHgG]/")  # of many equal blocks, two


@pytest.mark.parametrize("name", NAMES)
def test_torch_and_fvcore_count_the_same(name: str) -> None:
    fvcore = pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    logging.getLogger("fvcore").setLevel(logging.ERROR)
    model, size = on_meta(name, **({"depth": 2} if LARGE.search(name) else {}))
    images = torch.empty(1, 3, size, size, device="meta")
    ours = count_forward(model, images)
    with FlopCounterMode(display=False) as forward:
        logits = model(images)
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    assert 2 * ours.total("dense") == forward.get_total_flops()
    assert 2 * ours.backward["dense"] == backward.get_total_flops()
    assert ours.total("paper") <= ours.total("dense")
    _weightless(model)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        analysis = fvcore.FlopCountAnalysis(model, torch.zeros(1, 3, size, size))
        analysis.set_op_handle("aten::scaled_dot_product_attention", _fused_attention)
        by_operator = dict(analysis.by_operator())
        missed = set(analysis.unsupported_ops())
    assert not any("attention" in name for name in missed)
    # fvcore also counts norms and pooling, which are no contractions.
    assert set(by_operator) - set(CONTRACTIONS) <= {"layer_norm", "group_norm", "batch_norm", "adaptive_avg_pool2d"}
    assert sum(by_operator.get(operator, 0) for operator in CONTRACTIONS) == ours.total("dense")


def _fused_attention(inputs: list[Any], outputs: list[Any]) -> int:
    """MACs (fvcore's unit, which it calls flops) of q k^T and of the product with v."""
    q, k, v = (value.type().sizes() for value in inputs[:3])
    return math.prod(q[:-1]) * k[-2] * (q[-1] + v[-1])


def _weightless(model: nn.Module) -> None:
    """Give every parameter and buffer one shared zero: fvcore traces on real tensors, the largest models are 7 GB."""
    zero = torch.zeros(())
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                module._parameters[name] = nn.Parameter(zero.expand(parameter.shape), requires_grad=False)
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = zero.expand(buffer.shape)
        if hasattr(module, "standardised_weight"):  # elementwise work on every weight, which is not counted anyway
            module.standardised_weight = lambda _dtype, module=module: module.weight  # type: ignore[assignment]
