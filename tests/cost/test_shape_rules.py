"""Results of common operations, found by rule, against torch's own functions for the meta device."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from bench.cost import flops, shapes
from tests.cost.test_flops import KNOWN

aten: Any = torch.ops.aten
OWN = ("ViT-B/16", "ViT-pico/7", "R8x0.125-s2", "R50x1", "R5+ViT-pico/14", "R50+ViT-B/16")


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
    (aten.mean.dim, meta(2, 8), [2]),
    (aten.max_pool2d_with_indices.default, IMAGES, [11, 11], [2, 2]),
]


def shown(case: tuple[Any, ...]) -> str:
    return case[0].name().removeprefix("aten::")


def layout(result: Any) -> list[tuple[Any, ...]]:
    """Of each tensor what another operation, or a count of bytes, can tell."""
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
        found = operation(*args)
    assert layout(found) == layout(operation(*args))


@pytest.mark.parametrize("dim, keepdim", [((1,), True), ((1,), False), ((0,), True), (None, False)])
def test_variances_too(dim: tuple[int, ...] | None, keepdim: bool) -> None:
    def statistics() -> Any:
        return aten.var_mean.correction(meta(16, 72), dim, correction=0, keepdim=keepdim)

    with shapes.KnownShapes():
        found = statistics()
    assert layout(found) == layout(statistics())


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
        costs.append(flops.count.__wrapped__(name, image_size=size, channels=3, num_classes=10))
    assert costs[0] == costs[1]


@pytest.mark.parametrize("name", OWN)
def test_counting_our_own_models_loads_no_other_library(name: str, project: Path) -> None:
    """Neither timm nor torchvision, which nothing of these models is made of, nor torch's compiler and SymPy: together
    they take longer than torch itself."""
    code = f"""
import sys
from bench.flops import main
assert main([{name!r}]) == 0
print(sorted({{"timm", "torchvision", "torch._dynamo", "sympy"}} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=project)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
