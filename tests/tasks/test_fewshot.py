"""The few-shot task as a whole: draws, metrics, missing scores, shared work."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from bench.core.errors import UserError
from bench.data.image_set import ImageSet
from bench.tasks import fewshot
from bench.tasks._contract import TaskContext
from bench.tasks._ridge import BIAS_FEATURE, STD_FLOOR

CLASSES = 8


def image_set(split: str, count: int = 600, seed: int = 0) -> ImageSet:
    """Noise images around one template per class: learnable from their pixels."""
    rng = np.random.default_rng(seed + (split == "test"))
    templates = np.random.default_rng(99).integers(60, 196, (CLASSES, 6, 6, 1))
    labels_N = rng.integers(0, CLASSES, count)
    images = np.clip(templates[labels_N] + rng.normal(0, 80, (count, 6, 6, 1)), 0, 255).astype(np.uint8)
    names = tuple(str(k) for k in range(CLASSES))
    return ImageSet(name="toy", split=split, images_NHWC=images, labels_N=labels_N, class_names=names, kind="rendered")


class Counting:
    """Pixels as features; remembers how many images it was asked for, and how often."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, images_NHWC: np.ndarray) -> np.ndarray:
        self.calls.append(len(images_NHWC))
        return images_NHWC.reshape(len(images_NHWC), -1).astype(np.float32)


def context(features: object = None, seed: int = 0) -> TaskContext:
    return TaskContext(features=features or Counting(), load=lambda name, split: image_set(split), seed=seed)  # type: ignore[arg-type]


def test_every_shot_draw_and_metric_has_a_score() -> None:
    scores = fewshot.evaluate(context(), data="toy", shots=(5, 1), draws=2, test_limit=100)
    assert {(s.metric, s.shots, s.draw) for s in scores} == {
        (metric, k, draw) for metric in ("accuracy", "accuracy_fixed_ridge") for k in (1, 5) for draw in (0, 1)
    }
    for score in scores:
        assert score.task == "fewshot" and score.data == "toy" and score.num_test == 100
        assert score.chance == 1 / CLASSES and score.num_classes == CLASSES
        assert score.value is not None and score.stderr == pytest.approx((score.value * (1 - score.value) / 100) ** 0.5)
        assert score.shots is not None and score.detail["num_support"] == score.shots * CLASSES
        if score.metric == "accuracy_fixed_ridge" or score.shots == 1:
            assert score.detail["ridge"] == 1024
    values = {s.shots: s.value or 0.0 for s in scores if s.metric == "accuracy" and s.draw == 0}
    assert values[5] > values[1] > 1 / CLASSES


def test_features_are_extracted_once() -> None:
    features = Counting()
    fewshot.evaluate(context(features), data="toy", shots=(1, 5, 10), draws=3, test_limit=100)
    assert len(features.calls) == 2
    assert features.calls[0] <= 3 * 10 * CLASSES and features.calls[1] == 100


def test_the_published_protocol_written_out() -> None:
    train, test = image_set("train"), image_set("test")
    scores = fewshot.evaluate(context(), data="toy", shots=(5,), draws=2, ridge="published", test_limit=None)
    for draw, (indices, ranks) in enumerate(fewshot.draw_support(train, data="toy", shots=(5,), draws=2)):
        chosen = indices[ranks < 5]
        assert np.bincount(train.labels_N[chosen]).tolist() == [5] * CLASSES
        x = train.images_NHWC[chosen].reshape(len(chosen), -1).astype(np.float64)
        mean, std = x.mean(0), x.std(0) + STD_FLOOR
        add = lambda z: np.concatenate([(z - mean) / std, np.full((len(z), 1), BIAS_FEATURE)], axis=1)  # noqa: B023, E731
        y = 2.0 * np.eye(CLASSES)[train.labels_N[chosen]] - 1.0
        model = Ridge(alpha=1024, fit_intercept=False, solver="cholesky").fit(add(x), y)
        predicted = model.predict(add(test.images_NHWC.reshape(len(test), -1).astype(np.float64))).argmax(1)
        assert scores[draw].value == np.mean(predicted == test.labels_N)


def test_draws_depend_on_the_data_alone() -> None:
    one = fewshot.evaluate(context(seed=0), data="toy", shots=(5,), draws=3)
    other = fewshot.evaluate(context(seed=7), data="toy", shots=(5,), draws=3)
    assert one == other
    assert len({s.value for s in one if s.metric == "accuracy"}) > 1


def test_draws_do_not_follow_the_order_in_the_file() -> None:
    def shuffled(name: str, split: str) -> ImageSet:
        images = image_set(split)
        return images.take(np.random.default_rng(5).permutation(len(images)))

    one = fewshot.evaluate(context(), data="toy", shots=(1, 5), draws=2)
    other = fewshot.evaluate(TaskContext(features=Counting(), load=shuffled), data="toy", shots=(1, 5), draws=2)
    assert [s.value for s in one] == [s.value for s in other]


def test_short_classes_contribute_what_they_have() -> None:
    def load(name: str, split: str) -> ImageSet:
        images = image_set(split)
        return images.take(np.flatnonzero((images.labels_N != 0) | (np.arange(len(images)) < 30)))

    few = int((load("toy", "train").labels_N == 0).sum())
    assert 0 < few < 25
    scores = fewshot.evaluate(TaskContext(features=Counting(), load=load), data="toy", shots=(25,), draws=1)
    assert dict(scores[0].detail)["num_support"] == few + 25 * (CLASSES - 1)


def test_draws_of_a_pool_that_is_used_up_say_they_are_the_same_images() -> None:
    """At 10 shots no class lacks an image, and yet there is nothing to choose from."""
    pool = {"shots": (5, 10, 25), "support_pool": 10 * CLASSES}
    scores = fewshot.evaluate(context(), data="toy", draws=2, **pool)
    assert {(s.shots, s.detail["num_support"]) for s in scores} == {(5, 40), (10, 80), (25, 80)}
    assert {s.shots for s in scores if s.detail.get("same_images")} == {10, 25}
    for k in (10, 25):
        assert len({s.value for s in scores if s.shots == k and s.metric == "accuracy"}) == 1
    assert not any("same_images" in s.detail for s in fewshot.evaluate(context(), data="toy", draws=1, **pool))


def test_a_diverged_model_has_no_score_rather_than_zero() -> None:
    def diverged(images_NHWC: np.ndarray) -> np.ndarray:
        return np.full((len(images_NHWC), 4), np.nan, dtype=np.float32)

    scores = fewshot.evaluate(context(diverged), data="toy", shots=(1, 5), draws=2)
    assert len(scores) == 8
    assert all(s.value is None and s.stderr is None and "finite" in s.detail["reason"] for s in scores)


def test_constant_features_give_chance_and_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    scores = fewshot.evaluate(
        context(lambda images: np.ones((len(images), 4), dtype=np.float32)), data="toy", shots=(5,), draws=1
    )
    assert all(s.value is not None and s.value < 3 / CLASSES for s in scores)
    assert not recwarn.list


def test_each_strength_has_a_score_and_those_published_and_chosen_agree() -> None:
    options = {"data": "toy", "shots": (1, 5), "draws": 2, "test_limit": 200}
    each = {(s.shots, s.draw, s.metric): s for s in fewshot.evaluate(context(), ridge="each", **options)}
    assert len(each) == 2 * 2 * len(fewshot.RIDGES)
    for score in fewshot.evaluate(context(), ridge="both", **options):
        same = each[score.shots, score.draw, f"accuracy_ridge_{score.detail['ridge']:g}"]
        assert same.value == score.value and same.detail["ridge"] == score.detail["ridge"]


@pytest.mark.parametrize("options", [{"shots": ()}, {"shots": (0,)}, {"draws": 0}, {"ridge": "best"}])
def test_options_out_of_range(options: dict) -> None:
    with pytest.raises(UserError):
        fewshot.evaluate(context(), data="toy", **options)


@pytest.mark.parametrize("pool, draws", [(None, 1), (None, 3), (400, 3), (100, 3), (40, 3), (10_000, 8)])
def test_a_plan_counts_the_images_that_are_drawn(pool: int | None, draws: int) -> None:
    """Within the pool, and each once, however many draws have it."""
    features = Counting()
    fewshot.evaluate(context(features), data="toy", draws=draws, test_limit=100, support_pool=pool)
    planned = fewshot.forward_images(
        num_train=600, num_test=600, num_classes=CLASSES, draws=draws, test_limit=100, support_pool=pool
    )
    assert planned - 100 == pytest.approx(features.calls[0], rel=0.03)
    if pool is not None and pool <= 25 * CLASSES:
        assert planned == sum(features.calls) == pool + 100


def test_a_plan_of_many_classes_is_bound_by_the_pool() -> None:
    size = {"num_train": 1_281_167, "num_test": 50_000, "num_classes": 1_000}
    assert fewshot.forward_images(**size) == 10_000 + 2_000
    assert fewshot.forward_images(**size, support_pool=None, draws=1) == 25_000 + 2_000
    pooled = fewshot.solving_seconds(**size, features=384)
    assert pooled == fewshot.solving_seconds(**size | {"num_train": 10_000}, features=384)
    assert pooled < 0.8 * fewshot.solving_seconds(**size, features=384, support_pool=None)
