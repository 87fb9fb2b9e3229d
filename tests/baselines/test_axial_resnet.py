"""Axial ResNets: the attention of Wang et al. (2020, section 3.2) written out, and what it takes the place of."""

import pytest
import torch
from torch import Tensor, nn

from baselines import _axial_resnet, axial_resnet
from bench.cost import flops
from bench.study import registry
from tests.vit.test_vit_peers import scrambled


def build(name: str, *, image_size: int = 32, channels: int = 3, num_classes: int = 7) -> nn.Module:
    model = registry.build_model(name, image_size=image_size, channels=channels, num_classes=num_classes)
    scrambled(model)
    return model.double().eval()


def written_out(of: _axial_resnet.LineAttention, row_CL: Tensor) -> Tensor:
    """One row of normalised queries, keys and values -> what each pixel gathers, pair by pair."""
    q_CL, k_CL, v_CL = row_CL.split(of.parts)
    gathered_CL = torch.empty_like(v_CL)
    for head in range(of.heads):
        q_EL, k_EL, v_EL = (part.chunk(of.heads)[head] for part in (q_CL, k_CL, v_CL))
        for i in range(of.length):
            offsets = [i - j + of.length - 1 for j in range(of.length)]
            sums = torch.stack(
                [
                    q_EL[:, i] @ k_EL[:, j] + q_EL[:, i] @ of.by_query[at] + k_EL[:, j] @ of.by_key[at]
                    for j, at in enumerate(offsets)
                ]
            )
            weights_L = (sums / len(q_EL) ** 0.5).softmax(0)
            each = [weights_L[j] * (v_EL[:, j] + of.by_value[at]) for j, at in enumerate(offsets)]
            gathered_CL[head * len(v_EL) : (head + 1) * len(v_EL), i] = torch.stack(each).sum(0)
    return gathered_CL


@torch.no_grad()
def test_attention_along_rows_and_columns_is_the_published_formula() -> None:
    block = build("AxialR26x1-s2").stages[0].blocks[0].conv2
    x_BCHW = torch.randn(2, 64, 16, 16, dtype=torch.float64)
    for line, turned_BCHW in ((block.row, x_BCHW), (block.column, x_BCHW.mT)):
        qkv_BCHW = line.norm_in(line.qkv(turned_BCHW))
        expected_BCHW = torch.stack(
            [torch.stack([written_out(line, image[:, row]) for row in (0, 7)], dim=1) for image in qkv_BCHW]
        )
        norm, line.norm_out = line.norm_out, nn.Identity()
        torch.testing.assert_close(line(turned_BCHW)[:, :, [0, 7]], expected_BCHW)
        line.norm_out = norm
    torch.testing.assert_close(block(x_BCHW), block.column(block.row(x_BCHW).mT).mT)


def test_every_3x3_convolution_of_a_bit_is_replaced_and_nothing_else() -> None:
    def kinds(name: str) -> list[tuple[str, int]]:
        with torch.device("meta"):
            model = registry.build_model(name, image_size=224, channels=3, num_classes=7)
        inside = [path for path, module in model.named_modules() if isinstance(module, _axial_resnet.AxialAttention)]
        assert len(inside) == (16 if name.startswith("Axial") else 0)
        return [
            (path, module.kernel_size[0])
            for path, module in model.named_modules()
            if isinstance(module, nn.Conv2d) and not any(path.startswith(one) for one in inside)
        ]

    assert kinds("AxialR50x1") == [(path, size) for path, size in kinds("R50x1") if size != 3]


@torch.no_grad()
@pytest.mark.parametrize("size", [32, 45, 64])
def test_maps_are_those_of_the_bit_at_any_size_and_a_pixel_reaches_every_other(size: int) -> None:
    axial, plain = (build(name, image_size=size) for name in ("AxialR26x1-s2", "R26x1-s2"))
    x_BCHW = torch.randn(1, 3, size, size, dtype=torch.float64)
    assert axial.forward_features(x_BCHW).shape == plain.forward_features(x_BCHW).shape
    block = axial.stages[0].blocks[0].conv2
    map_BCHW = torch.randn(1, 64, -(-size // 2), -(-size // 2), dtype=torch.float64)
    moved_BCHW = map_BCHW.clone()
    moved_BCHW[0, :, 0, 0] += 1
    assert ((block(moved_BCHW) - block(map_BCHW))[0].abs().amax(0) > 0).all()


def test_it_is_counted_and_named() -> None:
    cost = flops.count("AxialR50x1", image_size=224, channels=3, num_classes=10, activations=False)
    plain = flops.count("R50x1", image_size=224, channels=3, num_classes=10, activations=False)
    assert 0.5 < cost.forward_macs["dense"] / plain.forward_macs["dense"] < 1.5
    assert axial_resnet.accepts("AxialR26x0.5-s1") and not axial_resnet.accepts("AxialR50x0.125")
    assert registry.family_of("AxialR50x1").label == "Axial ResNet"
