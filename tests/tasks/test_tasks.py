"""The contract of every task: each file in bench/tasks/ that evaluates a frozen model is found by name and checked."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from bench.core import registry
from bench.core.errors import UserError
from bench.core.record import Score
from bench.data.image_set import ImageSet
from bench.store.prediction_bits import from_detail
from bench.tasks import knn, linear
from bench.tasks._contract import TaskContext, balanced_part
from tests.tasks.test_fewshot import CLASSES, Counting, image_set

NAMES = registry.names("task")
FROZEN = ("fewshot", "knn", "linear")


def context(features: object = None) -> TaskContext:
    return TaskContext(features=features or Counting(), load=lambda name, split: image_set(split))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_interface(name: str) -> None:
    module = registry.load("task", name)
    assert isinstance(module.REVISION, int) and module.REVISION >= 1
    parameters = inspect.signature(module.evaluate).parameters
    assert next(iter(parameters)) == "context" and "data" in parameters
    for parameter in list(parameters.values())[1:]:
        assert parameter.kind is parameter.KEYWORD_ONLY, "options are keywords"
        assert parameter.name == "data" or parameter.default is not parameter.empty, "options have defaults"


@pytest.mark.parametrize("name", FROZEN)
def test_scores_are_complete_and_repeatable(name: str) -> None:
    evaluate = registry.load("task", name).evaluate
    scores: list[Score] = evaluate(context(), data="toy", test_limit=200)
    assert scores and scores == evaluate(context(), data="toy", test_limit=200)
    for score in scores:
        assert (score.task, score.data, score.num_test, score.num_classes) == (name, "toy", 200, CLASSES)
        assert score.value is not None and 0 <= score.value <= 1 and score.stderr is not None
        assert score.chance == 1 / CLASSES
    assert max(s.value for s in scores if s.value is not None) > 0.6


@pytest.mark.parametrize("name", FROZEN)
def test_accuracies_hold_which_images_were_right(name: str) -> None:
    """In the order of the test images: an image whose label another file turns is wrong in its own place."""
    evaluate = registry.load("task", name).evaluate
    turned = np.random.default_rng(0).choice(200, 30, replace=False)

    def load(_: str, split: str) -> ImageSet:
        images = balanced_part(image_set(split), 200 if split == "test" else None)
        labels_N = images.labels_N.copy()
        labels_N[turned if split == "test" else []] += 1
        return replace(images, labels_N=labels_N % CLASSES)

    plain = evaluate(context(), data="toy", test_limit=200)
    other = evaluate(TaskContext(features=Counting(), load=load), data="toy", test_limit=None)
    for one, two in zip(plain, other, strict=True):
        bits, again = from_detail(one.detail), from_detail(two.detail)
        if one.metric != "accuracy":  # models are not compared by it
            assert bits is None and again is None
            continue
        assert bits is not None and again is not None
        assert bits.content_hash == balanced_part(image_set("test"), 200).content_hash != again.content_hash
        assert bits.num_images == one.num_test and bits.right_M.mean() == one.value
        same = np.setdiff1d(np.arange(200), turned)
        np.testing.assert_array_equal(bits.right_M[same], again.right_M[same])
        assert not (bits.right_M & again.right_M)[turned].any()
    assert any(score.metric == "accuracy" for score in plain)


@pytest.mark.parametrize("name", FROZEN)
def test_a_diverged_model_has_no_score(name: str) -> None:
    scores = registry.load("task", name).evaluate(
        context(lambda images: np.full((len(images), 3), np.inf, dtype=np.float32)), data="toy"
    )
    assert scores and all(s.value is None and s.stderr is None and s.detail for s in scores)


def test_knn_equals_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    train, labels, test = rng.normal(size=(300, 16)), rng.integers(0, 5, 300), rng.normal(size=(2500, 16))
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)  # noqa: E731
    weights = lambda distance: np.exp(-(distance**2) / 2 / 0.07)  # noqa: E731 (1 - cosine, for unit vectors)
    reference = KNeighborsClassifier(20, weights=weights, algorithm="brute").fit(unit(train), labels)
    found = knn.predict(train, labels, test, num_classes=5, neighbours=20, temperature=0.07)
    np.testing.assert_array_equal(found, reference.predict(unit(test)))


def test_linear_equals_scikit_learn_at_the_chosen_strength() -> None:
    train, test = image_set("train"), image_set("test")
    x, z = (s.images_NHWC.reshape(len(s), -1).astype(np.float64) for s in (train, test))
    found, strength = linear.fit_predict(x, train.labels_N, z, folds=3, max_iter=300)
    assert strength in linear.STRENGTHS
    mean, std = x.mean(0), x.std(0) + 1e-5
    model = LogisticRegression(C=strength, max_iter=300).fit((x - mean) / std, train.labels_N)
    np.testing.assert_array_equal(found, model.predict((z - mean) / std))


@pytest.mark.parametrize(
    ("name", "options"),
    [("knn", {"neighbours": 0}), ("knn", {"temperature": 0}), ("linear", {"folds": 1}), ("linear", {"train_limit": 8})],
)
def test_options_out_of_range(name: str, options: dict) -> None:
    with pytest.raises(UserError):
        registry.load("task", name).evaluate(context(), data="toy", **options)
