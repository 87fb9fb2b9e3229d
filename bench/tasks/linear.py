"""Linear probe: multinomial logistic regression on frozen, standardised features.

The regularisation strength is chosen by cross-validation inside the training part, never on the test images. Images of
one group (such as photos of one patient) and copies of each other are in one fold. If no such folds have every class,
the strength is scikit-learn's default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.core.errors import UserError
from bench.core.metrics import check_several
from bench.study.record import Score
from bench.tasks import _folds
from bench.tasks.task import Task, TaskContext, Unsuited, accuracy_score, balanced_part, few_images, judged_by

STRENGTHS = tuple(10.0**power for power in range(-4, 3))  # scikit-learn's C: the inverse of the penalty


def evaluate(
    context: TaskContext,
    *,
    data: str,
    train_limit: int | None = 2_000,
    test_limit: int | None = 2_000,
    folds: int = 3,
    max_iter: int = 300,
    metrics: Sequence[str] = (),
) -> list[Score]:
    """Fit a linear probe on a nested, class-balanced part of the training split, and score it on such a part of the
    test split.

    Args:
        data: name of the set.
        train_limit, test_limit: sizes of the two parts; None takes the whole split.
        folds: number of folds of the cross-validation.
        max_iter: most iterations of the solver.
        metrics: metrics in addition to accuracy, of `bench.core.metrics`.

    Raises:
        UserError: an option is out of range, or the data is not on this machine.
        Unsuited: the set has one class, or a class has fewer images than there are folds.
    """
    if max_iter < 1:
        raise UserError(f"max_iter={max_iter}: the solver needs at least one iteration.")
    train = balanced_part(context.load(data, "train"), train_limit, several=True)
    test = balanced_part(context.load(data, "test"), test_limit, several=True)
    if train.several:
        check_several(metrics, name=train.name)
    head: dict[str, Any] = {"task": "linear", "data": data, "num_test": len(test), "num_classes": test.num_classes}
    smallest = int(np.bincount(train.labels_N, minlength=train.num_classes).min())
    try:
        if not train.several:  # with several labels per image, folds need not exist
            _check(folds, smallest=smallest, num_classes=train.num_classes)
    except UserError as error:
        raise Unsuited(f"{data}: {error.what}", error.fix, missing=[accuracy_score(None, **head)]) from error
    train_ND, test_MD = context.features(train.images_NHWC), context.features(test.images_NHWC)
    if not (np.isfinite(train_ND).all() and np.isfinite(test_MD).all()):
        return [accuracy_score(None, **head, detail={"reason": "features are not finite"})]
    parts = _folds.folds(train.labels_N, _folds.together(train), folds)
    if train.several:
        from bench.tasks import _several

        scores_MK, threshold = _several.logistic(train_ND, train.targets_NK, test_MD, parts)
        return _several.scores(scores_MK, test, threshold=threshold, detail={"num_train": len(train)}, **head)
    predicted_M, strength = fit_predict(train_ND, train.labels_N, test_MD, parts=parts, max_iter=max_iter)
    detail = {"inverse_penalty": strength, "num_train": len(train), "folds": 0 if parts is None else folds}
    judge: dict[str, Any] = {"content_hash": test.content_hash, "groups_M": test.groups_N, "names": test.class_names}
    judge |= {"copies_M": context.copies(test)}
    return judged_by(metrics, predicted_M, test.labels_N, **judge, **head, detail=detail)


def forward_images(
    *,
    num_train: int,
    num_test: int,
    num_classes: int,
    train_limit: int | None = 2_000,
    test_limit: int | None = 2_000,
    folds: int = 3,
    **_: object,
) -> int:
    """Return how many images pass through the network in one evaluation, to forecast its cost.

    Args:
        num_train, num_test, num_classes: numbers of images of the two splits, and of classes; other arguments are those
            of `evaluate`.

    Raises:
        UserError: there is one class only, or too few images per class even if all classes had the same size.
    """
    num_train = min(num_train, train_limit or num_train)
    _check(folds, smallest=num_train // num_classes, num_classes=num_classes)
    return num_train + min(num_test, test_limit or num_test)


def _check(folds: int, *, smallest: int, num_classes: int) -> None:
    """Check that folds for cross-validation can be made.

    Args:
        folds: number of folds.
        smallest: number of training images of the smallest class.

    Raises:
        UserError: there are fewer than two classes, fewer than two folds, or more folds than images of the smallest
            class.
    """
    if num_classes < 2:
        raise UserError("A linear probe needs at least two classes, and there is one.")
    if not 2 <= folds <= smallest:
        raise UserError(
            f"{folds} folds cannot be made: the smallest class has {smallest} training images.",
            "Use folds between 2 and that number, or a larger train_limit.",
        )


def fit_predict(
    train_ND: np.ndarray, labels_N: np.ndarray, test_MD: np.ndarray, *, parts: _folds.Parts | None, max_iter: int
) -> tuple[np.ndarray, float]:
    """Return (predicted class of every test image, the chosen C: scikit-learn's inverse of the penalty). Features are
    standardised by the training part; of equally good values of C the smallest is chosen.

    Args:
        parts: folds of the cross-validation; None takes a C of 1.
        max_iter: most iterations of the solver.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    mean_D, std_D = train_ND.mean(0, dtype=np.float64), train_ND.std(0, dtype=np.float64) + 1e-5
    x_ND, x_MD = (train_ND - mean_D) / std_D, (test_MD - mean_D) / std_D
    with warnings.catch_warnings():
        # A weak penalty on separable data never converges; its cross-validated accuracy is used as it is.
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = 1.0
        if parts is not None:
            means = [
                cross_val_score(LogisticRegression(C=c, max_iter=max_iter), x_ND, labels_N, cv=parts).mean()
                for c in STRENGTHS
            ]
            best = STRENGTHS[int(np.argmax(means))]
        model = LogisticRegression(C=best, max_iter=max_iter).fit(x_ND, labels_N)
    return model.predict(x_MD), best


TASK = Task(
    evaluate=evaluate,
    revision=2,  # 2: groups and copies stay together in one fold
    forward_images=forward_images,
    rehearsed=few_images,
    several_labels=True,
)
