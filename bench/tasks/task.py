"""The classes of a task (an evaluation of a trained model) and its context, and functions that tasks share: parts of a
split, accuracies with their standard errors."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bench.core.clusters import cluster_error
from bench.core.errors import UserError, several_labels
from bench.data.image_set import Images, ImageSet
from bench.data.subset import nested
from bench.store.prediction_bits import to_detail
from bench.study.cell import Recipe
from bench.study.record import Score

NO_DETAIL: Mapping[str, Any] = types.MappingProxyType({})


class Unsuited(UserError):
    """Raised when a task cannot evaluate this model at all, or not on these images; retrying does not help.

    Args:
        what, fix: what is wrong and what to do, as in every `UserError`.
        missing: scores with the value None that go into the record instead, so that the model keeps its scores of other
            tasks.
    """

    def __init__(self, what: str, fix: str = "", *, missing: Sequence[Score]) -> None:
        super().__init__(what, fix)
        self.missing = [replace(score, detail={**score.detail, "reason": what}) for score in missing]


@dataclass(frozen=True, kw_only=True)
class FineTuned:
    """A fine-tuned copy of a model.

    Attributes:
        logits: uint8 images_NHWC (any size, 1 or 3 channels) -> float32 logits_NK, in eval mode.
        losses_T: mean loss of every step's batch, before the step's update.
        diverged: whether a loss, or a weight at the end, was not finite.
        image_size: pixels per side of the copy's input.
        seconds: wall-clock seconds that the training took.
        train_flops: convention of counting, "dense" or "paper" (see `bench.study.record.Operations`) -> FLOPs of the
            training.
    """

    logits: Callable[[Images], np.ndarray]
    losses_T: np.ndarray
    diverged: bool
    image_size: int
    seconds: float
    train_flops: Mapping[str, int]


class FineTune(Protocol):
    """A function that fine-tunes a copy of a task context's model on all of `images`, for a number of steps by a
    recipe; see bench/tasks/_finetuner.py for its arguments."""

    def __call__(
        self, images: ImageSet, *, recipe: Recipe, steps: int, image_size: int | None = None, purpose: str = ""
    ) -> FineTuned: ...


@dataclass(frozen=True, kw_only=True)
class TaskContext:
    """A trained model and what else a task is given to evaluate it.

    Attributes:
        features: uint8 images_NHWC (any size, 1 or 3 channels) -> float32 features_ND of the frozen model, in eval
            mode. Images are converted to the size and channels of the model.
        load: (name of a data set, "train" or "test") -> ImageSet.
        seed: seed of the training run (cell) that trained the model. Few-shot samples do not depend on it, so that
            every model sees the same images.
        model: the torch module itself; None when only features exist.
        fine_tune: trains a copy of the model on labelled images; None when only features exist.
        upstream: the images that the model was trained on; None when they are not known.
        data_root: folder of the data sets; None for the default.
    """

    features: Callable[[Images], np.ndarray]
    load: Callable[[str, str], ImageSet]
    seed: int = 0
    model: Any = None
    fine_tune: FineTune | None = None
    upstream: ImageSet | None = None
    data_root: Path | None = None

    def copies(self, test: ImageSet) -> np.ndarray | None:
        """Return which test images have a copy (the same picture, possibly resized or mirrored) among the images that
        the model was trained on: bool (M,). None when those images are not known."""
        if self.upstream is None:
            return None
        from bench.data.dedup import copies

        return copies(self.upstream, test)


@dataclass(frozen=True, kw_only=True)
class Task:
    """An evaluation of a trained model. A file in this folder exports one as `TASK`.

    Attributes:
        evaluate: (context, data=name, **options) -> scores. Options are checked against its annotations.
        revision: number that is raised when a change gives other scores. It is part of a result's identity.
        begin: the arguments of `evaluate` -> a function without arguments that computes the scores from the features,
            without the model or the device; see `at_once`. None: `evaluate` does everything.
        forward_images: (num_train=…, num_test=…, num_classes=…, own_size=…, **options) -> number of images that pass
            through the network, to forecast costs; own_size is the model's image size. It raises UserError where the
            task cannot be done. None: all images of both splits.
        solving_seconds: (num_train=…, num_test=…, num_classes=…, features=…, image_side=…, **options) -> seconds that
            one core works on the features, to forecast costs; features is their number, image_side in pixels. None: a
            negligible time.
        rehearsed: (num_train=…, num_classes=…, **options) -> options that replace the task's own in a rehearsal, a
            quick trial of a study: few steps, and values that would otherwise follow from the number of images, which a
            rehearsal cuts. None: no options are replaced.
        slowness: (quickest) -> factor by which the task takes longer on this machine than `solving_seconds` says, where
            `quickest` is a function that returns the seconds of another function's quickest call. None: not measured.
        several_labels: whether the task can evaluate images with several labels each.
    """

    evaluate: Callable[..., list[Score]]
    revision: int = 1
    begin: Callable[..., Callable[[], list[Score]]] | None = None
    forward_images: Callable[..., int] | None = None
    solving_seconds: Callable[..., float] | None = None
    rehearsed: Callable[..., Mapping[str, Any]] | None = None
    slowness: Callable[[Callable[[Callable[[], object]], float]], float] | None = None
    several_labels: bool = False


def few_images(**_: object) -> dict[str, int]:
    """Return the options that replace a task's own in a rehearsal (a quick trial of a study), for tasks with an option
    `train_limit`; see `Task.rehearsed`."""
    return {"train_limit": 100}


def balanced_part(images: ImageSet, limit: int | None, *, several: bool = False) -> ImageSet:
    """Return `limit` images with equally many of each class, as far as there are enough. A smaller part lies within
    every larger one. If there are no more than `limit` images, or it is None, return all.

    Args:
        several: whether the task can evaluate images with several labels each.

    Raises:
        UserError: the limit is below 1, or images have several labels although `several` is False.
    """
    if images.several and not several:
        raise several_labels(images.name, for_what="this task")
    if limit is not None and limit < 1:
        raise UserError(f"A task cannot use {limit} images of {images.name}, {images.split}.", "At least 1, or None.")
    if limit is None or limit >= len(images):
        return images
    return images.take(nested(images.labels_N, limit, keys_N=images.content_keys_N))


def accuracy_score(
    value: float | None,
    *,
    task: str,
    data: str,
    num_test: int,
    num_classes: int,
    metric: str = "accuracy",
    shots: int | None = None,
    draw: int | None = None,
    detail: Mapping[str, Any] = NO_DETAIL,
) -> Score:
    """Return a `Score` for an accuracy in [0, 1], with its binomial standard error over test images, and chance = 1 /
    classes. If `value` is None (there is no result), value and error of the score are None too.

    Args:
        value: the accuracy.
        task, data, num_test, num_classes, metric, shots, draw, detail: fields of `Score`.
    """
    return Score(
        task=task,
        data=data,
        metric=metric,
        value=None if value is None else float(value),
        stderr=None if value is None else math.sqrt(max(0.0, value * (1.0 - value)) / num_test),
        num_test=num_test,
        num_classes=num_classes,
        chance=1.0 / num_classes,
        shots=shots,
        draw=draw,
        detail=dict(detail),
    )


def judged(
    right_M: np.ndarray,
    *,
    copies_M: np.ndarray | None = None,
    content_hash: str | None = None,
    groups_M: np.ndarray | None = None,
    detail: Mapping[str, Any] = NO_DETAIL,
    **head: Any,
) -> Score:
    """Return the accuracy score of a model for which it is known which test images it classifies correctly.

    Args:
        right_M: bool, one per test image: whether it is classified correctly.
        copies_M: bool, one per test image: whether the images that the model was trained on have a copy of it
            (`TaskContext.copies`); None: those images are unknown.
        content_hash: hash of the test images; None if the record should not hold which of them were right.
        groups_M: numbers, equal for test images that belong together (such as one patient's); None where no images do.
        head: arguments of `accuracy_score`.

    Returns:
        A score. Its detail has `num_duplicates` and `value_without_duplicates`, the accuracy on test images that are no
        copies (None when every image is one), if copies_M is given, and `correct` (see `bench.store.prediction_bits`)
        if the hash is. Its value is None without images. With groups its standard error is over groups, whose number is
        `test_groups`; with a single group it is binomial.
    """
    if not len(right_M):
        return accuracy_score(None, detail=detail, **head)
    if copies_M is not None:
        kept_M = right_M[~copies_M]
        value = float(kept_M.mean()) if len(kept_M) else None
        detail = {**detail, "num_duplicates": int(copies_M.sum()), "value_without_duplicates": value}
    if content_hash is not None:
        detail = dict([*detail.items(), to_detail(right_M, content_hash=content_hash, groups_M=groups_M)])
    score = accuracy_score(float(right_M.mean()), detail=detail, **head)
    if groups_M is None:
        return score
    error, number = cluster_error(right_M, groups_M)
    stderr = score.stderr if math.isnan(error) else error
    return replace(score, stderr=stderr, detail={**score.detail, "test_groups": number})


def judged_by(
    metrics: Sequence[str],
    predicted_M: np.ndarray,
    labels_M: np.ndarray,
    *,
    names: Sequence[str],
    copies_M: np.ndarray | None = None,
    content_hash: str | None = None,
    groups_M: np.ndarray | None = None,
    detail: Mapping[str, Any] = NO_DETAIL,
    facts: Mapping[str, Any] = NO_DETAIL,
    **head: Any,
) -> list[Score]:
    """Return the accuracy score of predicted classes (see `judged`), and one score for each of `metrics` (see
    `bench.tasks._metrics`).

    Args:
        metrics: metrics in addition to accuracy, of `bench.core.metrics`.
        names: names of the classes.
        copies_M, content_hash, groups_M, head: see `judged`.
        detail: detail of all scores.
        facts: further detail of the accuracy score only.
    """
    about: dict[str, Any] = {"content_hash": content_hash, "groups_M": groups_M}
    accuracy = judged(predicted_M == labels_M, copies_M=copies_M, **about, detail={**detail, **facts}, **head)
    if not metrics:
        return [accuracy]
    from bench.tasks import _metrics

    return [accuracy, *_metrics.scores(metrics, predicted_M, labels_M, names=names, **about, detail=detail, **head)]


def at_once(begin: Callable[..., Callable[[], list[Score]]]) -> Callable[..., list[Score]]:
    """Return the function `evaluate` of a task, made from its `begin`: it calls `begin`, and then what that returns.

    Args:
        begin: function that takes the arguments of `evaluate`, computes the features, and returns a function that
            computes the scores without the model or the device.
    """

    @functools.wraps(begin)
    def evaluate(context: TaskContext, **given: Any) -> list[Score]:
        return begin(context, **given)()

    return evaluate
