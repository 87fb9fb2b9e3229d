"""Subsets are nested, balanced, seeded, and follow content rather than file order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.data.image_set import ImageSet
from bench.data.subset import first_per_class, mix, nested, rank_within_class

labels = st.lists(st.integers(0, 7), min_size=1, max_size=120).map(np.array)


@given(labels_N=labels, data=st.data(), seed=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_smaller_subsets_lie_inside_larger_ones(labels_N: np.ndarray, data: st.DataObject, seed: int) -> None:
    small = data.draw(st.integers(0, len(labels_N)))
    large = data.draw(st.integers(small, len(labels_N)))
    smaller, larger = nested(labels_N, small, seed), nested(labels_N, large, seed)
    assert len(smaller) == small and len(set(larger)) == large
    np.testing.assert_array_equal(larger[:small], smaller)


@given(labels_N=labels, data=st.data(), seed=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_classes_differ_by_at_most_one_until_they_run_out(labels_N: np.ndarray, data: st.DataObject, seed: int) -> None:
    size = data.draw(st.integers(1, len(labels_N)))
    taken = np.bincount(labels_N[nested(labels_N, size, seed)], minlength=8)
    there = np.bincount(labels_N, minlength=8)
    not_exhausted = taken[(there > 0) & (taken < there)]
    if len(not_exhausted):
        assert taken.max() - not_exhausted.min() <= 1


@given(labels_N=labels, shots=st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_shots_are_nested_and_short_classes_give_what_they_have(labels_N: np.ndarray, shots: int) -> None:
    chosen, ranks = first_per_class(labels_N, shots, "draw")
    np.testing.assert_array_equal(
        np.bincount(labels_N[chosen], minlength=8), np.minimum(np.bincount(labels_N, minlength=8), shots)
    )
    fewer, _ = first_per_class(labels_N, max(1, shots // 2), "draw")
    assert set(fewer) == set(chosen[ranks < max(1, shots // 2)])


def test_rank_within_class() -> None:
    labels_N, order_N = np.array([1, 0, 1, 0, 1]), np.array([4, 3, 2, 1, 0])
    np.testing.assert_array_equal(rank_within_class(labels_N, order_N), [2, 1, 1, 0, 0])


def test_seeds_differ_and_repeat() -> None:
    labels_N = np.repeat(np.arange(10), 50)
    np.testing.assert_array_equal(nested(labels_N, 100, 3), nested(labels_N, 100, 3))
    assert set(nested(labels_N, 100, 3)) != set(nested(labels_N, 100, 4))
    with pytest.raises(ValueError, match="num_images"):
        nested(labels_N, -1)


def test_the_mixing_of_keys_never_changes() -> None:
    """Another answer here would silently change every subset of every old record."""
    keys = np.array([0, 1, 2**64 - 1], dtype=np.uint64)
    expected = [6899997948685167879, 10253773374000846323, 12534310086263283572]
    assert [int(x) for x in mix(keys, "nested/0")] == expected


def _random_set(count: int) -> ImageSet:
    rng = np.random.default_rng(0)
    return ImageSet(
        name="random",
        split="train",
        images_NHWC=rng.integers(0, 256, (count, 4, 4, 1), dtype=np.uint8),
        labels_N=rng.integers(0, 5, count),
        class_names=tuple("abcde"),
        kind="rendered",
    )


def test_content_decides_not_the_order_in_the_file() -> None:
    images = _random_set(200)
    shuffled = images.take(np.random.default_rng(1).permutation(200))
    for size in (10, 57, 200):
        one = images.take(nested(images.labels_N, size, keys_N=images.content_keys_N))
        other = shuffled.take(nested(shuffled.labels_N, size, keys_N=shuffled.content_keys_N))
        assert one.content_hash == other.content_hash


def test_a_part_drawn_by_the_rule_has_the_same_subsets_as_the_whole() -> None:
    """What lets the embedded part of Fashion-MNIST stand in for the full set."""
    images = _random_set(200)
    part = images.take(np.sort(nested(images.labels_N, 80, keys_N=images.content_keys_N)))
    for size in (5, 33, 80):
        whole = images.take(nested(images.labels_N, size, keys_N=images.content_keys_N))
        assert part.take(nested(part.labels_N, size, keys_N=part.content_keys_N)).content_hash == whole.content_hash
