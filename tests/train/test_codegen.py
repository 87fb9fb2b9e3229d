"""Real code generation for a GPU that is not here: every kernel of a step is generated, counted and assembled."""

from __future__ import annotations

import functools

import pytest
import torch

from bench.core import registry
from bench.cost import flops
from bench.train import codegen, keep_sums
from vit import layers

pytest.importorskip("triton")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ViT-Ti/16"])
def test_a_step_is_lowered_and_assembled_and_moves_no_more_than_it_did(name):
    batch, image_size = codegen.MODELS[name]
    with codegen.pretended():
        found, sources = codegen.step(name, batch=batch, image_size=image_size)
    kept = codegen.read_table()[name]
    assert found.launches <= int(kept["launches"])
    assert found.gigabytes <= 1.01 * float(kept["gigabytes"])
    assert found.compilations == 2  # all blocks share one; the last computes the class token alone
    assert sum(map(codegen.assembled, sources)) == found.kernels > 0
    sizes = {"image_size": image_size, "channels": 3, "num_classes": codegen.CLASSES}
    counted = flops.count(name, **sizes, activations=False).train_flops_per_image["dense"]
    with torch.device("meta"):
        c = registry.build_model(name, **sizes).config
    D, A, N = c.width, c.attention_width, c.num_tokens
    unread = (N - 1) * (2 * D * A + 2 * D * c.mlp_width + 2 * N * A)  # MACs of the last block: queries, output, MLP
    assert found.teraflops < counted * batch / 1e12
    executed = (counted - 6 * unread) * batch / 1e12
    assert found.teraflops == pytest.approx(executed, rel=0.06)  # flash attention computes its products twice


@pytest.mark.slow
def test_sums_are_found_by_the_kernels_that_make_what_is_summed(monkeypatch):
    """Of a block's step, the bias gradients of the wide products and both normalisations: no pass of their own."""
    with torch.device("meta"):
        model = registry.build_model("ViT-S/16", image_size=224, channels=3, num_classes=10).train().bfloat16()
    c, batch = model.config, 128
    shape, tokens = (batch, c.num_tokens, c.width), batch * c.num_tokens * c.width * 2 / 1e9

    def gigabytes():
        return codegen.region(model.blocks[0], shape, None)[0].gigabytes

    with codegen.pretended():
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
        run = aot_function(block, fw_compiler=lambda gm, _: make_boxed_func(gm.forward),
                           partition_fn=functools.partial(cut, marked=marked))  # fmt: skip
        run(*(torch.randn(8, 8, requires_grad=True) for _ in range(3))).sum().backward()
    usual, marked_too = kept
    assert "aten.mm.default" in usual and "aten.mm.default" not in marked_too and "aten.add.Tensor" in marked_too


def test_the_table_is_of_models_that_can_be_asked_for():
    """And rests on the assumptions that it states, which are those of the code."""
    assert codegen.TABLE.read_text(encoding="utf-8").startswith(codegen.heading())
    table = codegen.read_table()
    assert table.keys() == codegen.MODELS.keys()
    assert all(int(row["batch"]) == codegen.MODELS[name][0] for name, row in table.items())
