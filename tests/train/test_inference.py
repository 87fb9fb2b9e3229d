"""Features and logits: their precision, and what a horizon's row says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend

from bench.core.device import InBatches
from bench.core.errors import UserError
from bench.data.load import load
from bench.data.subset import nested
from bench.execute.jobs import train
from bench.store.prediction_bits import from_detail
from bench.study import registry
from bench.study.cell import Cell, Recipe, TaskSpec
from bench.study.record import Result
from bench.suites._recipes import recipe_for
from bench.tasks import fewshot
from bench.tasks._features import extractor, top1, top1_and_loss
from bench.tasks.task import TaskContext
from bench.train import compiled, inference, modes
from bench.train.batches import Batches
from tests.gpu.posing import posing
from tests.tasks.test_finetune import images as toy
from tests.train.driving import Driven, Tight, job_context
from vit.model import VisionTransformer

# -- features and logits in bfloat16: near float32's, by a copy that leaves the model alone; said in the record --------


ROUNDING = 2.0**-8  # of bfloat16
FAMILIES = ("ViT-pico/14", "ViT-pico/14:pooling=cls", "R8x0.125-s2", "R5+ViT-pico/14")


def built(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return registry.build_model(name, image_size=28, channels=1, num_classes=10)


def pixels(number: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (number, 28, 28, 1), np.uint8)


@pytest.mark.parametrize("name", FAMILIES)
def test_features_are_float32s_within_rounding_and_the_model_stays_as_it_was(name):
    model = built(name).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    batches = InBatches(16, device="cpu")
    wanted_ND = extractor(model, image_size=28, channels=1, batches=batches)(pixels(40))
    network = inference.in_precision(model, dtype="bfloat16", device="cpu", batches=batches)
    found_ND = extractor(network, image_size=28, channels=1, batches=batches)(pixels(40))
    depth = sum(isinstance(m, torch.nn.Linear | torch.nn.Conv2d) for m in model.modules())
    error = np.linalg.norm(found_ND - wanted_ND) / np.linalg.norm(wanted_ND)
    assert found_ND.dtype == np.float32 and 0 < error < ROUNDING * depth**0.5  # roundings of layers, as if independent
    assert model.training and all(p.requires_grad and p.dtype == torch.float32 for p in model.parameters())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    float32 = inference.in_precision(model, dtype="float32", device="cpu", batches=batches)
    assert float32 is model  # and so every bit of what it computes


def test_compiled_code_sees_one_size(monkeypatch):
    """The last, smaller batch is filled up: each size would be compiled anew."""
    monkeypatch.setattr(compiled, "compiled", lambda network, **_: network)
    model, sizes = built("ViT-pico/14").eval(), list[int]()
    batches = InBatches(16, device="cpu")
    wanted = inference.in_precision(model, dtype="bfloat16", device="cpu", batches=batches)
    with modes.switched("default"):
        network = inference.in_precision(model, dtype="bfloat16", device="cpu", batches=batches)
    network.network.blocks[0].register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    found_ND, wanted_ND = (
        extractor(n, image_size=28, channels=1, batches=batches)(pixels(20)) for n in (network, wanted)
    )
    assert sizes == [16, 16] and found_ND.shape == wanted_ND.shape
    np.testing.assert_allclose(found_ND, wanted_ND, atol=4 * ROUNDING * np.abs(wanted_ND).max())


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_evaluation_has_the_attention_kernels_of_training(mode, monkeypatch):
    """Those ranked at its own shape, or torch's own choice."""
    asked, within = [], []

    def ranked(shape, **_):
        asked.append(shape)
        return [SDPBackend.MATH]

    monkeypatch.setattr(compiled, "ranked_kernels", ranked)
    monkeypatch.setattr(compiled, "obstacle", lambda _: None)
    monkeypatch.setattr(compiled, "_ranked", {})
    model, batches = built("ViT-pico/14").eval(), InBatches(16, device="cpu")
    flash = torch.backends.cuda.flash_sdp_enabled
    with posing(), modes.switched(mode):
        network = inference.in_precision(model, dtype="bfloat16", device="cuda", batches=batches)
        network.network.blocks[0].register_forward_pre_hook(lambda *_: within.append(flash()))
        network.features(torch.rand(16, 1, 28, 28))
    assert (asked, within) == (([], [True]) if mode == "default" else ([(16, 3, 4, 16)], [False]))


def test_what_auto_means(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    model = built("ViT-pico/14")
    for dtype, device, meant in (
        ("auto", "cpu", "float32"),
        ("auto", "mps", "float32"),
        ("auto", "cuda:1", "bfloat16"),
        ("float32", "cuda", "float32"),
        ("bfloat16", "cpu", "bfloat16"),
    ):
        assert inference.resolve(dtype, device, model) == meant
    raw = registry.build_model("pixels", image_size=28, channels=1, num_classes=10)
    assert inference.resolve("auto", "cuda", raw) == inference.resolve("bfloat16", "cpu", raw) == "float32"
    with pytest.raises(UserError, match="dtype"):
        inference.resolve("int8", "cpu", model)


def test_a_record_says_in_which_precision_it_was_judged(tmp_path, monkeypatch):
    """All of it: upstream accuracy, probes and fine-tuned networks."""
    asked = replace(CELL, recipe=replace(CELL.recipe, evaluation_dtype="bfloat16"))
    used: list[str] = []
    for name in ("features", "forward"):
        monkeypatch.setattr(inference.LowPrecision, name, noted(name, used))
    near = job(asked, tmp_path / "bfloat16")
    calls, used[:] = set(used), []
    wanted = job(CELL, tmp_path / "float32")
    assert calls == {"features", "forward"} and not used
    assert (near.execution.dtype, near.execution.evaluation_dtype) == ("float32", "bfloat16")
    assert wanted.execution.evaluation_dtype == "float32"
    for score, other in zip(near.horizons[-1].scores, wanted.horizons[-1].scores, strict=True):
        assert (score.task, score.num_test) == (other.task, other.num_test)
        assert score.value == pytest.approx(other.value, abs=4 / other.num_test), score.task


def noted(name: str, used: list[str]) -> Any:
    real = getattr(inference.LowPrecision, name)

    def call(self, x_BCHW):
        used.append(name)
        return real(self, x_BCHW)

    return call


def job(cell: Cell, folder: Path, log: Callable[[str], None] = lambda _: None) -> Result:
    return train.run(cell, job_context(folder, log=log))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["ViT-pico/7", "ViT-pico/7:pooling=cls", "R8x0.125-s2", "R5+ViT-pico/14"])
def test_scores_of_trained_models_are_those_of_float32(name):
    """Own head on 9,000 images that were not trained on; few-shot probes on these and on others."""
    whole, test = load("fashion-mnist:part", "train", root=None), load("fashion-mnist:part", "test", root=None)
    own = nested(whole.labels_N, 3_000, keys_N=whole.content_keys_N)
    held = np.setdiff1d(np.arange(len(whole)), own)
    unseen = replace(
        test,
        images_NHWC=np.concatenate([whole.images_NHWC[held], test.images_NHWC]),
        labels_N=np.concatenate([whole.labels_N[held], test.labels_N]),
    )
    recipe = recipe_for(name, warmup_images=1_000, dtype="float32")
    model = built(name)
    batches = Batches(whole.take(own), recipe=recipe, seed=0, device="cpu")
    Driven(model=model, batches=batches, recipe=recipe, horizons=(20_000,), seed=0, device="cpu").drive()
    scores: dict[str, list[float]] = {}
    for dtype in ("float32", "bfloat16"):
        at_once = InBatches(device="cpu")
        network = inference.in_precision(model.eval(), dtype=dtype, device="cpu", batches=at_once)
        features = extractor(network, image_size=28, channels=1, batches=at_once)
        context = TaskContext(
            features=features, load=lambda _, split: {"train": whole.take(own), "test": unseen}[split]
        )
        probes = fewshot.evaluate(context, data="fashion-mnist", shots=(10,), draws=5, test_limit=None)
        means = [
            np.mean([s.value for s in probes if s.metric == metric]) for metric in sorted({s.metric for s in probes})
        ]
        scores[dtype] = [top1(network, unseen, device="cpu", batches=at_once) / len(unseen), *means]
    assert scores["float32"][0] > 0.6  # it has learned something
    assert scores["bfloat16"] != scores["float32"]
    np.testing.assert_allclose(scores["bfloat16"], scores["float32"], atol=2e-3)  # 0.1 points, and chance: 25 change


# -- evaluation where memory is short: smaller batches, the same scores, and a record that says so ---------------------


TASKS = (
    TaskSpec(task="fewshot", data="digits", options=(("shots", (5,)), ("draws", 1), ("test_limit", 200))),
    TaskSpec(task="finetune", data="digits", options=(("steps", 3), ("batch", 32), ("rates", (0.1,)))),
)
CELL = Cell(
    model="ViT-pico/14",
    data="fashion-mnist:part",
    num_images=200,
    horizons=(64,),
    seed=1,
    tasks=TASKS,
    recipe=Recipe(batch=16, dtype="float32", warmup_images=16),
)


def test_top1_counts_every_image_once():
    images = replace(toy(), labels_N=np.arange(90) % 2, class_names=("a", "b"))
    lightness_N = images.images_NHWC.mean((1, 2, 3))
    right_N = (lightness_N < 127.5) == images.labels_N
    lightness = lambda x_BCHW: x_BCHW.mean((1, 2, 3))[:, None] * torch.tensor([1.0, -1.0])  # noqa: E731
    for room in (90, 7):
        np.testing.assert_array_equal(top1_and_loss(Tight(lightness, room), images, device="cpu")[0], right_N)
        assert top1(Tight(lightness, room), images, device="cpu") == int(right_N.sum())
    with pytest.raises(torch.OutOfMemoryError):
        top1(Tight(lightness, 0), images, device="cpu")


def test_a_row_says_where_evaluation_ran_out_of_memory_and_has_the_scores_of_one_where_it_did_not(
    tmp_path, monkeypatch
):
    said: list[str] = []
    wanted = job(CELL, tmp_path / "roomy", said.append).horizons[0]
    assert not wanted.smaller_batches and not [text for text in said if "memory" in text]
    features = VisionTransformer.features

    def tight(self, x_BCHW):
        if len(x_BCHW) > (20 if self.training else 100):
            raise torch.OutOfMemoryError("no room")
        return features(self, x_BCHW)

    monkeypatch.setattr(VisionTransformer, "features", tight)
    row = job(CELL, tmp_path / "tight", said.append).horizons[0]
    assert row.smaller_batches == {"evaluate": 64, "finetune": 16}
    assert {score.task for score in wanted.scores} == {"upstream", "fewshot", "finetune"}
    upstream = load(CELL.data, "test")
    for score, other in zip(row.scores, wanted.scores, strict=True):
        bits = from_detail(other.detail)
        assert (bits is not None) == (score.metric == "accuracy")  # the others are no measure to compare models by
        assert bits is None or bits.right_M.mean() == other.value
        assert bits is None or (bits.content_hash == upstream.content_hash) == (score.task == "upstream")
        assert score.value == pytest.approx(other.value, abs=2 / other.num_test), score.task
