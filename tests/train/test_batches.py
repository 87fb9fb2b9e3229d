"""Order and augmentation are functions of (seed, step), and no image is left out of an epoch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench.core.errors import UserError
from bench.core.spec import Recipe
from bench.data.image_set import ImageSet
from bench.train.batches import Batches, to_input
from tests.gpu.posing import posing


def images(count: int, side: int = 6, channels: int = 1) -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (count, side, side, channels), dtype=np.uint8)
    return ImageSet(
        name="noise",
        split="train",
        images_NHWC=pixels,
        labels_N=np.arange(count) % 3,
        class_names=("a", "b", "c"),
        kind="rendered",
    )


@pytest.mark.parametrize("count, batch", [(10, 4), (7, 16), (64, 64), (1, 3)])
def test_each_epoch_shows_each_image_once(count, batch):
    batches = Batches(images(count), recipe=Recipe(batch=batch), seed=3, device="cpu")
    steps = -(-count * 4 // batch)
    seen = np.concatenate([batches.indices(step) for step in range(steps)])[: count * 4]
    for epoch in seen.reshape(4, count):
        assert sorted(epoch) == list(range(count))
    assert count < 5 or (seen[:count] != seen[count : 2 * count]).any()


def test_a_batch_depends_on_seed_and_step_alone():
    recipe = Recipe(batch=8, shift=2, flip=True)
    first, again = (Batches(images(50), recipe=recipe, seed=1, device="cpu") for _ in range(2))
    for _ in range(3):
        first(0)  # asking for other batches in between changes nothing
    assert torch.equal(first(17)[0], again(17)[0])
    assert not torch.equal(first(17)[0], first(18)[0])
    other = Batches(images(50), recipe=recipe, seed=2, device="cpu")
    assert not torch.equal(first(17)[0], other(17)[0])


def test_a_shift_moves_the_whole_image_and_repeats_its_edge():
    source = images(20)
    batches = Batches(source, recipe=Recipe(batch=20, shift=2), seed=0, device="cpu")
    x_BCHW, labels_B = batches(5)
    index_B = batches.indices(5)
    padded = np.pad(source.images_NHWC, ((0, 0), (2, 2), (2, 2), (0, 0)), mode="edge")
    moved = 0
    for x_CHW, index, label in zip(x_BCHW, index_B, labels_B, strict=True):
        windows = [padded[index, r : r + 6, c : c + 6] for r in range(5) for c in range(5)]
        pixels = ((x_CHW.permute(1, 2, 0) + 1) * 127.5).round().to(torch.uint8).numpy()
        matches = [np.array_equal(pixels, window) for window in windows]
        assert any(matches)
        moved += not matches[12]
        assert label == source.labels_N[index]
    assert moved > 10


def test_inputs_span_minus_one_to_one():
    x = to_input(torch.tensor([0, 255], dtype=torch.uint8).view(1, 1, 2, 1))
    assert x.flatten().tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("shift", [0, 2])
def test_large_images_are_changed_one_by_one_to_the_same_bits(channels, shift, monkeypatch):
    source, recipe = images(20, side=9, channels=channels), Recipe(batch=16, shift=shift, flip=True)
    found = []
    for large in (1 << 30, 1):
        monkeypatch.setattr("bench.train.batches.LARGE", large)
        found.append(Batches(source, recipe=recipe, seed=1, device="cpu", fit=(9, channels))(3))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other) and one.stride() == other.stride()


@pytest.mark.parametrize("options", [{}, {"shift": 1, "flip": True}, {"crop": 0.5}], ids=["plain", "moved", "cut"])
def test_on_a_gpu_batches_are_the_same_pixels_not_yet_scaled(options):
    """What is cropped is rounded to the step's dtype; others' steps get what a processor makes."""
    source, recipe = images(20, side=9, channels=3), Recipe(batch=16, **{"shift": 0, "flip": False, **options})
    fits = (None, (9, 3), (12, 3))
    for fit in fits:
        wanted, labels = Batches(source, recipe=recipe, seed=1, device="cpu", fit=fit)(3)
        with posing():
            found, again = Batches(source, recipe=recipe, seed=1, device="cuda", fit=fit)(3)
            theirs, _ = Batches(source, recipe=recipe, seed=1, device="cuda", fit=fit, scaled=True)(3)
        if fit == fits[-1]:
            assert torch.equal(found, wanted)
        elif "crop" in options:
            assert torch.equal(found, wanted.bfloat16()) and found.dtype == torch.bfloat16
        else:
            assert found.dtype == torch.uint8 and torch.equal(to_input(found.permute(0, 2, 3, 1)), wanted)
        assert torch.equal(theirs, wanted) and torch.equal(labels, again)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate")])
def test_images_that_do_not_fit_are_one_message(monkeypatch, error):
    def full(*_, **__):
        raise error

    monkeypatch.setattr(np, "require", full)
    with pytest.raises(UserError, match=r"noise need 0\.0 GiB, more than the free memory of cpu\.\n.*fewer"):
        Batches(images(10), recipe=Recipe(batch=2), seed=0, device="cpu")
