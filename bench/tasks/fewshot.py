"""Few-shot linear probe: ridge regression from k labelled images per class on frozen features, in closed form.

Two metrics come from the same features, support sets (the k labelled images per class) and decompositions:

- "accuracy": the ridge strength is chosen on the support set alone, by closed-form leave-one-out. This metric is for
  comparing models of different widths: narrow features need ridges near 1, raw pixels near 1000.
- "accuracy_fixed_ridge": the published protocol with its one ridge, 2^10, for every model.

On request (ridge="each") there is one metric per ridge strength instead, to see what the choice costs.

The protocol (section 4.1 of the ViT paper; big_vision's fewshot_lsr) is described in `_ridge.py`. Several few-shot
samples ("draws") are taken. The images of each depend only on the data set and the sample's number, so every model sees
the same images; the k-shot support set is a subset of every larger one. A class with fewer than k examples contributes
all it has; `detail` says how many images were used, and whether all samples are therefore the same images. With one
image per class, leaving it out leaves nothing to learn its class from, so 1-shot uses 2^10 in both metrics. Leaving an
image out does not leave out its copies, nor images of its group (such as photos of the same patient): a support set
with such images gets weaker ridges than it should, unlike in the task `adapt`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bench.core.errors import UserError
from bench.data.image_set import ImageSet
from bench.data.subset import first_per_class
from bench.study.record import Score
from bench.tasks._ridge import SupportSet, choose_ridge, decompose
from bench.tasks.task import Task, TaskContext, accuracy_score, at_once, balanced_part, judged_by

PUBLISHED_RIDGE = 2.0**10
RIDGES = tuple(2.0**power for power in range(-4, 21))
SHOTS = (1, 5, 10, 25)
EIGEN_OPERATIONS = 9  # operations of an eigendecomposition over its size cubed (Golub and Van Loan, section 8.3)
SOLVED_PER_SECOND = 25e9  # float64 operations per second of solving on one core: 23e9 to 44e9 on one of 2025
MODES = {
    "both": ("accuracy", "accuracy_fixed_ridge"),
    "loo": ("accuracy",),
    "published": ("accuracy_fixed_ridge",),
    "each": tuple(f"accuracy_ridge_{strength:g}" for strength in RIDGES),
}


def begin(
    context: TaskContext,
    *,
    data: str,
    shots: Sequence[int] = SHOTS,
    draws: int = 3,
    ridge: str = "both",
    test_limit: int | None = 2_000,
    support_pool: int | None = 10_000,
    metrics: Sequence[str] = (),
) -> Callable[[], list[Score]]:
    """Compute the frozen features of the model of `context` on one data set, and return a function that fits few-shot
    probes and scores them.

    Args:
        data: name of the downstream set; its training split gives the labelled images, its test split is scored.
        shots: numbers of labelled images per class, in any order.
        draws: number of independent few-shot samples.
        ridge: how the strength of the ridge penalty is chosen, and so which metrics there are: "loo" by leave-one-out
            ("accuracy"), "published" always 2^10 ("accuracy_fixed_ridge"), "both", or "each": one for every strength.
        test_limit: number of test images that are scored, a nested, class-balanced part of the test split; None scores
            all of it.
        support_pool: number of training images from which samples are taken, a nested, class-balanced part of the
            training split, so that a set and its embedded part give the same samples; None takes them from all of it.
        metrics: metrics in addition to accuracy, of `bench.core.metrics`.

    Returns:
        A function that returns one score per metric, number of shots and few-shot sample.

    Raises:
        UserError: an option is out of range, or the data is not on this machine.
    """
    train = balanced_part(context.load(data, "train"), support_pool)
    test = balanced_part(context.load(data, "test"), test_limit)
    picks = draw_support(train, data=data, shots=shots, draws=draws)
    wanted_M = np.unique(np.concatenate([indices for indices, _ in picks]))
    support_MD = context.features(train.take(wanted_M).images_NHWC)
    test_MD = context.features(test.images_NHWC)
    return lambda: score_features(
        support_MD,
        train.labels_N[wanted_M],
        test_MD,
        test.labels_N,
        picks=[(np.searchsorted(wanted_M, indices), ranks) for indices, ranks in picks],
        data=data,
        num_classes=train.num_classes,
        shots=shots,
        ridge=ridge,
        copies_M=context.copies(test),
        content_hash=test.content_hash,
        groups_M=test.groups_N,
        metrics=metrics,
        names=test.class_names,
    )


evaluate = at_once(begin)


def forward_images(
    *,
    num_train: int,
    num_test: int,
    num_classes: int,
    shots: Sequence[int] = SHOTS,
    draws: int = 3,
    test_limit: int | None = 2_000,
    support_pool: int | None = 10_000,
    **_: object,
) -> int:
    """Return how many images pass through the network in one evaluation, to forecast its cost.

    An image that is in several few-shot samples passes once. The result is the expected number of different images in
    all samples, for classes of equal size; classes of unequal size give fewer.

    Args:
        num_train, num_test: numbers of images of the two splits; other arguments are those of `begin`.
    """
    pool = min(num_train, support_pool or num_train)
    never = max(0.0, 1 - max(shots) * num_classes / max(pool, 1)) ** draws
    return round(pool * (1 - never)) + min(num_test, test_limit or num_test)


def solving_seconds(
    *,
    num_train: int,
    num_test: int,
    num_classes: int,
    features: int,
    shots: Sequence[int] = SHOTS,
    draws: int = 3,
    ridge: str = "both",
    test_limit: int | None = 2_000,
    support_pool: int | None = 10_000,
    **_: object,
) -> float:
    """Return the seconds that one core takes for the function that `begin` returns, estimated from its floating-point
    operations, to forecast the cost of an evaluation.

    Args:
        num_train, num_test: numbers of images of the two splits.
        features: number of features of the model; other arguments are those of `begin`.
    """
    metrics, operations = MODES[ridge], 0
    tests = min(num_test, test_limit or num_test)
    for k in set(shots):
        support = min(k * num_classes, num_train, support_pool or num_train)
        rank = min(support, features)
        products = 2 * support * features * rank * (1 if support < features else 2)
        tried = len(RIDGES) if ridge != "each" and "accuracy" in metrics and k > 1 else 0
        left_out = 2 * tried * support * rank * num_classes
        predicting = 2 * len(metrics) * tests * features * num_classes
        operations += products + EIGEN_OPERATIONS * rank**3 + left_out + predicting
    return draws * operations / SOLVED_PER_SECOND


def draw_support(
    train: ImageSet, *, data: str, shots: Sequence[int], draws: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return for each few-shot sample (indices into `train`, rank of each image in its class). The images of rank < k
    are the sample's k labelled images per class.

    Args:
        data: name of the set, on which the samples depend.
        shots: numbers of labelled images per class.
        draws: number of samples.
    """
    check_shots(shots, draws)
    keys_N = train.content_keys_N
    return [
        first_per_class(train.labels_N, max(shots), f"fewshot/{data}/draw-{draw}", keys_N=keys_N)
        for draw in range(draws)
    ]


def score_features(
    train_ND: np.ndarray,
    train_labels_N: np.ndarray,
    test_MD: np.ndarray,
    test_labels_M: np.ndarray,
    *,
    picks: Sequence[tuple[np.ndarray, np.ndarray]],
    data: str,
    num_classes: int,
    shots: Sequence[int],
    ridge: str = "both",
    copies_M: np.ndarray | None = None,
    content_hash: str | None = None,
    groups_M: np.ndarray | None = None,
    metrics: Sequence[str] = (),
    names: Sequence[str] = (),
) -> list[Score]:
    """Fit a probe for every few-shot sample and number of shots on given features, and return its scores on the test
    images.

    Features that are not finite (a diverged model) give scores whose value is None, with the reason in `detail`.

    Args:
        picks: samples as `draw_support` returns them, with indices into `train_ND`.
        data: name of the set, for the scores.
        shots, ridge, metrics: see `begin`.
        copies_M, groups_M: see `bench.tasks.task.judged`.
        content_hash: hash of the test images; with it the scores of the metric "accuracy" hold which images were right.
        names: names of the classes.
    """
    if ridge not in MODES:
        raise UserError(f"ridge={ridge!r} is not a mode of the few-shot probe.", f"Known: {', '.join(MODES)}.")
    if not (np.isfinite(train_ND).all() and np.isfinite(test_MD).all()):
        return _missing(picks, shots, MODES[ridge], data, num_classes, len(test_labels_M), "features are not finite")
    heads, predicted_HM = _predict(
        train_ND, train_labels_N, test_MD, picks=picks, num_classes=num_classes, shots=shots, ridge=ridge
    )
    alike = _alike(picks, shots)
    return [
        score
        for (draw, k, metric, strength, num_support), predicted_M in zip(heads, predicted_HM, strict=True)
        for score in judged_by(
            metrics if metric == "accuracy" else (),
            predicted_M,
            np.asarray(test_labels_M),
            names=names,
            copies_M=copies_M,
            content_hash=content_hash if metric == "accuracy" else None,
            groups_M=groups_M,
            task="fewshot",
            data=data,
            num_test=len(test_labels_M),
            num_classes=num_classes,
            metric=metric,
            shots=k,
            draw=draw,
            detail={"ridge": strength, "num_support": num_support} | ({"same_images": True} if k in alike else {}),
        )
    ]


Head = tuple[int, int, str, float, int]  # draw, shots, metric, ridge strength, size of the support set


def _predict(
    train_ND: np.ndarray,
    train_labels_N: np.ndarray,
    test_MD: np.ndarray,
    *,
    picks: Sequence[tuple[np.ndarray, np.ndarray]],
    num_classes: int,
    shots: Sequence[int],
    ridge: str,
) -> tuple[list[Head], np.ndarray]:
    """Fit a classifier for each few-shot sample, number of shots and metric, and predict all test images with it.

    Args:
        picks: samples as `draw_support` returns them, with indices into `train_ND`.
        ridge: key of `MODES`.

    Returns:
        (what each classifier is, predicted classes of the test images by each: (classifiers, M)).
    """
    heads: list[Head] = []
    columns: list[tuple[np.ndarray, np.ndarray]] = []
    predicted: list[np.ndarray] = []
    test_MD = np.asarray(test_MD, dtype=np.float64)

    def predict() -> None:
        """Predict the test images, by one matrix product, with all classifiers that were fitted since the last call."""
        w_DC = np.concatenate([w for w, _ in columns], axis=1)
        scores_MC = test_MD @ w_DC + np.concatenate([b for _, b in columns])
        predicted.append(scores_MC.reshape(len(test_MD), len(columns), num_classes).argmax(-1).T)
        columns.clear()

    for draw, (indices, ranks) in enumerate(picks):
        for k in sorted(set(shots)):
            chosen = indices[ranks < k]
            support = decompose(train_ND[chosen], train_labels_N[chosen], num_classes=num_classes)
            for metric, strength in zip(MODES[ridge], _strengths(support, ridge=ridge, shots=k), strict=True):
                heads.append((draw, k, metric, strength, len(chosen)))
                columns.append(support.predictor(strength))
                if ridge == "each":  # many strengths and classes are predicted one by one, to bound the memory
                    predict()
    if columns:
        predict()
    return heads, np.concatenate(predicted)


def _alike(picks: Sequence[tuple[np.ndarray, np.ndarray]], shots: Sequence[int]) -> set[int]:
    """Return those of `shots` at which all of several few-shot samples are the same images, because no class has more
    images.

    Args:
        picks: samples as `draw_support` returns them.
    """

    def all_the_same(k: int) -> bool:
        first, *others = (np.sort(indices[ranks < k]) for indices, ranks in picks)
        return bool(others) and all(np.array_equal(first, other) for other in others)

    return {k for k in shots if all_the_same(k)}


def _strengths(support: SupportSet, *, ridge: str, shots: int) -> tuple[float, ...]:
    """Return the ridge strengths for the metrics of a mode, in the order of `MODES`.

    Args:
        ridge: the mode, a key of `MODES`.
        shots: number of labelled images per class; with one, no strength can be chosen.
    """
    if ridge == "each":
        return RIDGES
    return tuple(
        choose_ridge(support, RIDGES) if metric == "accuracy" and shots > 1 else PUBLISHED_RIDGE
        for metric in MODES[ridge]
    )


def check_shots(shots: Sequence[int], draws: int) -> None:
    """Check that there is at least one number of labelled images per class (`shots`) and one few-shot sample (`draws`),
    all at least 1.

    Raises:
        UserError: this is not so.
    """
    if not shots or min(shots) < 1 or draws < 1:
        raise UserError(
            f"Few-shot needs at least one shot number and one draw, all at least 1, not shots={tuple(shots)}, "
            f"draws={draws}.",
            "For example shots 1,5,10,25 and 3 draws.",
        )


def _missing(
    picks: Sequence[object],
    shots: Sequence[int],
    metrics: Sequence[str],
    data: str,
    num_classes: int,
    num_test: int,
    reason: str,
) -> list[Score]:
    return [
        accuracy_score(
            None,
            task="fewshot",
            data=data,
            num_test=num_test,
            num_classes=num_classes,
            metric=metric,
            shots=k,
            draw=draw,
            detail={"reason": reason},
        )
        for draw in range(len(picks))
        for k in sorted(set(shots))
        for metric in metrics
    ]


TASK = Task(
    evaluate=evaluate,
    begin=begin,
    forward_images=forward_images,
    solving_seconds=solving_seconds,
)
