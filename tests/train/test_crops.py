"""Random crops: boxes as TensorFlow draws them, pixels as torchvision's crop and resize gives them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torchvision.transforms.functional import InterpolationMode, resized_crop

from bench.core.errors import UserError
from bench.core.spec import Recipe
from bench.data.image_set import ImageSet
from bench.train.batches import RATIOS, Batches, crop_boxes, cropped, to_input
from bench.train.ranks import Ranks

SIZES = [(28, 28), (224, 224), (32, 48), (64, 20), (1, 1), (2, 3)]


def images(count: int, side: int = 12) -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    return ImageSet(
        name="noise",
        split="train",
        images_NHWC=pixels,
        labels_N=np.arange(count) % 3,
        class_names=("a", "b", "c"),
        kind="rendered",
    )


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("least", [0.05, 0.5, 1.0])
def test_boxes_lie_inside_and_keep_their_share_and_shape(height: int, width: int, least: float) -> None:
    found = crop_boxes(np.random.default_rng(1), number=5_000, height=height, width=width, least=least)
    top, left, tall, wide = found
    assert (found[:2] >= 0).all() and (found[2:] >= 1).all()
    assert (top + tall <= height).all() and (left + wide <= width).all()
    rounding = 0.5 / tall + 0.5 / wide  # relative, of whole pixels
    within = (wide < width) & (tall > 1)  # the image's own edge comes before the ratio
    assert (wide / tall >= RATIOS[0] * (1 - rounding))[within].all()
    assert (wide / tall <= RATIOS[1] * (1 + rounding))[within].all()
    possible = min(1.0, (height / width) * RATIOS[1], (width / height) / RATIOS[0])  # of the area, at the best ratio
    if possible * 0.5 > least:
        assert (tall * wide >= least * height * width * (1 - 2 * rounding)).all()


def test_heights_and_places_are_uniform() -> None:
    top, left, tall, wide = crop_boxes(np.random.default_rng(2), number=40_000, height=224, width=224, least=0.05)
    ratio = wide / tall
    narrow = np.abs(ratio - 1) < 0.02  # heights then run from the root of 0.05 to the whole
    start = 224 * np.sqrt(0.05)
    assert stats.kstest((tall[narrow] - start) / (224 - start), "uniform").pvalue > 1e-3
    room = tall < 150
    assert stats.kstest((top[room] + 0.5) / (224 - tall[room] + 1), "uniform").pvalue > 1e-3
    room = wide < 150
    assert stats.kstest((left[room] + 0.5) / (224 - wide[room] + 1), "uniform").pvalue > 1e-3


def test_pixels_are_those_of_torchvision() -> None:
    x_BCHW = torch.rand(64, 3, 20, 28, generator=torch.Generator().manual_seed(0))
    found_4B = crop_boxes(np.random.default_rng(3), number=64, height=20, width=28, least=0.05)
    ours = cropped(x_BCHW, torch.from_numpy(found_4B))
    for image, crop, box in zip(x_BCHW, ours, found_4B.T.tolist(), strict=True):
        theirs = resized_crop(image, *box, size=[20, 28], interpolation=InterpolationMode.BILINEAR, antialias=False)
        torch.testing.assert_close(crop, theirs, atol=2e-5, rtol=0)


def test_the_whole_image_is_itself() -> None:
    x_BCHW = torch.rand(2, 1, 9, 7)
    torch.testing.assert_close(cropped(x_BCHW, torch.tensor([[0, 0], [0, 0], [9, 9], [7, 7]])), x_BCHW)


def test_a_batch_is_cropped_by_seed_and_step_alone_whatever_the_ranks() -> None:
    class Second(Ranks):
        rank, size = 1, 2

    recipe = Recipe(batch=8, shift=0, crop=0.05)
    batches, other = (Batches(images(40), recipe=recipe, seed=seed, device="cpu") for seed in (1, 2))
    x_BCHW, labels_B = batches(7)
    again = Batches(images(40), recipe=recipe, seed=1, device="cpu")(7)[0]
    assert torch.equal(x_BCHW, again)
    assert not torch.equal(x_BCHW, other(7)[0])
    half, labels = Batches(images(40), recipe=recipe, seed=1, device="cpu", ranks=Second())(7)
    assert torch.equal(half, x_BCHW[4:]) and torch.equal(labels, labels_B[4:])
    plain = Batches(images(40), recipe=Recipe(batch=8, shift=0), seed=1, device="cpu")
    assert torch.equal(plain(7)[0], to_input(plain.images_NHWC[plain.indices(7)]))
    assert not torch.equal(plain(7)[0], x_BCHW) and x_BCHW.shape == plain(7)[0].shape
    assert x_BCHW.min() >= -1 and x_BCHW.max() <= 1


def test_a_share_beyond_the_whole_is_refused() -> None:
    with pytest.raises(UserError, match=r"crop of 1\.5 is not a fraction"):
        Recipe(crop=1.5)
