"""Ridge regression on a standardised support set (the labelled images of a few-shot probe). One matrix decomposition
serves every ridge strength.

The published few-shot protocol (big_vision's fewshot_lsr): every feature is standardised by the support set's mean and
std + 1e-5, a constant feature of 100 is appended, targets are +1 / -1, W = argmin |X W - Y|^2 + ridge |W|^2.

The standardised features sum to zero over the support set, so the constant feature is orthogonal to them: its weight
has a formula of its own and only the features are decomposed, which keeps the eigenvalues small enough for weak ridges.
Everything is computed in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bench.tasks._folds import Parts

STD_FLOOR = 1e-5
BIAS_FEATURE = 100.0


@dataclass(frozen=True, kw_only=True)
class SupportSet:
    """A support set (the labelled images of a few-shot probe) whose features are decomposed; build it with `decompose`.

    Shapes: N examples, D features, K classes, R the rank kept (min(N, D)).

    Attributes:
        mean_D, std_D: mean and standard deviation (with STD_FLOOR added) by which features are standardised.
        x_ND: standardised features, X in the formulas.
        targets_NK: +1 for an example's class, -1 elsewhere.
        eigenvalues_R: eigenvalues of X X^T where N < D, else of X^T X.
        vectors_NN: eigenvectors of X X^T where N < D, else None.
        vectors_DD: eigenvectors of X^T X where N >= D, else None.
    """

    mean_D: np.ndarray
    std_D: np.ndarray
    x_ND: np.ndarray
    targets_NK: np.ndarray
    eigenvalues_R: np.ndarray
    vectors_NN: np.ndarray | None
    vectors_DD: np.ndarray | None

    @cached_property
    def basis_NR(self) -> np.ndarray:
        """The examples in the eigenbasis: the eigenvectors of X X^T where N < D, else X times the eigenvectors of X^T
        X."""
        return self.vectors_NN if self.vectors_NN is not None else self.x_ND @ self.vectors_DD

    @cached_property
    def projected_RK(self) -> np.ndarray:
        """The targets in the eigenbasis. A ridge strength only rescales its rows."""
        if self.vectors_DD is not None:
            return self.vectors_DD.T @ (self.x_ND.T @ self.targets_NK)
        return self.basis_NR.T @ self.targets_NK

    @cached_property
    def squared_basis_NR(self) -> np.ndarray:
        """The squares of the elements of `basis_NR`. Their products with the shrinkages of the eigenvalues are the
        leverages of the examples."""
        return self.basis_NR**2

    def weights(self, ridge: float) -> np.ndarray:
        """Return float64 weights (D + 1, K) of the ridge regression for standardised features; the last row belongs to
        the constant feature of 100.

        Args:
            ridge: ridge strength.
        """
        shrunk_RK = self.projected_RK / (self.eigenvalues_R + ridge)[:, None]
        w_DK = self.x_ND.T @ (self.basis_NR @ shrunk_RK) if self.vectors_DD is None else self.vectors_DD @ shrunk_RK
        count = len(self.x_ND)
        bias_K = BIAS_FEATURE * self.targets_NK.sum(0) / (count * BIAS_FEATURE**2 + ridge)
        return np.concatenate([w_DK, bias_K[None]])

    def predictor(self, ridge: float) -> tuple[np.ndarray, np.ndarray]:
        """Return (w_DK, b_K) of the ridge regression for features that are not standardised: scores = features @ w + b.

        Args:
            ridge: ridge strength.
        """
        weights = self.weights(ridge)
        w_DK = weights[:-1] / self.std_D[:, None]
        return w_DK, BIAS_FEATURE * weights[-1] - self.mean_D @ w_DK

    def leave_one_out(self, ridge: float) -> np.ndarray:
        """Return residuals target - prediction (N, K), where each example is predicted by the fit without it
        (standardisation is not repeated).

        The closed form is Allen's PRESS: residual / (1 - leverage), which is exact for ridge at a fixed design.

        Args:
            ridge: ridge strength.
        """
        count = len(self.x_ND)
        bias = BIAS_FEATURE**2 / (count * BIAS_FEATURE**2 + ridge)  # the constant's part of every leverage and fit
        bias_fit_K = bias * self.targets_NK.sum(0)
        if self.vectors_DD is None:
            kept_R = ridge / (self.eigenvalues_R + ridge)  # 1 - shrinkage, without cancellation
            residual_NK = self.basis_NR @ (self.projected_RK * kept_R[:, None])
            remaining_N = self.squared_basis_NR @ kept_R
        else:
            shrink_R = 1.0 / (self.eigenvalues_R + ridge)
            residual_NK = self.targets_NK - self.basis_NR @ (self.projected_RK * shrink_R[:, None])
            remaining_N = 1.0 - self.squared_basis_NR @ shrink_R
        remaining_N = np.maximum(remaining_N - bias, 1e-12)
        return (residual_NK - bias_fit_K) / remaining_N[:, None]


def decompose(features_ND: np.ndarray, labels_N: np.ndarray, *, num_classes: int) -> SupportSet:
    """Standardise the features of a support set, and decompose X X^T or X^T X, whichever is smaller.

    Raises:
        FloatingPointError: a feature is not finite.
    """
    from scipy import linalg  # imported here: a plan imports every task for its revision, and decomposes nothing

    raw_ND = np.asarray(features_ND, dtype=np.float64)
    if not np.isfinite(raw_ND).all():
        raise FloatingPointError("features are not finite")
    mean_D = raw_ND.mean(0)
    std_D = raw_ND.std(0) + STD_FLOOR
    x_ND = (raw_ND - mean_D) / std_D
    x_ND -= x_ND.mean(0)  # removes the rounding error of the mean, so that the constant feature is orthogonal
    targets_NK = np.where(np.asarray(labels_N)[:, None] == np.arange(num_classes), 1.0, -1.0)
    vectors_NN = vectors_DD = None
    if len(x_ND) < x_ND.shape[1]:
        eigenvalues_R, vectors_NN = linalg.eigh(x_ND @ x_ND.T, driver="evd", check_finite=False)
    else:
        eigenvalues_R, vectors_DD = linalg.eigh(x_ND.T @ x_ND, driver="evd", check_finite=False)
    return SupportSet(
        mean_D=mean_D,
        std_D=std_D,
        x_ND=x_ND,
        targets_NK=targets_NK,
        vectors_NN=vectors_NN,
        eigenvalues_R=np.maximum(eigenvalues_R, 0.0),  # negative ones are rounding errors (positive semi-definite)
        vectors_DD=vectors_DD,
    )


def choose_by_folds(
    features_ND: np.ndarray, labels_N: np.ndarray, parts: Parts, candidates: tuple[float, ...], *, num_classes: int
) -> float:
    """Return the ridge strength with the smallest sum of squared residuals on the examples that each fold leaves out;
    of equally good ones the strongest.

    Args:
        parts: for each fold, (positions to fit, positions left out).
        candidates: the ridge strengths.
    """
    errors = dict.fromkeys(candidates, 0.0)
    for fitted_N, left_N in parts:
        support = decompose(features_ND[fitted_N], labels_N[fitted_N], num_classes=num_classes)
        targets_NK = np.where(labels_N[left_N][:, None] == np.arange(num_classes), 1.0, -1.0)
        for ridge in candidates:
            w_DK, b_K = support.predictor(ridge)
            errors[ridge] += float(((features_ND[left_N].astype(np.float64) @ w_DK + b_K - targets_NK) ** 2).sum())
    return -min((error, -ridge) for ridge, error in errors.items())[1]


def choose_ridge(support: SupportSet, candidates: tuple[float, ...]) -> float:
    """Return the ridge strength of `candidates` with the smallest mean squared leave-one-out residual; of equally good
    ones the strongest."""
    errors = [(float(np.mean(support.leave_one_out(ridge) ** 2)), -ridge) for ridge in candidates]
    return -min(errors)[1]
