"""Evaluation where memory is short: smaller batches, the same scores, and a record that says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from bench.core.record import Horizon
from bench.core.spec import Cell, Recipe, TaskSpec
from bench.data.load import load
from bench.execute.jobs import train
from bench.execute.jobs._contract import JobContext
from bench.store.prediction_bits import from_detail
from bench.store.study import CellDirectory
from bench.tasks._features import top1, top1_and_loss
from tests.tasks.test_finetune import images as toy
from vit.model import VisionTransformer

TASKS = (
    TaskSpec(task="fewshot", data="digits", options=(("shots", (5,)), ("draws", 1), ("test_limit", 200))),
    TaskSpec(task="finetune", data="digits", options=(("steps", 3), ("batch", 32), ("rates", (0.1,)))),
)
CELL = Cell(
    model="ViT-pico/14",
    data="fashion-mnist",
    num_images=200,
    horizons=(64,),
    seed=1,
    tasks=TASKS,
    recipe=Recipe(batch=16, dtype="float32", warmup_images=16),
)


class Tight(nn.Module):
    """Says of each image how light it is; has room for `room` of them at a time."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def forward(self, x_BCHW):
        if len(x_BCHW) > self.room:
            raise MemoryError
        mean_B = x_BCHW.mean((1, 2, 3))
        return torch.stack([mean_B, -mean_B], 1)


def test_top1_counts_every_image_once():
    images = replace(toy(), labels_N=np.arange(90) % 2, class_names=("a", "b"))
    lightness_N = images.images_NHWC.mean((1, 2, 3))
    right_N = (lightness_N < 127.5) == images.labels_N
    for room in (90, 7):
        np.testing.assert_array_equal(top1_and_loss(Tight(room), images, device="cpu")[0], right_N)
        assert top1(Tight(room), images, device="cpu") == int(right_N.sum())
    with pytest.raises(MemoryError):
        top1(Tight(0), images, device="cpu")


def row(folder, said: list[str]) -> Horizon:
    """What the training job finds of CELL."""
    context = JobContext(
        directory=CellDirectory(folder),
        attempt=folder,
        device="cpu",
        threads=1,
        progress=lambda _: None,
        should_stop=lambda: False,
        log=said.append,
    )
    return train.run(CELL, context).horizons[0]


def test_a_row_says_where_evaluation_ran_out_of_memory_and_has_the_scores_of_one_where_it_did_not(
    tmp_path, monkeypatch
):
    said: list[str] = []
    wanted = row(tmp_path / "roomy", said)
    assert not wanted.smaller_batches and not [text for text in said if "memory" in text]
    features = VisionTransformer.features

    def tight(self, x_BCHW):
        if len(x_BCHW) > (20 if self.training else 100):
            raise torch.OutOfMemoryError("no room")
        return features(self, x_BCHW)

    monkeypatch.setattr(VisionTransformer, "features", tight)
    found = row(tmp_path / "tight", said)
    assert found.smaller_batches == {"evaluate": 64, "finetune": 16}
    assert "out of memory in evaluation (evaluate): went on with 64 images at a time" in said
    assert {score.task for score in wanted.scores} == {"upstream", "fewshot", "finetune"}
    upstream = load(CELL.data, "test")
    for score, other in zip(found.scores, wanted.scores, strict=True):
        bits = from_detail(other.detail)
        assert (bits is not None) == (score.metric == "accuracy")  # the others are no measure to compare models by
        assert bits is None or bits.right_M.mean() == other.value
        assert bits is None or (bits.content_hash == upstream.content_hash) == (score.task == "upstream")
        assert score.value == pytest.approx(other.value, abs=2 / other.num_test), score.task
