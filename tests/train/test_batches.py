"""Batches: a function of seed and step, cropped, and read from anywhere."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torchvision.transforms.functional import InterpolationMode, resized_crop

from bench.core.errors import UserError
from bench.data.image_set import ImageSet
from bench.study.cell import Recipe
from bench.train.batches import RATIOS, Batches, crop_boxes, cropped, to_input
from bench.train.ranks import Ranks
from tests.conftest import PROJECT
from tests.gpu.posing import posing

# -- order and augmentation are functions of (seed, step), and no image is left out of an epoch ------------------------


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


@pytest.mark.parametrize("recipe", [Recipe(batch=8, shift=2, flip=True), Recipe(batch=8, shift=0, crop=0.05)])
def test_a_batch_depends_on_seed_and_step_alone(recipe):
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
    batches = []
    for large in (1 << 30, 1):
        monkeypatch.setattr("bench.train.batches.LARGE_IMAGE_BYTES", large)
        batches.append(Batches(source, recipe=recipe, seed=1, device="cpu", fit=(9, channels))(3))
    for one, other in zip(*batches, strict=True):
        assert torch.equal(one, other) and one.stride() == other.stride()


@pytest.mark.parametrize("options", [{}, {"shift": 1, "flip": True}, {"crop": 0.5}], ids=["plain", "moved", "cut"])
def test_on_a_gpu_batches_are_the_same_pixels_not_yet_scaled(options):
    """Cropped images are rounded to the step's dtype; others' steps get what a processor makes."""
    source, recipe = images(20, side=9, channels=3), Recipe(batch=16, **{"shift": 0, "flip": False, **options})
    fits = (None, (9, 3), (12, 3))
    for fit in fits:
        wanted, labels = Batches(source, recipe=recipe, seed=1, device="cpu", fit=fit)(3)
        with posing():
            on_gpu, again = Batches(source, recipe=recipe, seed=1, device="cuda", fit=fit)(3)
            theirs, _ = Batches(source, recipe=recipe, seed=1, device="cuda", fit=fit, scaled=True)(3)
        if fit == fits[-1]:
            assert torch.equal(on_gpu, wanted)
        elif "crop" in options:
            assert torch.equal(on_gpu, wanted.bfloat16()) and on_gpu.dtype == torch.bfloat16
        else:
            assert on_gpu.dtype == torch.uint8 and torch.equal(to_input(on_gpu.permute(0, 2, 3, 1)), wanted)
        assert torch.equal(theirs, wanted) and torch.equal(labels, again)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate")])
def test_images_that_do_not_fit_are_one_message(monkeypatch, error):
    def full(*_, **__):
        raise error

    monkeypatch.setattr(np, "require", full)
    with pytest.raises(UserError, match=r"noise need 0\.0 GiB, more than the free memory of cpu\.\n.*fewer"):
        Batches(images(10), recipe=Recipe(batch=2), seed=0, device="cpu")


# -- random crops: boxes as TensorFlow draws them, pixels as torchvision's crop and resize gives them ------------------


SIZES = [(28, 28), (224, 224), (32, 48), (64, 20), (1, 1), (2, 3)]


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("least", [0.05, 0.5, 1.0])
def test_boxes_lie_inside_and_keep_their_share_and_shape(height: int, width: int, least: float) -> None:
    boxes = crop_boxes(np.random.default_rng(1), number=5_000, height=height, width=width, least=least)
    top, left, tall, wide = boxes
    assert (boxes[:2] >= 0).all() and (boxes[2:] >= 1).all()
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


def test_cropped_images_have_the_size_and_the_range_of_whole_ones() -> None:
    plain = Batches(images(40, 12, 3), recipe=Recipe(batch=8, shift=0), seed=1, device="cpu")
    x_BCHW, _ = Batches(images(40, 12, 3), recipe=Recipe(batch=8, shift=0, crop=0.05), seed=1, device="cpu")(7)
    assert torch.equal(plain(7)[0], to_input(plain.images_NHWC[plain.indices(7)]))
    assert not torch.equal(plain(7)[0], x_BCHW) and x_BCHW.shape == plain(7)[0].shape
    assert x_BCHW.min() >= -1 and x_BCHW.max() <= 1


# -- batches do not depend on where images are read from, by how many readers, ranks and restarts ----------------------


AUGMENTED = Recipe(batch=12, shift=2, flip=True, crop=0.3)


class Rank(Ranks):
    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@pytest.fixture
def mapped(tmp_path) -> ImageSet:
    resident = images(50, side=8, channels=3)
    np.save(tmp_path / "pixels.npy", resident.images_NHWC)
    return replace(resident, images_NHWC=np.load(tmp_path / "pixels.npy", mmap_mode="r"))


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_mapped_images_give_the_batches_of_resident_ones_in_any_order(mapped, workers):
    resident = Batches(mapped, recipe=AUGMENTED, seed=3, device="cpu", tier="resident")
    other = Batches(mapped, recipe=AUGMENTED, seed=3, device="cpu", tier="mapped", workers=workers)
    for step in (0, 1, 2, 7, 8, 3):
        for one, two in zip(resident(step), other(step), strict=True):
            assert torch.equal(one, two)


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_share_a_batch(mapped, size):
    whole = Batches(mapped, recipe=AUGMENTED, seed=3, device="cpu", tier="resident")(5)
    shares = [
        Batches(mapped, recipe=AUGMENTED, seed=3, device="cpu", tier="mapped", workers=0, ranks=Rank(rank, size))(5)
        for rank in range(size)
    ]
    for one, parts in zip(whole, zip(*shares, strict=True), strict=True):
        assert torch.equal(one, torch.cat(parts))


def test_the_tier_follows_from_the_memory(mapped):
    assert mapped.tier(10 * mapped.decoded_bytes) == "resident"
    assert mapped.tier(2 * mapped.decoded_bytes) == "mapped"


def test_a_part_of_a_large_map_stays_on_the_disk(mapped, monkeypatch):
    order = np.random.default_rng(1).permutation(50)[:40]
    in_memory = mapped.take(order).take(np.arange(9))
    monkeypatch.setattr("bench.data.image_set.IN_MEMORY", 10)
    lazy = mapped.take(order).take(np.arange(9))
    assert isinstance(in_memory.images_NHWC, np.ndarray) and not isinstance(lazy.images_NHWC, np.ndarray)
    assert lazy.content_hash == in_memory.content_hash
    assert np.array_equal(lazy.content_keys_N, in_memory.content_keys_N)


ENDING = """
import sys
import numpy as np
from bench.study.cell import Recipe
from bench.data.image_set import ImageSet
from bench.train.batches import Batches

pixels = np.load(sys.argv[1], mmap_mode="r")
images = ImageSet(name="noise", split="train", images_NHWC=pixels, labels_N=np.arange(50) % 10,
                  class_names=tuple("0123456789"), kind="rendered")
batches = Batches(images, recipe=Recipe(batch=12), seed=0, device="cpu", tier="mapped", workers=2)
batches(0)
sys.exit(sys.argv[2] or 0)
"""


@pytest.mark.gate
@pytest.mark.parametrize("error", ["", "no more"])
def test_a_process_ends_while_its_readers_wait(mapped, error):
    """Python waits for child processes when it ends, and so would this test; pipes end when the last reader has."""
    command = [sys.executable, "-c", ENDING, mapped.images_NHWC.filename, error]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr.strip()) == (bool(error), error)
