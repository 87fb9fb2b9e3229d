"""Multinomial logistic regression with an L2 penalty whose strength is chosen by cross-validation. It finds the same
optimum as scikit-learn, but faster.

The penalty does not change when features are rotated. In the basis of their principal directions, of which there are at
most as many as examples, the curvature of the loss is nearly diagonal. L-BFGS needs fewer iterations if weights are
scaled by that curvature, and if it starts from the optimum of the next stronger penalty. Matrix products are float32.
From the strongest penalty on, weaker ones are tried until two in a row are worse than the best, because the weakest
take longest and are seldom chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.tasks._folds import Parts

STRENGTHS = tuple(10.0**power for power in range(-4, 3))  # scikit-learn's C: the inverse of the penalty
WORSE = 2  # number of worse penalties in a row after which no weaker one is tried
STD_FLOOR = 1e-5
MAX_ITER = 300  # iterations of L-BFGS; a weak penalty on separable data hardly converges, and is used as it is
GTOL, FTOL = 1e-5, 1e-7  # tolerances of L-BFGS for the mean loss, in nats
# For plans, measured on one core of 2025:
EVALUATIONS, FEW, WITHOUT_FOLDS = 750, 200, 50  # evaluations of the loss; from this many images on; where C is given
EVALUATED_PER_SECOND = 27e9  # float32 operations per second in matrix products
EACH, PER_SHARE, PER_WEIGHT = 1e-4, 8e-9, 40e-9  # further seconds of an evaluation: fixed, per probability, per weight


@dataclass(frozen=True, kw_only=True)
class Rotated:
    """Standardised examples in the basis of their principal directions.

    Attributes:
        mean_D, std_D: mean and standard deviation by which features are standardised.
        basis_DR: orthonormal principal directions, except those in which the examples do not differ.
        z_NR: the examples in that basis, float32.
        variance_R: mean square of each column of z_NR.
    """

    mean_D: np.ndarray
    std_D: np.ndarray
    basis_DR: np.ndarray
    z_NR: np.ndarray
    variance_R: np.ndarray

    def __call__(self, features_MD: np.ndarray) -> np.ndarray:
        """Return other examples, standardised by the same mean and deviation, in the same basis: (M, R) float32."""
        return (((features_MD - self.mean_D) / self.std_D) @ self.basis_DR).astype(np.float32)


def rotate(train_ND: np.ndarray) -> Rotated:
    """Return examples, standardised and in the basis of their principal directions."""
    from scipy import linalg  # imported here: a plan imports every task for its revision, and decomposes nothing

    mean_D, std_D = train_ND.mean(0, dtype=np.float64), train_ND.std(0, dtype=np.float64) + STD_FLOOR
    x_ND = (train_ND - mean_D) / std_D
    few = len(x_ND) < x_ND.shape[1]
    squares_R, vectors = linalg.eigh(x_ND @ x_ND.T if few else x_ND.T @ x_ND, driver="evd")
    kept_R = squares_R > max(x_ND.shape) * np.finfo(float).eps * squares_R[-1]
    squares_R, vectors = squares_R[kept_R], vectors[:, kept_R]
    basis_DR = x_ND.T @ (vectors / np.sqrt(squares_R)) if few else vectors
    z_NR = (x_ND @ basis_DR).astype(np.float32)
    return Rotated(mean_D=mean_D, std_D=std_D, basis_DR=basis_DR, z_NR=z_NR, variance_R=squares_R / len(x_ND))


def path(
    z_NR: np.ndarray, labels_N: np.ndarray, variance_R: np.ndarray, strengths: Sequence[float]
) -> Iterator[np.ndarray]:
    """Fit logistic regressions with ascending C (scikit-learn's inverse of the penalty), each starting from the
    previous one. Yield the weights (R + 1, K) for each of `strengths`; the last row holds the intercepts.

    Args:
        z_NR: examples as `Rotated` has them.
        labels_N: class numbers from 0; every number up to the largest occurs.
        variance_R: approximate mean square of each column of z_NR.
        strengths: values of C, ascending.
    """
    from scipy.optimize import minimize

    number, classes = len(z_NR), int(labels_N.max()) + 1
    rows_N = np.arange(number)
    z_NR1 = np.concatenate([z_NR, np.ones((number, 1), np.float32)], axis=1)
    z_R1N = np.ascontiguousarray(z_NR1.T)  # this copy doubles the memory, and halves the time of the gradient
    w_RK = np.zeros((z_NR1.shape[1], classes))
    for strength in strengths:
        # with two classes scikit-learn fits, and penalises, the difference of their weights
        each = (2 if classes == 2 else 1) / (strength * number)
        penalty_R1 = np.append(np.full(z_NR.shape[1], each), 0.0)[:, None]
        unit_R1 = 1 / np.sqrt(penalty_R1 + np.append(variance_R, 1.0)[:, None] / classes)

        def loss(
            flat: np.ndarray, penalty_R1: np.ndarray = penalty_R1, unit_R1: np.ndarray = unit_R1
        ) -> tuple[float, np.ndarray]:
            w_RK = flat.reshape(-1, classes) * unit_R1
            logits_NK = z_NR1 @ w_RK.astype(np.float32)
            logits_NK -= logits_NK.max(axis=1, keepdims=True)
            excess_NK = np.exp(logits_NK)
            total_N1 = excess_NK.sum(axis=1, keepdims=True)
            nats = (np.log(total_N1[:, 0]) - logits_NK[rows_N, labels_N]).mean(dtype=np.float64)
            excess_NK /= total_N1
            excess_NK[rows_N, labels_N] -= 1
            pull_RK = penalty_R1 * w_RK
            gradient_RK = (z_R1N @ excess_NK / number + pull_RK) * unit_R1
            return float(nats + (pull_RK * w_RK).sum() / 2), gradient_RK.ravel()

        options = {"maxiter": MAX_ITER, "gtol": GTOL, "ftol": FTOL}
        solved = minimize(loss, (w_RK / unit_R1).ravel(), jac=True, method="L-BFGS-B", options=options)
        w_RK = solved.x.reshape(-1, classes) * unit_R1
        yield w_RK


def classify(z_MR: np.ndarray, w_RK: np.ndarray) -> np.ndarray:
    """Return the predicted classes of examples: (M,).

    Args:
        z_MR: examples as `Rotated.__call__` returns them.
        w_RK: weights, with the intercepts in the last row.
    """
    return (z_MR @ w_RK[:-1] + w_RK[-1]).argmax(1)


def fit(
    train_ND: np.ndarray, labels_N: np.ndarray, parts: Parts | None
) -> tuple[Rotated, np.ndarray, np.ndarray, float]:
    """Fit a logistic regression whose C (scikit-learn's inverse of the penalty) is chosen by cross-validation; of
    equally good values the smallest.

    Args:
        parts: folds of the cross-validation; None takes a C of 1.

    Returns:
        (the rotated examples, weights (R + 1, K) with intercepts in the last row, class of each column (K,), the chosen
        C).
    """
    rotated, (classes_K, known_N) = rotate(train_ND), np.unique(labels_N, return_inverse=True)
    z_NR, best = rotated.z_NR, 1.0
    if parts is not None:
        paths = [path(z_NR[fitted_N], known_N[fitted_N], rotated.variance_R, STRENGTHS) for fitted_N, _ in parts]
        means: list[float] = []
        for weights in zip(*paths, strict=True):
            right = [
                (classify(z_NR[out], w) == known_N[out]).mean() for (_, out), w in zip(parts, weights, strict=True)
            ]
            means.append(float(np.mean(right)))
            if len(means) - 1 - int(np.argmax(means)) >= WORSE:
                break
        best = STRENGTHS[int(np.argmax(means))]
    *_, w_RK = path(z_NR, known_N, rotated.variance_R, [c for c in STRENGTHS if c <= best])
    return rotated, w_RK, classes_K, best


def seconds(images: int, features: int, classes: int, *, folds: int) -> float:
    """Estimate the seconds that one core takes to fit a logistic regression and predict, to forecast costs.

    How hard classes are to separate is not known beforehand: three times as many evaluations of the loss occur, or half
    as many.

    Args:
        images: number of training images.
        features: number of features.
        classes: number of classes.
        folds: number of folds of the cross-validation; 0 without it.
    """
    rank = min(images, features)
    times = EVALUATIONS * min(1.0, images / FEW) ** 0.5 if folds else WITHOUT_FOLDS
    products = 4 * images * rank * classes / EVALUATED_PER_SECOND
    return times * (EACH + products + PER_SHARE * images * classes + PER_WEIGHT * rank * classes)
