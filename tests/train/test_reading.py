"""Batches do not depend on where images are read from, by how many readers, ranks and restarts."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from bench.core.spec import Recipe
from bench.data.image_set import ImageSet
from bench.train.batches import Batches
from bench.train.ranks import Ranks
from tests.conftest import PROJECT

AUGMENTED = Recipe(batch=12, shift=2, flip=True, crop=0.3)


class Rank(Ranks):
    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@pytest.fixture
def mapped(tmp_path) -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), dtype=np.uint8)
    np.save(tmp_path / "pixels.npy", pixels)
    images_NHWC = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    names = tuple("0123456789")
    return ImageSet(
        name="noise",
        split="train",
        images_NHWC=images_NHWC,
        labels_N=np.arange(50) % 10,
        class_names=names,
        kind="rendered",
    )


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
from bench.core.spec import Recipe
from bench.data.image_set import ImageSet
from bench.train.batches import Batches

pixels = np.load(sys.argv[1], mmap_mode="r")
images = ImageSet(name="noise", split="train", images_NHWC=pixels, labels_N=np.arange(50) % 10,
                  class_names=tuple("0123456789"), kind="rendered")
batches = Batches(images, recipe=Recipe(batch=12), seed=0, device="cpu", tier="mapped", workers=2)
batches(0)
sys.exit(sys.argv[2] or 0)
"""


@pytest.mark.parametrize("error", ["", "no more"])
def test_a_process_ends_while_its_readers_wait(mapped, error):
    """Python waits for child processes when it ends, and so would this test; pipes end when the last reader has."""
    command = [sys.executable, "-c", ENDING, mapped.images_NHWC.filename, error]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr.strip()) == (bool(error), error)
