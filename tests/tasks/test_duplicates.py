"""Every task says how many of its test images upstream holds, and what it scores without them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bench.core import registry
from bench.data import dedup
from bench.data.image_set import ImageSet
from bench.data.load import load
from bench.tasks._contract import TaskContext, balanced_part, judged

PLANTED = 40
FROZEN = ("fewshot", "knn", "linear")
OPTIONS = {"fewshot": {"shots": (5,), "draws": 1}, "knn": {"train_limit": 300}, "linear": {"train_limit": 300}}


def features(images_NHWC: np.ndarray) -> np.ndarray:
    return images_NHWC[:, ::4, ::4].reshape(len(images_NHWC), -1).astype(np.float32)


@cache
def upstream() -> ImageSet:
    """Training images of Fashion-MNIST, with mirrored copies of some of the test images that are judged."""
    train = load("fashion-mnist", "train", num_images=500)
    test = balanced_part(load("fashion-mnist", "test"), 200)
    stolen = test.images_NHWC[:PLANTED, :, ::-1]
    return replace(
        train,
        images_NHWC=np.concatenate([train.images_NHWC, stolen]),
        labels_N=np.concatenate([train.labels_N, test.labels_N[:PLANTED]]),
    )


def scores(task: str, context: TaskContext) -> list:
    return registry.load("task", task).evaluate(context, data="fashion-mnist", test_limit=200, **OPTIONS[task])


@pytest.mark.parametrize("task", FROZEN)
def test_planted_copies_are_counted_and_left_out(task: str) -> None:
    for score in scores(task, TaskContext(features=features, load=load, upstream=upstream())):
        detail = score.detail
        assert detail["num_duplicates"] == PLANTED
        # `value` and `value_without_duplicates` are counts over 200 and over 160 images, one of which holds the other.
        right, right_without = score.value * 200, detail["value_without_duplicates"] * (200 - PLANTED)
        assert right == pytest.approx(round(right)) and right_without == pytest.approx(round(right_without))
        assert right - PLANTED <= right_without <= right


@pytest.mark.parametrize("task", FROZEN)
def test_none_found_is_said_as_zero_and_unknown_is_not_said(task: str) -> None:
    clean = load("shapes-orientation", "train", num_images=100)
    for score in scores(task, TaskContext(features=features, load=load, upstream=clean)):
        detail = score.detail
        assert detail["num_duplicates"] == 0 and detail["value_without_duplicates"] == score.value
    for score in scores(task, TaskContext(features=features, load=load)):
        assert "num_duplicates" not in score.detail


def test_copies_are_looked_for_once_per_pair_of_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    test = balanced_part(load("fashion-mnist", "test"), 200)
    first = dedup.copies(upstream(), test)
    assert np.flatnonzero(first).tolist() == list(range(PLANTED))
    monkeypatch.setattr(dedup, "find", lambda *_: pytest.fail("looked for again"))
    np.testing.assert_array_equal(dedup.copies(upstream(), replace(test, name="the same under another name")), first)


def test_a_judgement_is_the_plain_mean_with_and_without() -> None:
    right_M, copies_M = np.array([1, 1, 0, 0, 1], bool), np.array([1, 0, 0, 0, 0], bool)
    head = {"task": "t", "data": "d", "num_test": 5, "num_classes": 2}
    score = judged(right_M, copies_M=copies_M, detail={"more": 1}, **head)
    assert score.value == 0.6
    assert score.detail == {"more": 1, "num_duplicates": 1, "value_without_duplicates": 0.5}
    everything = judged(right_M, copies_M=np.ones(5, bool), **head)
    assert everything.detail == {"num_duplicates": 5, "value_without_duplicates": None}
