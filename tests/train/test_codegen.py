"""Real code generation for a GPU that is not here: every kernel of a step is generated, counted and assembled."""

from __future__ import annotations

import pytest
import torch

from bench.core import registry
from bench.cost import flops
from bench.train import codegen

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


def test_the_table_is_of_models_that_can_be_asked_for():
    """And rests on the assumptions that it states, which are those of the code."""
    assert codegen.TABLE.read_text(encoding="utf-8").startswith(codegen.heading())
    table = codegen.read_table()
    assert table.keys() == codegen.MODELS.keys()
    assert all(int(row["batch"]) == codegen.MODELS[name][0] for name, row in table.items())
