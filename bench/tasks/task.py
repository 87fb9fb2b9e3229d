"""A task and its context; and what tasks share: parts of a split, accuracies with their standard errors."""

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
    """A task cannot evaluate this model, or not on these images; retrying does not help.

    Args:
        what, fix: as of every `UserError`.
        missing: the scores without a value that a record takes instead, so that a trained model keeps its other scores.
    """

    def __init__(self, what: str, fix: str = "", *, missing: Sequence[Score]) -> None:
        super().__init__(what, fix)
        self.missing = [replace(score, detail={**score.detail, "reason": what}) for score in missing]


@dataclass(frozen=True, kw_only=True)
class FineTuned:
    """A fine-tuned copy of a model.

    Attributes:
        logits: uint8 images_NHWC (any size, 1 or 3 channels) -> float32 logits_NK, in test mode.
        losses_T: mean loss of every step's batch, before its update.
        diverged: whether one was not finite, or a weight in the end.
        image_size: pixels per side of its input.
        seconds, train_flops: what the training cost; FLOPs by convention.
    """

    logits: Callable[[Images], np.ndarray]
    losses_T: np.ndarray
    diverged: bool
    image_size: int
    seconds: float
    train_flops: Mapping[str, int]


class FineTune(Protocol):
    """Fine-tunes a copy of the context's model on all of `images`; see bench/tasks/_finetuner.py."""

    def __call__(
        self, images: ImageSet, *, recipe: Recipe, steps: int, image_size: int | None = None, purpose: str = ""
    ) -> FineTuned: ...


@dataclass(frozen=True, kw_only=True)
class TaskContext:
    """A trained model as a task sees it.

    Attributes:
        features: uint8 images_NHWC (any size, 1 or 3 channels) -> float32 features_ND of the frozen model, in test
            mode, resized and repeated to what the model takes, never dropping a last batch.
        model: the torch module itself; None when only features exist.
        fine_tune: trains a copy of the model on labelled images; None when only features exist.
        seed: the cell's seed. Few-shot draws use their own stream, so that every model sees the same draws.
        load: (data set name, split) -> ImageSet.
        upstream: what the model was trained on; None when that is not known.
    """

    features: Callable[[Images], np.ndarray]
    load: Callable[[str, str], ImageSet]
    seed: int = 0
    model: Any = None
    fine_tune: FineTune | None = None
    upstream: ImageSet | None = None
    data_root: Path | None = None

    def copies(self, test: ImageSet) -> np.ndarray | None:
        """Which test images upstream holds a copy of, bool (M,); None when upstream is not known."""
        if self.upstream is None:
            return None
        from bench.data.dedup import copies

        return copies(self.upstream, test)


@dataclass(frozen=True, kw_only=True)
class Task:
    """An evaluation of a trained model. A file in this folder exports one as `TASK`.

    Attributes:
        evaluate: (context, data=name, **options) -> scores. Options are checked against its annotations.
        revision: raised when a change gives other scores. It is part of a result's identity.
        begin: the same arguments -> a function that computes the scores of the features, for which neither the model
            nor the device is needed; see `at_once`. None: `evaluate` does all.
        forward_images: (num_train=…, num_test=…, num_classes=…, own_size=…, **options) -> images that pass through the
            network, for plans. UserError says why the task cannot be done. None: all images of both splits.
        solving_seconds: (num_train=…, num_test=…, num_classes=…, features=…, image_side=…, **options) -> seconds that
            one core works on the features, for plans. None: next to nothing.
        rehearsed: (num_train=…, num_classes=…, **options) -> options that take the place of its own in a rehearsal: a
            few steps, and whatever else would follow from the number of images, which is cut. None: none.
        slowness: (the seconds of a function's quickest call) -> how many times as long it takes on this machine. None:
            not measured.
        several_labels: whether it decides on every label of images that have several.
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
    """The `rehearsed` of a task that takes a `train_limit`."""
    return {"train_limit": 100}


def balanced_part(images: ImageSet, limit: int | None, *, several: bool = False) -> ImageSet:
    """The nested, class-balanced part of `limit` images; all of them where there are no more, or limit is None.

    Args:
        several: whether the task takes images of several labels.

    Raises:
        UserError: a limit below 1, or images of several labels for a task of one.
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
    """A score with the binomial standard error over test images and chance = 1 / classes; None stays None."""
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
    """The accuracy score of per-image correctness; in `detail` also without copies of upstream images.

    Args:
        right_M: bool, one per test image.
        copies_M: bool, which test images upstream holds a copy of (`TaskContext.copies`); None: upstream is unknown.
        content_hash: of the test images; given where the record is to hold which of them were right.
        groups_M: equal for test images that belong together; None where each stands alone.
        head: as for `accuracy_score`.

    Returns:
        A score with `num_duplicates` and `value_without_duplicates` (None when every image is a copy) in its detail,
        and `correct` (see `bench.store.prediction_bits`) where the hash is given. Its value is None without images.
        With groups, its standard error is over these, whose number is `test_groups`; of one alone it is binomial.
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
    """The accuracy score of predicted classes (`judged`), and one per metric beside it (`bench.tasks._metrics`).

    Args:
        metrics: of `bench.core.metrics`.
        names: of the classes.
        facts: in the detail of accuracy alone.
    """
    about: dict[str, Any] = {"content_hash": content_hash, "groups_M": groups_M}
    accuracy = judged(predicted_M == labels_M, copies_M=copies_M, **about, detail={**detail, **facts}, **head)
    if not metrics:
        return [accuracy]
    from bench.tasks import _metrics

    return [accuracy, *_metrics.scores(metrics, predicted_M, labels_M, names=names, **about, detail=detail, **head)]


def at_once(begin: Callable[..., Callable[[], list[Score]]]) -> Callable[..., list[Score]]:
    """The `evaluate` of a task that has a `begin`. `begin` takes the same arguments, reads the features, and returns
    the rest of the computation, which needs neither the model nor the device."""

    @functools.wraps(begin)
    def evaluate(context: TaskContext, **given: Any) -> list[Score]:
        return begin(context, **given)()

    return evaluate
