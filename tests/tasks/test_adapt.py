"""Adapting by labelled images: each way is what its own task does; nothing is chosen on the test images."""

import base64
import io
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from bench.core.errors import UserError
from bench.data.image_set import ImageSet
from bench.store.prediction_bits import from_detail
from bench.study.record import Score
from bench.tasks import _logistic, adapt, fewshot, knn, linear
from bench.tasks._features import Kept, timed
from bench.tasks._folds import folds, together
from bench.tasks.task import TaskContext
from tests.data.test_dedup import jpeg
from tests.tasks.test_fewshot import CLASSES, Counting, context, image_set

TRAIN, TEST = image_set("train"), image_set("test")
LARGEST = int(np.bincount(TRAIN.labels_N).max())


def pixels(images: ImageSet) -> np.ndarray:
    return Counting()(images.images_NHWC)


@cache
def scores() -> list[Score]:
    return adapt.evaluate(context(), data="toy", sizes=(1, 5), draws=2)


def right(task: str, shots: int, draw: int = 0) -> np.ndarray:
    one = next(s for s in scores() if (s.task, s.shots, s.draw) == (f"adapt@{task}", shots, draw))
    bits = from_detail(one.detail)
    assert bits is not None
    return bits.right_M


def test_each_number_way_and_draw_has_a_score_and_all_images_one() -> None:
    assert {(s.task, s.shots, s.draw) for s in scores()} == {
        (f"adapt@{way}", shots, draw)
        for way in adapt.WAYS
        for shots, draw in [(1, 0), (1, 1), (5, 0), (5, 1), (LARGEST, 0)]
    }
    assert {s.detail["num_support"] for s in scores() if s.shots == LARGEST} == {len(TRAIN)}
    assert all(("validation" in s.detail) == (s.shots == LARGEST) for s in scores())


def test_ridge_is_the_few_shot_probe_on_its_draws() -> None:
    for score in fewshot.evaluate(context(), data="toy", shots=(1, 5), draws=2, ridge="loo", test_limit=None):
        bits = from_detail(score.detail)
        assert bits is not None
        np.testing.assert_array_equal(right("ridge", score.shots or 0, score.draw or 0), bits.right_M)


@pytest.mark.parametrize(("way", "task"), [("knn", knn), ("logistic", linear)])
def test_with_all_images_the_ways_are_the_probes(way: str, task: object) -> None:
    (score,) = task.evaluate(context(), data="toy", train_limit=None, test_limit=None)  # type: ignore[attr-defined]
    bits = from_detail(score.detail)
    assert bits is not None
    np.testing.assert_array_equal(right(way, LARGEST), bits.right_M)


def test_validation_equals_scikit_learn() -> None:
    x = pixels(TRAIN).astype(np.float64)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    model = KNeighborsClassifier(20, weights=lambda d: np.exp(-(d**2) / 2 / 0.07), algorithm="brute")
    folds = StratifiedKFold(adapt.FOLDS, shuffle=True, random_state=0)
    expected = (cross_val_predict(model, unit, TRAIN.labels_N, cv=folds) == TRAIN.labels_N).mean()
    measured_N = adapt.cross_validated(adapt.neighbours, x, TRAIN.labels_N, num_classes=CLASSES)
    assert measured_N is not None and (measured_N == TRAIN.labels_N).mean() == pytest.approx(expected)


def test_logistic_with_one_image_of_a_class_is_scikit_learns_own() -> None:
    x, few = pixels(TRAIN), np.unique(TRAIN.labels_N, return_index=True)[1]
    mean, std = x[few].mean(0, dtype=np.float64), x[few].std(0, dtype=np.float64) + 1e-5
    model = LogisticRegression(max_iter=1_000).fit((x[few] - mean) / std, TRAIN.labels_N[few])
    predicted = adapt.logistic(x[few], TRAIN.labels_N[few], pixels(TEST), CLASSES)
    np.testing.assert_array_equal(predicted, model.predict((pixels(TEST) - mean) / std))


def test_validation_and_choice_do_not_see_the_test_images() -> None:
    """Other test labels change every accuracy, and no validation."""
    turned = replace(TEST, labels_N=(TEST.labels_N + 1) % CLASSES)
    sets = {"train": TRAIN, "test": turned}
    other = TaskContext(features=Counting(), load=lambda _, split: sets[split])
    plain, changed = (
        adapt.evaluate(c, data="toy", ways=("ridge", "knn"), sizes=(5,), draws=1) for c in (context(), other)
    )
    for a, b in zip(plain, changed, strict=True):
        assert a.detail.get("validation") == b.detail.get("validation") and a.value != b.value


def test_errors_name_classes_and_add_up() -> None:
    score = adapt.evaluate(context(), data="toy", ways=("ridge",), sizes=(1,), draws=1)[-1]
    wrong = sum(number for *_, number in score.detail["errors"])
    assert score.value == pytest.approx(1 - wrong / len(TEST))
    assert all(taken != name and name in TRAIN.class_names for name, taken, _ in score.detail["errors"])


@pytest.mark.parametrize(
    ("options", "answer"),
    [({"ways": ("rdge",)}, "way of adapting"), ({"sizes": ()}, "Few-shot needs"), ({"draws": 0}, "Few-shot needs")],
)
def test_options_out_of_range(options: dict, answer: str) -> None:
    with pytest.raises(UserError, match=answer):
        adapt.evaluate(context(), data="toy", **options)


def test_a_plan_counts_the_images_that_pass() -> None:
    features = Counting()
    adapt.evaluate(context(features), data="toy", ways=("knn",), sizes=(1,), train_limit=100, test_limit=50)
    assert sum(features.calls) == adapt.forward_images(num_train=600, num_test=600, train_limit=100, test_limit=50)


def test_features_are_kept_by_weights_and_pixels_of_each_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path))
    model, images = torch.nn.Linear(2, 2), TRAIN.images_NHWC[:8]
    changed = images.copy()
    changed[3, 0, 0, 0] ^= 1
    computed = Counting()
    features = Kept(computed, model=model, about="28 px")
    (first_ND, seconds), (again_ND, same_seconds) = timed(features, images), timed(features, images)
    np.testing.assert_array_equal(first_ND, again_ND)
    np.testing.assert_array_equal(first_ND, Counting()(images))
    assert computed.calls == [8] and seconds == same_seconds > 0
    np.testing.assert_array_equal(features(changed), Counting()(changed))
    np.testing.assert_array_equal(features(changed[[5, 3]]), Counting()(changed)[[5, 3]])
    assert computed.calls == [8, 1]  # the image that was changed
    Kept(computed, model=model, about="56 px")(images)
    with torch.no_grad():
        model.weight[0, 0] += 1
    Kept(computed, model=model, about="28 px")(images)
    assert computed.calls == [8, 1, 8, 8]


@pytest.mark.parametrize(("classes", "number"), [(2, 40), (3, 40), (CLASSES, 600)])
def test_logistic_regression_is_the_optimum_of_scikit_learn(classes: int, number: int) -> None:
    """For each strength, of fewer and of more examples than features, and of two classes, which it takes for one."""
    kept = np.flatnonzero(TRAIN.labels_N < classes)[:number]
    x, labels = pixels(TRAIN)[kept], TRAIN.labels_N[kept]
    rotated = _logistic.rotate(x)
    standard = (x - rotated.mean_D) / rotated.std_D
    strengths = (1e-3, 1e-1)
    weights = _logistic.path(rotated.z_NR, labels, rotated.variance_R, strengths)
    for strength, w_RK in zip(strengths, weights, strict=True):
        model = LogisticRegression(C=strength, max_iter=10_000, tol=1e-8).fit(standard, labels)
        logits_NK = rotated(x) @ w_RK[:-1] + w_RK[-1]
        shares_NK = np.exp(logits_NK - logits_NK.max(1, keepdims=True))
        np.testing.assert_allclose(
            shares_NK / shares_NK.sum(1, keepdims=True), model.predict_proba(standard), atol=0.01
        )


# -- photos: copies, and what is shown of them -------------------------------------------------------------------------


def textures(count: int, seed: int) -> np.ndarray:
    """Smooth random pictures (N, 28, 28, 3), none of which is a copy of another."""
    rng = np.random.default_rng(seed)
    coarse = [Image.fromarray(rng.integers(0, 256, (7, 7, 3), dtype=np.uint8)) for _ in range(count)]
    return np.stack([np.asarray(one.resize((28, 28), Image.Resampling.BICUBIC)) for one in coarse])


def photos(split: str, images: np.ndarray, labels: np.ndarray) -> ImageSet:
    names = ("a", "b", "c")
    return ImageSet(
        name="photos", split=split, images_NHWC=images, labels_N=labels, class_names=names, kind="own images"
    )


def test_copies_of_test_images_are_set_aside_and_contrary_labels_counted() -> None:
    train, test = textures(60, 0), textures(30, 1)
    labels, test_labels = np.arange(60) % 3, np.arange(30) % 3
    for place, copied in ((3, 6), (10, 4), (20, 2)):  # of one label, of one label, and then
        train[place] = jpeg(85)(test[copied])
    labels[20] = (test_labels[2] + 1) % 3
    train[41], labels[41] = jpeg(85)(train[40]), (labels[40] + 1) % 3  # within the training images
    test[9], test_labels[9] = jpeg(85)(test[8]), test_labels[8]  # of one label: no noise
    sets = {"train": photos("train", train, labels), "test": photos("test", test, test_labels)}
    features = Counting()
    photographed = TaskContext(features=features, load=lambda _, split: sets[split])
    last = adapt.evaluate(photographed, data="photos", ways=("knn",), sizes=(1,), draws=1)[-1]
    assert last.detail["set_aside"] == 3 and last.detail["num_support"] == 57
    assert last.detail["contrary"] == 2
    shown = [[(one["split"], one["class"]) for one in pair] for pair in last.detail["contrary_pictures"]]
    names = sets["train"].class_names
    assert shown[0] == [("train", names[labels[20]]), ("test", names[test_labels[2]])]
    assert shown[1] == [("train", names[labels[40]]), ("train", names[labels[41]])]
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(last.detail["contrary_pictures"][0][1]["jpeg"]))))
    assert np.abs(picture.astype(int) - test[2]).mean() < 12  # it is that image, and no other
    assert [row[1] for row in last.detail["classes"]] == np.bincount(np.delete(labels, [3, 10, 20])).tolist()

    everything = replace(sets["train"], images_NHWC=np.concatenate([test[2:3], train[1:3]]), labels_N=np.arange(3))
    sets["train"] = everything
    with pytest.raises(UserError, match="every training image of a is a copy"):
        adapt.evaluate(photographed, data="photos", ways=("knn",), sizes=(1,), draws=1)


def test_the_surest_errors_are_those_of_the_largest_margin() -> None:
    last = next(s for s in scores() if s.task == "adapt@ridge" and s.shots == LARGEST)
    judged = adapt.ridge_scores(pixels(TRAIN), TRAIN.labels_N, pixels(TEST), CLASSES)
    taken = judged.argmax(1)
    margin = judged.max(1) - judged[np.arange(len(TEST)), TEST.labels_N]
    surest = int(np.where(taken != TEST.labels_N, margin, -1).argmax())
    first = last.detail["surest_errors"][0]
    assert (first["class"], first["taken"]) == (str(TEST.labels_N[surest]), str(taken[surest]))
    margins = sorted(margin[taken != TEST.labels_N], reverse=True)
    assert len(last.detail["surest_errors"]) == min(12, len(margins))


def test_classes_count_what_cross_validation_gets_right() -> None:
    last = next(s for s in scores() if s.task == "adapt@knn" and s.shots == LARGEST)
    rows = last.detail["classes"]
    assert [row[1] for row in rows] == np.bincount(TRAIN.labels_N).tolist()
    assert [row[3] for row in rows] == np.bincount(TEST.labels_N).tolist()
    assert sum(row[2] for row in rows) / len(TRAIN) == pytest.approx(last.detail["validation"])


# -- groups ------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(4, 20), st.integers(2, 4))
def test_folds_keep_groups_whole_and_have_every_class_to_learn(seed: int, groups: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    of = rng.integers(0, groups, 60)
    labels = rng.integers(0, classes, 60)
    parts = folds(labels, of, 3)
    if parts is None:
        assert min(len(np.unique(of[labels == k])) for k in range(classes)) < 3 * classes  # scikit-learn's is greedy
        return
    assert sorted(np.concatenate([left for _, left in parts]).tolist()) == list(range(60))
    for fitted, left in parts:
        assert not np.intersect1d(of[fitted], of[left]).size and set(labels[fitted]) == set(labels)


def test_what_only_the_group_tells_is_not_validated() -> None:
    """Features that name the group, and nothing of the class: without groups, validation sees each again."""
    rng = np.random.default_rng(0)
    of = np.repeat(np.arange(30), 6).astype(np.uint64)
    x, labels = (
        np.eye(30, dtype=np.float32)[of.astype(int)] + 0.01 * rng.random((180, 30)),
        np.repeat(np.arange(30) % 3, 6),
    )
    for way in adapt.WAYS.values():
        alone, whole = (adapt.cross_validated(way, x, labels, num_classes=3, groups_N=g) for g in (None, of))
        assert alone is not None and whole is not None
        assert (alone == labels).mean() > 0.95 and (whole == labels).mean() < 0.6


@given(
    st.lists(st.integers(0, 40), min_size=30, max_size=90),
    st.lists(st.integers(0, 40), min_size=90, max_size=90),
    st.booleans(),
)
def test_images_belong_together_by_group_by_copy_and_by_both(shown: list[int], of: list[int], grouped: bool) -> None:
    """Against connected components found one by one; what they are called follows from the images, not their order."""
    noise = np.random.default_rng(0).integers(0, 256, (41, 6, 6, 1), dtype=np.uint8)
    keys, groups = np.array(shown), np.array(of[: len(shown)])
    labelled = replace(
        TRAIN,
        images_NHWC=noise[keys],
        labels_N=np.arange(len(keys)) % CLASSES,
        groups_N=groups.astype(np.uint64) if grouped else None,
    )
    expected, least = np.arange(len(keys)), np.array([])
    while not np.array_equal(least, expected):
        least = expected
        for same in (keys, groups) if grouped else (keys,):
            expected = np.array([expected[same == one].min() for one in same])
    found = together(labelled)
    if found is None:
        assert len(np.unique(expected)) == len(keys)
        return
    assert len(np.unique(np.stack([found, expected]), axis=1).T) == len(np.unique(found)) == len(np.unique(expected))
    assert len(np.unique(expected)) < len(keys)
    turned = together(labelled.take(np.arange(len(keys))[::-1]))
    assert turned is not None and np.array_equal(turned[::-1], found)


def test_what_only_a_copy_tells_is_not_validated() -> None:
    """Photos with labels by chance, each there twice, as it is or saved again: divided, every second is recognised.
    Where no image is a copy, nothing is kept together, and all is as without the search."""
    assert together(TRAIN) is None
    first, labels = textures(90, 0), np.random.default_rng(0).permutation(np.arange(90) % 3)
    again = np.stack([image if i % 2 else jpeg(85)(image) for i, image in enumerate(first)])
    train = photos("train", np.concatenate([first, again]), np.tile(labels, 2))
    sets = {"train": train, "test": photos("test", textures(30, 1), np.arange(30) % 3)}
    photographed = TaskContext(features=Counting(), load=lambda _, split: sets[split])
    x = pixels(train)
    for score in adapt.evaluate(photographed, data="photos", sizes=(1,), draws=1):
        if score.shots == 60:
            way = adapt.WAYS[score.task.removeprefix("adapt@")]
            divided = adapt.cross_validated(way, x, train.labels_N, num_classes=3)
            assert divided is not None and (divided == train.labels_N).mean() > 0.6
            assert score.detail["validation"] < 0.5 and score.detail["groups"] == 90


def test_scores_of_grouped_images_say_how_many_groups_and_err_over_them() -> None:
    of = (np.arange(len(TEST)) // 10).astype(np.uint64)
    sets = {"train": replace(TRAIN, groups_N=np.arange(len(TRAIN)) // 10), "test": replace(TEST, groups_N=of)}
    grouped = TaskContext(features=Counting(), load=lambda _, split: sets[split])
    every = adapt.evaluate(grouped, data="toy", sizes=(5,), draws=1)
    for score in every:
        bits = from_detail(score.detail)
        assert score.detail["test_groups"] == 60 and (bits is not None) == (score.shots == LARGEST)
        if bits is not None:
            np.testing.assert_array_equal(bits.groups_M, of)
            sums = np.add.reduceat(bits.right_M - bits.right_M.mean(), np.arange(0, 600, 10))
            assert score.stderr == pytest.approx(np.sqrt(60 / 59 * (sums**2).sum()) / 600)
            assert score.detail["groups"] == 60


@pytest.mark.parametrize("way", adapt.HEADS)
@pytest.mark.parametrize("grouped", [False, True])
def test_a_head_predicts_as_its_way(way: str, grouped: bool) -> None:
    x, of = pixels(TRAIN), np.arange(len(TRAIN)) // 5 if grouped else None
    w, b = adapt.HEADS[way](x, TRAIN.labels_N, CLASSES, of)
    predicted = adapt.WAYS[way](x, TRAIN.labels_N, pixels(TEST), CLASSES, of)
    assert ((pixels(TEST).astype(np.float64) @ w + b).argmax(1) == predicted).mean() > 0.995


def test_other_metrics_are_scores_of_their_own_chosen_by_the_same_metric_in_cross_validation() -> None:
    plain = adapt.evaluate(context(), data="toy", sizes=(2,), draws=1, ways=("ridge",))
    made = adapt.evaluate(context(), data="toy", sizes=(2,), draws=1, ways=("ridge",), metrics=("macro-f1",))
    of_accuracy = [score for score in made if score.metric == "accuracy"]
    assert [(score.value, score.shots) for score in of_accuracy] == [(score.value, score.shots) for score in plain]
    last = [score for score in made if score.metric == "macro-f1" and score.shots == LARGEST]
    order = adapt.drawn(TRAIN, "toy", 0)[0]
    x, labels = pixels(TRAIN)[order], TRAIN.labels_N[order]
    validated = adapt.cross_validated(adapt.ridge, x, labels, num_classes=CLASSES)
    assert validated is not None and len(last) == 1
    assert last[0].detail["validation"] == pytest.approx(f1_score(labels, validated, average="macro"))
    assert "resampled" in last[0].detail and "errors" not in last[0].detail
