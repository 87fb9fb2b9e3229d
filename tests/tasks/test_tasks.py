"""Rules that every task keeps to: options, scores, copies, and what cannot be evaluated."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold
from sklearn.neighbors import KNeighborsClassifier

from bench.commands import probe
from bench.core.errors import UserError
from bench.data import dedup
from bench.data.image_set import ImageSet
from bench.data.load import load
from bench.execute.jobs import train
from bench.plan.preflight import check_data
from bench.plan.sizes import DataSize, DataSizes
from bench.store.prediction_bits import from_detail
from bench.study import registry
from bench.study.cell import Cell, Recipe, TaskSpec
from bench.study.record import Score
from bench.tasks import knn, linear
from bench.tasks._folds import folds
from bench.tasks._options import checked_options
from bench.tasks.task import TaskContext, Unsuited, balanced_part, judged
from tests.tasks.conftest import arrays
from tests.tasks.test_fewshot import CLASSES, Counting, image_set
from tests.tasks.test_tuning import skewed
from tests.train.driving import job_context

# -- the contract of every task: each file in bench/tasks/ that evaluates a frozen model is found by name and checked --


NAMES = registry.names("task")
FROZEN = ("fewshot", "knn", "linear")


def context(features: object = None) -> TaskContext:
    return TaskContext(features=features or Counting(), load=lambda name, split: image_set(split))  # type: ignore[arg-type]


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
        assert bits.content_hash == balanced_part(image_set("test"), 200).content_hash != again.content_hash
        assert bits.num_images == one.num_test and bits.right_M.mean() == one.value
        same = np.setdiff1d(np.arange(200), turned)
        np.testing.assert_array_equal(bits.right_M[same], again.right_M[same])
        assert not (bits.right_M & again.right_M)[turned].any()
    assert any(score.metric == "accuracy" for score in plain)


@pytest.mark.parametrize("name", [*FROZEN, "adapt"])
def test_a_diverged_model_has_no_score(name: str) -> None:
    scores = registry.load("task", name).evaluate(
        context(lambda images: np.full((len(images), 3), np.inf, dtype=np.float32)), data="toy"
    )
    assert scores and all(s.value is None and s.stderr is None and s.detail["reason"] for s in scores)


def test_knn_equals_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    train, labels, test = rng.normal(size=(300, 16)), rng.integers(0, 5, 300), rng.normal(size=(2500, 16))
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)  # noqa: E731
    weights = lambda distance: np.exp(-(distance**2) / 2 / 0.07)  # noqa: E731 (1 - cosine, for unit vectors)
    reference = KNeighborsClassifier(20, weights=weights, algorithm="brute").fit(unit(train), labels)
    predicted = knn.predict(train, labels, test, num_classes=5, neighbours=20, temperature=0.07)
    np.testing.assert_array_equal(predicted, reference.predict(unit(test)))


def test_linear_equals_scikit_learn_at_the_chosen_strength() -> None:
    train, test = image_set("train"), image_set("test")
    x, z = (s.images_NHWC.reshape(len(s), -1).astype(np.float64) for s in (train, test))
    predicted, strength = linear.fit_predict(x, train.labels_N, z, parts=folds(train.labels_N, None, 3), max_iter=300)
    assert strength in linear.STRENGTHS
    mean, std = x.mean(0), x.std(0) + 1e-5
    model = LogisticRegression(C=strength, max_iter=300).fit((x - mean) / std, train.labels_N)
    np.testing.assert_array_equal(predicted, model.predict((z - mean) / std))


def test_linear_chooses_its_strength_as_scikit_learn_does_of_groups() -> None:
    """Each image three times, labels by chance in a third of them: divided, copies would favour weaker penalties."""
    distinct, rng = image_set("train", 120), np.random.default_rng(0)
    noisy = np.where(rng.random(120) < 0.3, rng.integers(0, CLASSES, 120), distinct.labels_N)
    of = np.tile(np.arange(120), 3)
    train, test = replace(distinct.take(of), labels_N=noisy[of]), image_set("test")
    x, z = (Counting()(s.images_NHWC).astype(np.float64) for s in (train, test))
    images = TaskContext(features=Counting(), load=lambda _, split: {"train": train, "test": test}[split])
    (score,) = linear.evaluate(images, data="toy")
    _, divided = linear.fit_predict(x, noisy[of], z, parts=folds(noisy[of], None, 3), max_iter=300)
    cv = StratifiedGroupKFold(3, shuffle=True, random_state=0)
    model = GridSearchCV(LogisticRegression(max_iter=300), {"C": linear.STRENGTHS}, cv=cv)
    chosen = model.fit((x - x.mean(0)) / (x.std(0) + 1e-5), noisy[of], groups=of).best_params_["C"]
    assert score.detail["inverse_penalty"] == chosen < divided
    first = np.where(distinct.labels_N == 0, np.argmin(distinct.labels_N), np.arange(120))  # all of a class are copies
    (score,) = linear.evaluate(
        replace(images, load=lambda _, s: distinct.take(first) if s == "train" else test), data="toy"
    )
    assert (score.detail["inverse_penalty"], score.detail["folds"]) == (1.0, 0)


# -- images that a task cannot judge by: said before training where their numbers tell, else one score is missing ------


FEWSHOT = TaskSpec(task="fewshot", data="digits", options=(("shots", (5,)), ("draws", 1), ("test_limit", 100)))
FOLDS = TaskSpec(task="linear", data="digits", options=(("folds", 9), ("train_limit", 20)))
LARGER = TaskSpec(
    task="finetune", data="digits", options=(("image_size", 42), ("steps", 1), ("batch", 8), ("rates", (0.1,)))
)
CELL = Cell(
    model="ViT-pico/14",
    data="mnist",
    num_images=100,
    horizons=(16,),
    tasks=(FOLDS, LARGER, FEWSHOT),
    recipe=Recipe(batch=16, dtype="float32", warmup_images=0),
    model_options=(("position", "relative"),),
)


@pytest.mark.parametrize(
    ("images", "answer"), [(skewed(40), "there is one"), (skewed(40, 2), "has 2"), (skewed(40, 0, 40), "has 0")]
)
def test_a_linear_probe_says_which_classes_are_too_small(images: ImageSet, answer: str) -> None:
    names = tuple(map(str, range(int(images.labels_N.max()) + 1)))
    context = TaskContext(features=Counting(), load=lambda _, split: replace(images, split=split, class_names=names))
    with pytest.raises(Unsuited, match=f"toy: .*{answer}") as caught:
        linear.evaluate(context, data="toy")
    (score,) = caught.value.missing
    assert (score.task, score.data, score.value, score.stderr) == ("linear", "toy", None, None)
    assert score.num_test == len(images) and answer in score.detail["reason"]


def test_scores_that_cannot_be_had_leave_a_trained_model_the_others(tmp_path) -> None:
    said: list[str] = []
    result = train.run(CELL, job_context(tmp_path, log=said.append))
    scores = {score.task: score for score in result.horizons[0].scores}
    assert result.status == "complete" and set(scores) == {"upstream", "linear", "finetune@42px", "fewshot"}
    assert scores["upstream"].value is not None and scores["fewshot"].value is not None
    for task, reason in (("linear", "has 2 training images"), ("finetune@42px", "relatives")):
        assert scores[task].value is None and reason in scores[task].detail["reason"]
        assert [text for text in said if reason in text]


@pytest.mark.parametrize(
    ("task", "options", "answer"),
    [
        ("linear", (("folds", 9), ("train_limit", 20)), "linear on digits: 9 folds .* has 2"),
        ("linear", (("folds", 1),), "linear on digits: 1 folds"),
        ("vtab", (), "vtab on digits: .* 1,000 training examples, and this set has 900"),
        ("finetune", (("held_out", 900),), "finetune on digits: .* held out of 900"),
    ],
)
def test_what_numbers_tell_is_said_in_the_plan(monkeypatch, task: str, options: tuple, answer: str) -> None:
    cell = replace(CELL, tasks=(FEWSHOT, TaskSpec(task=task, data="digits", options=options)))
    monkeypatch.setattr(DataSizes, "_known", lambda *_: DataSize(train=900, test=90, classes=10))
    with pytest.raises(UserError, match=answer):
        check_data([cell], DataSizes())
    check_data([replace(cell, tasks=(FEWSHOT,))], DataSizes())


def test_a_set_of_one_class_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    size = {"mnist": DataSize(train=900, test=90, classes=10), "digits": DataSize(train=900, test=90, classes=1)}
    monkeypatch.setattr(DataSizes, "_known", lambda _, name: size[name])
    with pytest.raises(UserError, match="digits has images of one class only"):
        check_data([replace(CELL, tasks=(FEWSHOT,))], DataSizes())


@pytest.mark.parametrize("task", [linear, knn], ids=["linear", "knn"])
@pytest.mark.parametrize("limits", [(100, 50), (None, None)])
def test_a_probe_is_costed_as_it_is_done(task: Any, limits: tuple[int | None, int | None]) -> None:
    features = Counting()
    images = skewed(300, 300)
    context = TaskContext(features=features, load=lambda *_: images)
    options = dict(zip(("train_limit", "test_limit"), limits, strict=True))
    task.evaluate(context, data="toy", **options)
    assert task.forward_images(num_train=600, num_test=600, num_classes=2, **options) == sum(features.calls)


# -- whatever a user writes after --option, or puts into a features file, ends in one message and exit code 2 ----------


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = probe.main(list(arguments))
    captured = capsys.readouterr()
    assert code == 2 and not captured.out
    assert captured.err.startswith("error: ") and "Traceback" not in captured.err and len(captured.err) < 1500
    return captured.err


@pytest.mark.parametrize(
    ("task", "option", "answer"),
    [
        ("fewshot", "shots='a'", "a list, each a whole number"),
        ("fewshot", "shots=(1,'a')", "a list, each a whole number"),
        ("fewshot", "shots=()", "at least one shot number"),
        ("fewshot", "shots=0", "at least 1"),
        ("fewshot", "draws=1.5", "a whole number"),
        ("fewshot", "draws=True", "a whole number"),
        ("fewshot", "draws=0", "at least 1"),
        ("fewshot", "ridge=foo", "Known: both"),
        ("fewshot", "ridge=[1]", "a word"),
        ("fewshot", "test_limit=0", "cannot use 0 images of mine, test"),
        ("fewshot", "test_limit=-5", "cannot use -5"),
        ("fewshot", "test_limit=1.5", "None or a whole number"),
        ("fewshot", "support_pool=x", "None or a whole number"),
        ("fewshot", "support_pool=0", "cannot use 0 images of mine, train"),
        ("fewshot", "context=3", "Unknown option"),
        ("fewshot", "test-limt=3", "Did you mean 'test_limit'"),
        ("fewshot", "=3", "NAME=VALUE"),
        ("knn", "neighbours=x", "a whole number"),
        ("knn", "neighbours=0", "neighbours >= 1"),
        ("knn", "temperature=x", "a number"),
        ("knn", "temperature=1e999", "a number"),
        ("knn", "temperature=0", "temperature > 0"),
        ("knn", "train_limit=0", "cannot use 0"),
        ("linear", "folds=2.5", "a whole number"),
        ("linear", "folds=21", "smallest class has 20"),
        ("linear", "max_iter=0", "at least one iteration"),
        ("linear", "train_limit=1", "smallest class has 0"),
        ("finetune", "rates=x", "None or a list, each a number"),
        ("finetune", "rates=(0.1,'a')", "each a number"),
        ("finetune", "flip=maybe", "True or False"),
        ("finetune", "image_size=0", "not a number of pixels"),
        ("finetune", "shift=-1", "0 pixels or more"),
        ("finetune", "held_out=2.0", "cannot be held out of 60"),
        ("finetune", "steps=1", "only features"),
        ("vtab", "steps=1", "1,000 training examples"),
    ],
)
def test_options(capsys: pytest.CaptureFixture[str], features: Path, task: str, option: str, answer: str) -> None:
    assert answer in refused(capsys, "--features", str(features), "--task", task, "--option", option)


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({"train_x": np.full((60, 8), np.nan)}, "not finite"),
        ({"test_x": np.full((30, 8), 1e300)}, "not finite in float32"),
        ({"train_y": np.full(60, 10**12)}, "classes without a training example: 0, 1, 2."),
        ({"train_x": np.zeros((60, 0)), "test_x": np.zeros((30, 0))}, "D of at least 1"),
        ({"test_x": np.zeros((0, 8)), "test_y": np.zeros(0, int)}, "N and D"),
        ({"train_y": np.ones(60, bool)}, "integers from 0"),
        ({"train_y": np.array([{}] * 60, dtype=object)}, "not a readable .npz"),
        ({"train_y": None}, "lacks train_y"),
        ({"train_y": np.zeros(3, int)}, "train_y"),
        ({"test_x": np.zeros((30, 3))}, "different numbers"),
        ({"train_y": np.full(60, -1)}, "integers from 0"),
        ({"train_x": np.full((60, 8), "a")}, "must be numbers"),
        ({"test_y": np.arange(30) % 3 + 2}, "classes without a training example: 3, 4."),
        ({"train_y": np.zeros(60, int), "test_y": np.zeros(30, int)}, "features of one class only"),
    ],
)
def test_features(capsys: pytest.CaptureFixture[str], tmp_path: Path, change: dict, answer: str) -> None:
    given = {key: value for key, value in (arrays() | change).items() if value is not None}
    np.savez(tmp_path / "mine.npz", **given)
    assert answer in refused(capsys, "--features", str(tmp_path / "mine.npz"))


def test_files_of_another_kind(capsys: pytest.CaptureFixture[str], features: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "torn.npz").write_bytes(features.read_bytes()[:100])
    answers = {
        "one.npy": "savez",
        "text.npz": "savez",
        "torn.npz": "savez",
        "none.npz": "no features",
        ".": "no features",
    }
    for name, answer in answers.items():
        assert answer in refused(capsys, "--features", str(tmp_path / name))


def test_values_arrive_as_the_task_takes_them() -> None:
    def evaluate(context: object, *, data: str, rates: Sequence[float] | None = None, part: float | int = 1, free=0):
        """Stands for a task; `free` says nothing of its kind."""

    options = checked_options(evaluate, {"rates": 0.1, "part": 200, "free": {}})
    assert options == {"rates": (0.1,), "part": 200, "free": {}}
    assert checked_options(evaluate, {"rates": [1, 0.5], "part": 0.1}) == {"rates": (1, 0.5), "part": 0.1}
    assert checked_options(evaluate, {"rates": None}) == {"rates": None}
    for wrong in ({"part": None}, {"part": float("inf")}, {"rates": ("0.1",)}, {"data": "x"}, {"context": None}):
        with pytest.raises(UserError):
            checked_options(evaluate, wrong)


# -- every task says how many of its test images upstream holds, and what it scores without them -----------------------


PLANTED = 40
WITH_COPIES = ("fewshot", "knn", "linear")
OPTIONS = {"fewshot": {"shots": (5,), "draws": 1}, "knn": {"train_limit": 300}, "linear": {"train_limit": 300}}


def brightness(images_NHWC: np.ndarray) -> np.ndarray:
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


@pytest.mark.parametrize("task", WITH_COPIES)
def test_planted_copies_are_counted_and_left_out(task: str) -> None:
    for score in scores(task, TaskContext(features=brightness, load=load, upstream=upstream())):
        detail = score.detail
        assert detail["num_duplicates"] == PLANTED
        # `value` and `value_without_duplicates` are counts over 200 and over 160 images, one of which holds the other.
        right, right_without = score.value * 200, detail["value_without_duplicates"] * (200 - PLANTED)
        assert right == pytest.approx(round(right)) and right_without == pytest.approx(round(right_without))
        assert right - PLANTED <= right_without <= right


@pytest.mark.parametrize("task", WITH_COPIES)
def test_none_found_is_said_as_zero_and_unknown_is_not_said(task: str) -> None:
    clean = load("shapes-orientation", "train", num_images=100)
    for score in scores(task, TaskContext(features=brightness, load=load, upstream=clean)):
        detail = score.detail
        assert detail["num_duplicates"] == 0 and detail["value_without_duplicates"] == score.value
    for score in scores(task, TaskContext(features=brightness, load=load)):
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
