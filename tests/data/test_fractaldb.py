"""FractalDB's images: the published recipe, pure in (class, index), the same on every machine."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest

from bench.core.errors import UserError
from bench.core.seeds import uniforms
from bench.data.generated import fractals
from bench.data.load import load

SIZE = 28


def plain(label: int, index: int, *, split: str = "train") -> np.ndarray:
    """One image by the recipe in plain loops, from the class's parameters on."""
    systems = fractals.search(12)
    maps, choice = systems.maps_KM6[label].tolist(), systems.choice_KM[label].tolist()
    rows = fractals.weight_rows(split)
    weights = rows[index % len(rows)].tolist()
    points, grid = round(2.5 * SIZE * SIZE), 2 * SIZE
    random = uniforms(f"fractaldb/orbit/{index // (4 * len(rows))}", count=points).tolist()
    x = y = 0.0
    track = []
    for number in random:
        chosen = next(m for m, limit in enumerate(choice) if number < limit)
        a, b, c, d, e, f = (p * w for p, w in zip(maps[chosen], weights, strict=True))
        x, y = a * x + b * y + e, c * x + d * y + f
        track.append((x, y))
    low = [min(p[i] for p in track) for i in (0, 1)]
    high = [max(p[i] for p in track) for i in (0, 1)]
    border = grid * 6 / 512
    stamp = int.from_bytes(
        hashlib.blake2b(f"fractaldb/patch/{split}/{label}/{index}".encode(), digest_size=2).digest(), "little"
    )
    stamp = stamp % 511 + 1
    fine = np.zeros((grid + 2, grid + 2), int)
    for point in track:
        column, row = (int((point[i] - low[i]) / (high[i] - low[i]) * (grid - 2 * border) + border) for i in (0, 1))
        for place in range(9):
            if stamp >> place & 1:  # the place in the stamp from which the point is seen
                fine[row + 2 - place // 3, column + 2 - place % 3] += 1
    counts = fine[1:-1, 1:-1].reshape(SIZE, 2, SIZE, 2).sum(axis=(1, 3))
    flip = index // len(rows) % 4
    counts = counts[:, ::-1] if flip in (1, 3) else counts
    counts = counts[::-1] if flip in (2, 3) else counts
    return np.rint(255 * np.log2(1 + counts) / np.log2(1 + counts.max()))


@pytest.mark.parametrize(
    ("label", "index", "split"), [(0, 0, "train"), (3, 1, "train"), (7, 131, "train"), (11, 77, "test")]
)
def test_the_recipe_in_plain_loops(label: int, index: int, split: str) -> None:
    drawn = fractals.draw(fractals.search(12), np.array([label]), np.array([index]), split=split, size=SIZE)[0]
    assert np.abs(drawn - plain(label, index, split=split)).max() <= 1  # logarithms of 12 binary places


def test_classes_are_found_as_published() -> None:
    few, many = fractals.search(12), fractals.search(40)
    np.testing.assert_array_equal(many.maps_KM6[:12], few.maps_KM6)
    used_KM = many.maps_KM6.any(axis=2)
    assert set(used_KM.sum(axis=1)) <= set(range(2, 8)) and len(set(used_KM.sum(axis=1))) >= 4
    assert np.abs(many.maps_KM6).max() <= 1
    determinants_KM = np.abs(np.linalg.det(many.maps_KM6[..., :4].reshape(40, -1, 2, 2)))
    probability_KM = np.diff(many.choice_KM, axis=1, prepend=0)
    np.testing.assert_allclose(probability_KM, determinants_KM / determinants_KM.sum(axis=1, keepdims=True), atol=1e-12)
    assert (fractals._fill(many) >= 0.2).all()
    assert [row.tolist().count(1.0) for row in fractals.weight_rows("train")] == [6] + 24 * [5]


def test_an_image_depends_on_class_and_index_alone() -> None:
    systems = fractals.search(12)
    labels, indices = np.repeat(np.arange(12), 3), np.tile([0, 26, 1234], 12)
    together = fractals.draw(systems, labels, indices, split="train", size=SIZE)
    order = np.random.default_rng(0).permutation(36)
    np.testing.assert_array_equal(
        fractals.draw(systems, labels[order], indices[order], split="train", size=SIZE), together[order]
    )
    for row in (0, 10, 35):
        alone = fractals.draw(fractals.search(40), labels[[row]], indices[[row]], split="train", size=SIZE)
        np.testing.assert_array_equal(alone[0], together[row])


def test_larger_sets_hold_smaller_ones() -> None:
    small, large = load("fractaldb:12x5", "train", root=None), load("fractaldb:30x8", "train", root=None)
    assert len(small) == 60 and len(large) == 240
    pairs = set(zip(large.content_keys_N.tolist(), large.labels_N.tolist(), strict=True))
    assert set(zip(small.content_keys_N.tolist(), small.labels_N.tolist(), strict=True)) <= pairs
    assert np.bincount(small.labels_N).tolist() == [5] * 12


def test_images_differ() -> None:
    train, test = (load("fractaldb:12x200", split) for split in ("train", "test"))
    assert len(np.unique(train.content_keys_N)) == len(train)
    assert not set(train.content_keys_N) & set(test.content_keys_N)


def test_the_same_bytes_on_every_machine() -> None:
    assert load("fractaldb:12x5", "train").content_hash[:16] == "73e33da2bde7b431"
    assert load("fractaldb:3x4:32px", "test").images_NHWC.shape == (12, 32, 32, 1)


def test_logarithms() -> None:
    table = fractals.log2_fixed(5000)
    assert all(0 <= 4096 * math.log2(1 + n) - table[n] <= 2 for n in range(5000))


def test_a_variation_that_diverges_is_drawn_as_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    systems, first = fractals.search(12), (np.array([0]), np.array([0]))
    expected = fractals.draw(systems, *first, split="train", size=SIZE)
    monkeypatch.setattr(fractals, "weight_rows", lambda split: np.full((1, 6), 5.0))
    np.testing.assert_array_equal(fractals.draw(systems, *first, split="train", size=SIZE), expected)


@pytest.mark.parametrize(
    "option", ["10", "10x", "1x5", "10x0", "10x10:999px", "10x10:8px", "100000x9999999", "axb", "10x10x10"]
)
def test_options(option: str) -> None:
    with pytest.raises(UserError, match="fractaldb:"):
        load(f"fractaldb:{option}", "train")
