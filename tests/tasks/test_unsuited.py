"""Images that a task cannot judge by: said before training where their numbers tell, else one score is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.core.errors import UserError
from bench.core.spec import Cell, Recipe, TaskSpec
from bench.data.image_set import ImageSet
from bench.execute.jobs import train
from bench.execute.jobs._contract import JobContext
from bench.plan.preflight import check_data
from bench.plan.sizes import DataSize, DataSizes
from bench.store.study import CellDirectory
from bench.tasks import knn, linear
from bench.tasks._contract import TaskContext, Unsuited
from tests.tasks.test_fewshot import Counting
from tests.tasks.test_tuning import skewed

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
    context = JobContext(
        directory=CellDirectory(tmp_path),
        attempt=tmp_path,
        device="cpu",
        threads=1,
        progress=lambda _: None,
        should_stop=lambda: False,
        log=said.append,
    )
    result = train.run(CELL, context)
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
