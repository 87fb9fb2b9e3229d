"""Adapt a frozen model to labelled images: how accurate it is with how many of them, in several ways of adapting.

Labelled images are sampled per class. A sample of fewer images per class lies within each larger one, and every model
and way is given the same samples. The largest number of images per class is the size of the largest class, which means
all images. The ways share one pass through the network:

- "ridge": ridge regression in closed form, with its strength chosen by leave-one-out (`_ridge.py`), or by folds where
  there are groups or copies;
- "knn": nearest neighbours by cosine similarity (`knn.py`);
- "logistic": logistic regression, with its strength chosen by cross-validation (`_logistic.py`). Fine-tuning only the
  head converges to it.

Ways and models are chosen without the test images: at the largest number, `detail["validation"]` is the accuracy within
the labelled images, by cross-validation, and `detail["errors"]` says which classes were taken for which. Images of one
group (`bench.data.groups`, such as photos of one patient) and copies of each other are in one fold (`_folds.together`),
and test images of one group are not treated as independent. Training images that are copies of test images are left
out; `_photos.py` describes what else the detail holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.core.errors import UserError, unknown
from bench.core.metrics import check_several
from bench.data.image_set import ImageSet
from bench.data.subset import first_per_class
from bench.study.record import Score
from bench.tasks import _logistic, _photos, fewshot, knn
from bench.tasks._features import timed
from bench.tasks._folds import Parts, alone, folds, together
from bench.tasks._ridge import choose_by_folds, choose_ridge, decompose
from bench.tasks.task import Task, TaskContext, accuracy_score, at_once, balanced_part, few_images, judged_by

SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
FOLDS = 3
SORTED = 25e-9  # seconds to rank one neighbour; for plans
LIBRARIES = 1.0  # seconds to load scikit-learn and SciPy; for plans

Predict = Callable[..., np.ndarray]
"""(train_ND, labels_N, test_MD, num_classes, groups_N) -> predicted_M. groups_N holds numbers that are equal for
training images that belong together (copies, or photos of one patient), or is None."""
Grouped = np.ndarray | None


def ridge(
    train_ND: np.ndarray, labels_N: np.ndarray, test_MD: np.ndarray, num_classes: int, groups_N: Grouped = None
) -> np.ndarray:
    """Return the predicted classes of test images, (M,), by ridge regression on frozen features.

    Args:
        groups_N: numbers, equal for training images that belong together (copies, or photos of one patient); None where
            no images do.
    """
    return ridge_scores(train_ND, labels_N, test_MD, num_classes, groups_N).argmax(1)


def ridge_scores(
    train_ND: np.ndarray, labels_N: np.ndarray, test_MD: np.ndarray, num_classes: int, groups_N: Grouped = None
) -> np.ndarray:
    """Return the score of each class for test images, (M, K), by ridge regression on frozen features.

    Args:
        groups_N: numbers, equal for training images that belong together (copies, or photos of one patient); None where
            no images do.
    """
    w_DK, b_K = ridge_head(train_ND, labels_N, num_classes, groups_N)
    return np.asarray(test_MD, dtype=np.float64) @ w_DK + b_K


def ridge_head(
    train_ND: np.ndarray, labels_N: np.ndarray, num_classes: int, groups_N: Grouped = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return (w_DK, b_K) of ridge regression, for features that are not standardised: scores = features @ w + b. Its
    strength is chosen by leave-one-out, or by folds if images belong together.

    Args:
        groups_N: numbers, equal for training images that belong together (copies, or photos of one patient); None where
            no images do.
    """
    support, strength = decompose(train_ND, labels_N, num_classes=num_classes), fewshot.PUBLISHED_RIDGE
    if not alone(groups_N):
        if (parts := folds(labels_N, groups_N, FOLDS)) is not None:
            strength = choose_by_folds(train_ND, labels_N, parts, fewshot.RIDGES, num_classes=num_classes)
    elif int(np.bincount(labels_N).max()) > 1:  # leaving out a class's only image leaves nothing to learn it from
        strength = choose_ridge(support, fewshot.RIDGES)
    return support.predictor(strength)


def neighbours(
    train_ND: np.ndarray, labels_N: np.ndarray, test_MD: np.ndarray, num_classes: int, groups_N: Grouped = None
) -> np.ndarray:
    """Return the predicted classes of test images, (M,), by their 20 nearest training images. `groups_N` is not used,
    because nothing is chosen."""
    return knn.predict(train_ND, labels_N, test_MD, num_classes=num_classes, neighbours=20, temperature=0.07)


def logistic(
    train_ND: np.ndarray, labels_N: np.ndarray, test_MD: np.ndarray, num_classes: int, groups_N: Grouped = None
) -> np.ndarray:
    """Return the predicted classes of test images, (M,), by logistic regression on frozen features. The strength of its
    penalty is chosen by cross-validation; if a class has fewer images than there are folds, it is scikit-learn's
    default.

    Args:
        groups_N: numbers, equal for training images that belong together (copies, or photos of one patient); None where
            no images do.
    """
    rotated, w_RK, classes_K, _ = _logistic.fit(train_ND, labels_N, _parts(labels_N, groups_N, num_classes))
    return classes_K[_logistic.classify(rotated(test_MD), w_RK)]


def _parts(labels_N: np.ndarray, groups_N: Grouped, num_classes: int) -> Parts | None:
    """Return the folds of the cross-validation that chooses the strength of logistic regression; None if a class has
    too few images, or there are too few groups.

    Args:
        groups_N: numbers, equal for training images that belong together (copies, or photos of one patient); None where
            no images do.
    """
    return folds(labels_N, groups_N, FOLDS) if np.bincount(labels_N, minlength=num_classes).all() else None


def logistic_head(
    train_ND: np.ndarray, labels_N: np.ndarray, num_classes: int, groups_N: Grouped = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return (w_DK, b_K) of logistic regression, for features that are not standardised: logits = features @ w + b. A
    class without images has a bias of -inf.

    Args:
        groups_N: numbers, equal for training images that belong together (copies, or photos of one patient); None where
            no images do.
    """
    rotated, w_RK, classes_K, _ = _logistic.fit(train_ND, labels_N, _parts(labels_N, groups_N, num_classes))
    w_DK, b_K = np.zeros((train_ND.shape[1], num_classes)), np.full(num_classes, -np.inf)  # for classes without images
    w_DK[:, classes_K] = rotated.basis_DR @ w_RK[:-1] / rotated.std_D[:, None]
    b_K[classes_K] = w_RK[-1] - rotated.mean_D @ w_DK[:, classes_K]
    return w_DK, b_K


WAYS: dict[str, Predict] = {"ridge": ridge, "knn": neighbours, "logistic": logistic}
HEADS: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {"ridge": ridge_head, "logistic": logistic_head}


def begin(
    context: TaskContext,
    *,
    data: str,
    ways: Sequence[str] = tuple(WAYS),
    sizes: Sequence[int] = SIZES,
    draws: int = 3,
    train_limit: int | None = None,
    test_limit: int | None = None,
    metrics: Sequence[str] = (),
) -> Callable[[], list[Score]]:
    """Compute the frozen features of all images of a set, and return a function that adapts to labelled images and
    scores.

    Args:
        data: name of the set; growing parts of its training split are labelled images, its test split is scored.
        ways: ways of adapting, keys of `WAYS`.
        sizes: numbers of labelled images per class, ascending; one above the largest class means all images.
        draws: number of samples of labelled images at every size but the last, at which all samples are the same.
        train_limit, test_limit: sizes of nested, class-balanced parts of the two splits; None takes all.
        metrics: metrics in addition to accuracy, of `bench.core.metrics`.

    Returns:
        A function that returns one score per way, size, sample and metric.

    Raises:
        UserError: an option is out of range, or the data is not on this machine.
    """
    fewshot.check_shots(sizes, draws)
    for way in ways:
        if way not in WAYS:
            raise unknown("way of adapting", way, WAYS)
    read_images = read(context, data=data, train_limit=train_limit, test_limit=test_limit)
    train, train_ND, test, test_MD, copies, passed = read_images
    if train.several:
        check_several(metrics, name=train.name)
    largest = int(np.bincount(train.labels_N).max())
    numbers = sorted({min(size, largest) for size in (*sizes, largest)})
    head: dict[str, Any] = {"data": data, "num_test": len(test), "num_classes": test.num_classes}
    own = context.upstream is not None and context.upstream.name == train.name  # then a checkpoint, not trained on it
    copies_M, content_hash = None if own else context.copies(test), test.content_hash
    picks = [drawn(train, data, draw) for draw in range(draws)]

    def scored(way: str, number: int, draw: int) -> list[Score]:
        indices_N, ranks_N = picks[draw]
        chosen_N = indices_N[ranks_N < number]
        x_ND, labels_N = train_ND[chosen_N], train.labels_N[chosen_N]
        groups_N = None if train.groups_N is None else train.groups_N[chosen_N]
        named = head | {"task": f"adapt@{way}", "shots": number, "draw": draw}
        if not (np.isfinite(x_ND).all() and np.isfinite(test_MD).all()):
            return [accuracy_score(None, **named, detail={"reason": "features are not finite"})]
        started = time.perf_counter()
        if train.several:
            chosen = train.take(chosen_N)
            return _of_several(way, x_ND, chosen, test, test_MD, named, whole=number == largest, seconds=passed)
        predicted_M = WAYS[way](x_ND, labels_N, test_MD, train.num_classes, groups_N)
        fitted = time.perf_counter() - started
        detail: dict[str, Any] = {"num_support": len(chosen_N)}
        facts: dict[str, Any] = {}
        # Groups of test images and values on resamples take space, so they are kept at the largest number only.
        kept = content_hash if number == largest or (test.groups_N is None and not metrics) else None
        judge: dict[str, Any] = {"content_hash": kept, "groups_M": test.groups_N, "names": train.class_names}
        if number != largest:
            return judged_by(metrics, predicted_M, test.labels_N, copies_M=copies_M, **judge, **named, detail=detail)
        detail["same_images"], detail["seconds"] = True, passed + fitted  # every sample is the same images
        validated_N = cross_validated(WAYS[way], x_ND, labels_N, num_classes=train.num_classes, groups_N=groups_N)
        right_N = None if validated_N is None else validated_N == labels_N
        facts["validation"] = None if right_N is None else float(right_N.mean())
        facts["errors"] = errors(predicted_M, test.labels_N, train.class_names)
        facts["classes"] = _photos.by_class(train.class_names, labels_N, test.labels_N, right_N)
        if groups_N is not None:
            detail["groups"] = len(np.unique(groups_N))
        facts["set_aside"], facts["contrary"] = int(copies.aside_N.sum()), copies.num_contrary
        facts["contrary_pictures"] = list(copies.contrary)
        sure_MK = ridge_scores(x_ND, labels_N, test_MD, train.num_classes, groups_N)
        facts["surest_errors"] = _photos.surest_errors(test, predicted_M, sure_MK)
        judge |= {"copies_M": copies_M, "detail": detail, "facts": facts}
        made = judged_by(metrics, predicted_M, test.labels_N, **judge, **named)
        return [made[0], *(_validated(score, validated_N, labels_N) for score in made[1:])]

    asked = [(way, n, draw) for way in ways for n in numbers for draw in range(draws if n < largest else 1)]
    return lambda: [score for one in asked for score in scored(*one)]


evaluate = at_once(begin)


def read(
    context: TaskContext, *, data: str, train_limit: int | None = None, test_limit: int | None = None, **_: object
) -> tuple[ImageSet, np.ndarray, ImageSet, np.ndarray, _photos.Copies, float]:
    """Read both splits of a set and compute their frozen features.

    Args:
        data: name of the set.
        train_limit, test_limit: sizes of nested, class-balanced parts of the two splits; None takes all.

    Returns:
        (labelled images that are no copies of test images, with `_folds.together` as their groups; their features; test
        images; their features; the copies that were found; seconds that the network took for the labelled images).

    Raises:
        UserError: the data is not on this machine, a limit is out of range, or all images are of one class.
    """
    train = balanced_part(context.load(data, "train"), train_limit, several=True)
    test = balanced_part(context.load(data, "test"), test_limit, several=True)
    if len(np.unique(train.labels_N)) < 2:
        raise UserError(f"{data} has images of one class.", "Adapting needs two classes or more.")
    train_ND, seconds = timed(context.features, train.images_NHWC)
    test_MD = context.features(test.images_NHWC)
    copies, train = _photos.copies(train, test), replace(train, groups_N=together(train))
    return train.take(np.flatnonzero(~copies.aside_N)), train_ND[~copies.aside_N], test, test_MD, copies, seconds


def drawn(train: ImageSet, data: str, draw: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (positions of the labelled images in a random order, rank of each in its class). The images of rank < k
    are a sample of k images per class.

    Args:
        data: name of the set, on which the order depends.
        draw: number of the sample, on which the order depends.
    """
    return first_per_class(train.labels_N, len(train), f"fewshot/{data}/draw-{draw}", keys_N=train.content_keys_N)


def cross_validated(
    way: Predict, x_ND: np.ndarray, labels_N: np.ndarray, *, num_classes: int, groups_N: Grouped = None
) -> np.ndarray | None:
    """Return the classes of labelled images as cross-validation predicts them: (N,). None if a class has too few
    images, or there are too few groups.

    Args:
        way: the way of adapting, a value of `WAYS`.
        groups_N: numbers, equal for images that belong together and are left out together; None where no images do.
    """
    if (parts := folds(labels_N, groups_N, FOLDS)) is None:
        return None
    predicted_N = np.zeros_like(labels_N)
    for fitted_N, left_N in parts:
        grouped_N = None if groups_N is None else groups_N[fitted_N]
        predicted_N[left_N] = way(x_ND[fitted_N], labels_N[fitted_N], x_ND[left_N], num_classes, grouped_N)
    return predicted_N


def _of_several(
    way: str,
    x_ND: np.ndarray,
    chosen: ImageSet,
    test: ImageSet,
    test_MD: np.ndarray,
    named: Mapping[str, Any],
    *,
    whole: bool,
    seconds: float,
) -> list[Score]:
    """Return the scores of one way of adapting to images with several labels each.

    Args:
        way: key of `WAYS`.
        x_ND, chosen: features of the labelled images that are used, and these images.
        named: fields of the scores that identify them.
        whole: whether `chosen` are all labelled images; these are also cross-validated.
        seconds: seconds that the network took for the labelled images.
    """
    from bench.tasks import _several

    started, targets_NK = time.perf_counter(), chosen.targets_NK
    parts = _several.parts_of(chosen)
    scores_MK, threshold = _several.WAYS[way](x_ND, targets_NK, test_MD, parts)
    detail: dict[str, Any] = {"num_support": len(chosen)}
    if whole:
        detail |= {"same_images": True, "seconds": seconds + time.perf_counter() - started}
        detail |= {} if chosen.groups_N is None else {"groups": len(np.unique(chosen.groups_N))}
    validation = None
    if whole and parts is not None:
        validation = _several.cross_validated(_several.WAYS[way], x_ND, targets_NK, parts)
    about: dict[str, Any] = {"threshold": threshold, "keep": whole, "validation": validation, "detail": detail}
    return _several.scores(scores_MK, test, **about, **named)


def _validated(score: Score, validated_N: np.ndarray | None, labels_N: np.ndarray) -> Score:
    """Return a score with the cross-validated value of its metric added to its detail as "validation".

    Args:
        validated_N: classes of the labelled images as cross-validation predicts them; None without cross-validation.
        labels_N: their correct classes.
    """
    from bench.tasks import _metrics

    value = None if validated_N is None else _metrics.value_of(score.metric, validated_N, labels_N)
    return replace(score, detail={**score.detail, "validation": value})


def errors(predicted_M: np.ndarray, labels_M: np.ndarray, names: Sequence[str]) -> list[list[Any]]:
    """Return [correct class, predicted class, number of test images] for each pair of classes that was confused, the
    most frequent first.

    Args:
        names: names of the classes.
    """
    wrong_M = predicted_M != labels_M
    pairs, counts = np.unique(np.stack([labels_M[wrong_M], predicted_M[wrong_M]], axis=1), axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [[names[pairs[i][0]], names[pairs[i][1]], int(counts[i])] for i in order]


def forward_images(
    *, num_train: int, num_test: int, train_limit: int | None = None, test_limit: int | None = None, **_: object
) -> int:
    """Return how many images pass through the network in one evaluation, to forecast its cost.

    Args:
        num_train, num_test: numbers of images of the two splits; other arguments are those of `begin`.
    """
    return min(num_train, train_limit or num_train) + min(num_test, test_limit or num_test)


def solving_seconds(
    *,
    num_train: int,
    num_test: int,
    num_classes: int,
    features: int,
    image_side: int = 0,
    ways: Sequence[str] = tuple(WAYS),
    sizes: Sequence[int] = SIZES,
    draws: int = 3,
    train_limit: int | None = None,
    test_limit: int | None = None,
    **_: object,
) -> float:
    """Return the seconds that one core takes to search for copies, fit and score, to forecast the cost of an
    evaluation.

    Args:
        num_train, num_test: numbers of images of the two splits.
        features: number of features of the model.
        image_side: pixels per side of the images; other arguments are those of `begin`.
    """
    tests, pool = min(num_test, test_limit or num_test), min(num_train, train_limit or num_train)
    largest = -(-pool // num_classes)
    fits = [(size * num_classes, tests, draws) for size in sizes if size < largest]
    fits += [(pool, tests, 1), (pool * (FOLDS - 1) // FOLDS, pool // FOLDS, FOLDS)]
    fitting = (times * fit_seconds(images, rest, num_classes, features, ways=ways) for images, rest, times in fits)
    return LIBRARIES + _photos.seconds(pool, tests, image_side) + sum(fitting)


def fit_seconds(images: int, tests: int, classes: int, features: int, *, ways: Sequence[str]) -> float:
    """Return the seconds that one core takes to fit labelled images in each way of adapting and to predict others, to
    forecast costs.

    Args:
        images, tests: numbers of labelled images, and of images to predict.
        classes, features: numbers of classes and features.
        ways: keys of `WAYS`.
    """
    each, seconds = -(-images // classes), 0.0
    if "ridge" in ways:
        shape = {"num_train": images, "num_test": tests, "num_classes": classes, "features": features}
        seconds += fewshot.solving_seconds(**shape, shots=(each,), draws=1, ridge="loo", support_pool=None)
    if "knn" in ways:
        seconds += images * tests * (2 * features / fewshot.SOLVED_PER_SECOND + SORTED)
    if "logistic" in ways:
        seconds += _logistic.seconds(images, features, classes, folds=FOLDS if each >= FOLDS else 0)
    return seconds


def slowness(quickest: Callable[[Callable[[], object]], float]) -> float:
    """Return the factor by which fits take longer on this machine than `fit_seconds` says. It is measured on random
    features, with those ways of adapting whose amount of work is always the same.

    Args:
        quickest: function that calls another function several times, and returns the seconds of the quickest call.
    """
    rng, number, classes, width = np.random.default_rng(0), 600, 10, 256
    labels_N, x_ND = np.arange(number) % classes, rng.normal(size=(number, width)).astype(np.float32)
    ways = ("ridge", "knn")

    def fit() -> None:
        for way in ways:
            WAYS[way](x_ND, labels_N, x_ND, classes)

    fit()  # a first call loads libraries
    return quickest(fit) / fit_seconds(number, number, classes, width, ways=ways)


TASK = Task(
    evaluate=evaluate,
    begin=begin,
    revision=3,  # 2: training images that are copies of test images are left out; 3: copies and groups stay together
    forward_images=forward_images,
    rehearsed=few_images,
    solving_seconds=solving_seconds,
    slowness=slowness,
    several_labels=True,
)
