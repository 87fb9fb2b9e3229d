"""Real code generation for a GPU that is not here: every kernel of a step is generated, counted and assembled."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from bench.cost import flops
from bench.study import registry
from bench.train import batches, compiled, keep_sums, precision
from tools import codegen
from vit import layers

pytest.importorskip("triton")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["ViT-Ti/16"])
def test_a_step_is_lowered_and_assembled_and_moves_no_more_than_it_did(name):
    batch, image_size = codegen.MODELS[name]
    with codegen.emulate_h100():
        generated, sources = codegen.step(name, batch=batch, image_size=image_size)
    kept = codegen.read_table()[name]
    assert generated.launches <= int(kept["launches"])
    assert generated.gigabytes <= 1.01 * float(kept["gigabytes"])
    assert generated.compilations == 3  # patches; all blocks share one; the last computes the class token alone
    assert sum(map(codegen.assembled, sources)) == generated.kernels > 0
    sizes = {"image_size": image_size, "channels": 3, "num_classes": codegen.CLASSES}
    counted = flops.count(name, **sizes, activations=False).train_flops_per_image["dense"]
    with torch.device("meta"):
        c = registry.build_model(name, **sizes).config
    D, A, N = c.width, c.attention_width, c.num_tokens
    unread = (N - 1) * (2 * D * A + 2 * D * c.mlp_width + 2 * N * A)  # MACs of the last block: queries, output, MLP
    assert generated.teraflops < counted * batch / 1e12
    executed = (counted - 6 * unread) * batch / 1e12
    assert generated.teraflops == pytest.approx(executed, rel=0.06)  # flash attention computes its products twice


@pytest.mark.parametrize("image_size, channels, patch", [(224, 3, 16), (28, 1, 4)])
def test_pixels_are_scaled_and_cut_into_patches_by_one_kernel(image_size, channels, patch):
    """Which reads each once and writes a bfloat16 for it: no image in float32, no copy. Other networks' pixels too."""
    shape = (64, channels, image_size, image_size)
    for module, more in ((layers.Patches((patch, patch)), (torch.bfloat16,)), (precision.Input(torch.bfloat16), ())):
        with codegen.emulate_h100():
            generated, (source,) = codegen.region(module, shape, *more, pixels=True)
        assert (generated.launches, generated.kernels, codegen.assembled(source)) == (1, 1, 1)
        assert generated.gigabytes == pytest.approx(3 * math.prod(shape) / 1e9)
        assert "*u8" in source


def test_crops_and_mirrored_images_are_made_by_one_kernel_too():
    """Mirroring, scaling, interpolation and rounding: uint8 is read, bfloat16 is written, nothing between but, of
    crops, two float32 for each pixel: the place that it is interpolated at."""
    shape = (64, 3, 32, 32)
    values, pixels = math.prod(shape), 64 * 32 * 32

    def cut(boxes_4B, mirrored_B, x_BCHW):
        return batches._cut(x_BCHW.permute(0, 2, 3, 1), boxes_4B, mirrored_B, dtype=torch.bfloat16)

    def mirrored(mirrored_B, x_BCHW):
        return batches._mirrored(x_BCHW.permute(0, 2, 3, 1), mirrored_B)

    with codegen.emulate_h100(), FakeTensorMode(allow_non_fake_inputs=True):
        boxes_4B = torch.empty((4, 64), dtype=torch.int64)
        mirrored_B = torch.empty(64, dtype=torch.bool)
        for run, given, number, moved in (
            (cut, [boxes_4B, mirrored_B], 2, 3 * values + 2 * 8 * pixels),
            (mirrored, [mirrored_B], 1, 2 * values),
        ):
            generated, (source,) = codegen.both_ways(run, given, codegen.pixels_of(shape))
            assert (generated.launches, generated.kernels, codegen.assembled(source)) == (number, number, number)
            assert generated.gigabytes == pytest.approx(moved / 1e9, rel=0.01) and "*u8" in source


def test_between_pixels_and_the_first_product_lies_that_kernel_alone():
    outside, inside = list[str](), list[bool]()

    class Noted(TorchDispatchMode):
        def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
            if not inside and not function.is_view:
                outside.append(function.name())
            return function(*args, **(kwargs or {}))

    model = registry.build_model("ViT-pico/14", image_size=28, channels=3, num_classes=10).train()
    working = precision.Working(model, "bfloat16")
    for part in compiled.parts(working.network):
        part.register_forward_pre_hook(lambda *_: inside.append(True))
        part.register_forward_hook(lambda *_: inside.clear())
    pixels_BHWC = torch.zeros((2, 28, 28, 3), dtype=torch.uint8)
    with Noted():
        working(pixels_BHWC.permute(0, 3, 1, 2))
    assert outside[0] == "aten::addmm"


@pytest.mark.nightly
def test_sums_are_found_by_the_kernels_that_make_what_is_summed(monkeypatch):
    """The bias gradients of a block's wide products and both normalisations have no pass of their own."""
    with torch.device("meta"):
        model = registry.build_model("ViT-S/16", image_size=224, channels=3, num_classes=10).train().bfloat16()
    c, batch = model.config, 128
    shape, tokens = (batch, c.num_tokens, c.width), batch * c.num_tokens * c.width * 2 / 1e9

    def gigabytes():
        return codegen.region(model.blocks[0], shape, None)[0].gigabytes

    with codegen.emulate_h100():
        all_of_it = gigabytes()
        with monkeypatch.context() as patch:
            patch.setattr(layers.Linear, "forward", torch.nn.Linear.forward)
            assert all_of_it < gigabytes() - 0.95 * tokens * (c.mlp_width + 3 * c.width) / c.width
        with monkeypatch.context() as patch:
            patch.setattr(keep_sums.KeepSums, "__call__", lambda *_: None)
            assert all_of_it < gigabytes() - 1.9 * tokens  # the two normalisations read the stream once each


def test_sums_of_the_stream_are_kept_for_the_backward_pass():
    """Not what was added to it. Elsewhere torch decides as ever."""
    from functorch.compile import make_boxed_func
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    kept: list[set[str]] = []

    def cut(joint, *given, marked, **more):
        if marked:
            keep_sums.KEEP_SUMS(joint.graph)
        forward, backward = min_cut_rematerialization_partition(joint, *given, **more)
        kept.append({str(node.target) for node in forward.graph.output_node().all_input_nodes})
        return forward, backward

    def block(x_TD, a_DD, b_DD):
        x_TD = x_TD + x_TD @ a_DD
        return x_TD + x_TD.sin().cos() @ b_DD

    for marked in (False, True):
        run = aot_function(
            block,
            fw_compiler=lambda gm, _: make_boxed_func(gm.forward),
            partition_fn=functools.partial(cut, marked=marked),
        )
        run(*(torch.randn(8, 8, requires_grad=True) for _ in range(3))).sum().backward()
    usual, marked_too = kept
    assert "aten.mm.default" in usual and "aten.mm.default" not in marked_too and "aten.add.Tensor" in marked_too


def test_the_table_is_of_models_that_can_be_asked_for():
    """And rests on the assumptions that it states, which are those of the code."""
    assert codegen.TABLE.read_text(encoding="utf-8").startswith(codegen.heading())
    table = codegen.read_table()
    assert table.keys() == codegen.MODELS.keys()
    assert all(int(row["batch"]) == codegen.MODELS[name][0] for name, row in table.items())
