"""The formulas against counting by brute force."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bench.cost.counter import FORMULAS, is_uncounted_contraction, tap_pairs
from bench.cost.flops import count_forward

AXES = list(itertools.product((1, 5, 8, 13), (1, 2, 3, 7), (1, 2, 3), (0, 1, 3), (1, 2)))


@pytest.mark.parametrize("size", (1, 5, 8, 13))
def test_taps_inside_equal_a_convolution_of_ones(size: int) -> None:
    """Convolving ones with ones, the result at each position is the number of taps that read the image."""
    for _, kernel, stride, padding, dilation in (axis for axis in AXES if axis[0] == size):
        if size + 2 * padding < dilation * (kernel - 1) + 1:
            continue
        ones = F.conv1d(torch.ones(1, 1, size), torch.ones(1, 1, kernel), None, stride, padding, dilation)
        outputs = ones.shape[-1]
        found = tap_pairs(size=size, outputs=outputs, kernel=kernel, stride=stride, dilation=dilation, before=padding)
        assert found == int(ones.sum()), (size, kernel, stride, padding, dilation)


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
    outputs = conv(F.pad(image, pads))
    dense = outputs.numel() * math.prod(conv.weight.shape[1:])
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


def test_what_looks_like_a_contraction() -> None:
    for name in ("aten::_flash_attention_forward", "aten::mkldnn_linear", "aten::_sparse_mm", "aten::_trilinear"):
        assert name in FORMULAS or is_uncounted_contraction(name), name
    for name in ("aten::add", "aten::native_layer_norm", "aten::_fused_sdp_choice", "aten::comma", "aten::gather"):
        assert not is_uncounted_contraction(name), name
