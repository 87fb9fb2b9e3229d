"""The closed-form ridge against independent solutions, in both regimes (N >= D and N < D)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg
from sklearn.linear_model import Ridge

from bench.tasks._ridge import BIAS_FEATURE, STD_FLOOR, choose_ridge, decompose
from bench.tasks.fewshot import PUBLISHED_RIDGE, RIDGES, score_features

REGIMES = {"more examples than features": (120, 40), "fewer": (50, 130), "square": (60, 60), "one per class": (6, 64)}
STRENGTHS = (2.0**-4, 1.0, PUBLISHED_RIDGE, 2.0**20)
CLASSES = 6


def problem(regime: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features with very different scales, a dead one and a duplicated one; labels; test features."""
    count, dims = REGIMES[regime]
    rng = np.random.default_rng(seed)
    scale_D = np.exp(rng.normal(size=dims) * 2)
    labels_N = np.arange(count) % CLASSES
    centres_KD = rng.normal(size=(CLASSES, dims))

    def sample(labels: np.ndarray) -> np.ndarray:
        x = (centres_KD[labels] + 2 * rng.normal(size=(len(labels), dims))) * scale_D + 3
        x[:, 0] = 0.25
        x[:, 1] = x[:, 2]
        return x

    return sample(labels_N), labels_N, sample(rng.integers(0, CLASSES, 300))


def design(support_ND: np.ndarray, other_MD: np.ndarray) -> np.ndarray:
    """The published design matrix, written out: standardised by the support set, and a column of 100."""
    mean_D, std_D = support_ND.mean(0), support_ND.std(0) + STD_FLOOR
    return np.concatenate([(other_MD - mean_D) / std_D, np.full((len(other_MD), 1), BIAS_FEATURE)], axis=1)


@pytest.mark.parametrize("ridge", STRENGTHS)
@pytest.mark.parametrize("regime", REGIMES)
def test_weights_equal_an_independent_solution(regime: str, ridge: float) -> None:
    """Least squares on the design stacked on sqrt(ridge) I: no normal equations, no eigenvectors."""
    support_ND, labels_N, _ = problem(regime)
    x = design(support_ND, support_ND)
    y = 2.0 * np.eye(CLASSES)[labels_N] - 1.0
    stacked_x = np.concatenate([x, np.sqrt(ridge) * np.eye(x.shape[1])])
    stacked_y = np.concatenate([y, np.zeros((x.shape[1], CLASSES))])
    expected = linalg.lstsq(stacked_x, stacked_y, lapack_driver="gelsd")[0]
    found = decompose(support_ND, labels_N, num_classes=CLASSES).weights(ridge)
    assert np.linalg.norm(found - expected) <= 1e-8 * np.linalg.norm(expected)


@pytest.mark.parametrize("ridge", STRENGTHS)
@pytest.mark.parametrize("regime", REGIMES)
def test_predictions_equal_scikit_learn(regime: str, ridge: float) -> None:
    support_ND, labels_N, test_MD = problem(regime)
    y = 2.0 * np.eye(CLASSES)[labels_N] - 1.0
    model = Ridge(alpha=ridge, fit_intercept=False, solver="svd").fit(design(support_ND, support_ND), y)
    expected_M = model.predict(design(support_ND, test_MD)).argmax(1)
    w_DK, b_K = decompose(support_ND, labels_N, num_classes=CLASSES).predictor(ridge)
    np.testing.assert_array_equal((test_MD @ w_DK + b_K).argmax(1), expected_M)


@pytest.mark.parametrize("ridge", STRENGTHS)
@pytest.mark.parametrize("regime", REGIMES)
def test_leave_one_out_equals_leaving_each_out(regime: str, ridge: float) -> None:
    support_ND, labels_N, _ = problem(regime)
    x = design(support_ND, support_ND)
    y = 2.0 * np.eye(CLASSES)[labels_N] - 1.0
    brute = np.empty_like(y)
    for left_out in range(len(x)):
        kept = np.arange(len(x)) != left_out
        gram = x[kept] @ x[kept].T + ridge * np.eye(kept.sum())
        brute[left_out] = y[left_out] - x[left_out] @ x[kept].T @ np.linalg.solve(gram, y[kept])
    found = decompose(support_ND, labels_N, num_classes=CLASSES).leave_one_out(ridge)
    np.testing.assert_allclose(found, brute, rtol=1e-6, atol=1e-6 * np.abs(brute).max())


@pytest.mark.parametrize("regime", ["more examples than features", "fewer"])
def test_the_chosen_ridge_has_the_smallest_error(regime: str) -> None:
    support_ND, labels_N, _ = problem(regime)
    support = decompose(support_ND, labels_N, num_classes=CLASSES)
    errors = {ridge: np.mean(support.leave_one_out(ridge) ** 2) for ridge in RIDGES}
    assert choose_ridge(support, RIDGES) == min(errors, key=lambda ridge: errors[ridge])


def test_not_finite_features_are_refused() -> None:
    with pytest.raises(FloatingPointError):
        decompose(np.array([[1.0, np.nan], [0.0, 1.0]]), np.array([0, 1]), num_classes=2)


@pytest.mark.parametrize("regime", REGIMES)
def test_every_strength_on_request_predicts_what_scikit_learn_does(regime: str) -> None:
    support_ND, labels_N, test_MD = problem(regime)
    y = 2.0 * np.eye(CLASSES)[labels_N] - 1.0
    train, test = design(support_ND, support_ND), design(support_ND, test_MD)
    test_labels_M = np.arange(len(test_MD)) % CLASSES
    ranks_N = np.zeros(len(labels_N), dtype=np.int64)
    scores = score_features(
        support_ND,
        labels_N,
        test_MD,
        test_labels_M,
        picks=[(np.arange(len(labels_N)), ranks_N)],
        data="toy",
        num_classes=CLASSES,
        shots=(1,),
        ridge="each",
    )
    assert [score.detail["ridge"] for score in scores] == list(RIDGES)
    for ridge, score in zip(RIDGES, scores, strict=True):
        model = Ridge(alpha=ridge, fit_intercept=False, solver="svd").fit(train, y)
        assert score.value == (model.predict(test).argmax(1) == test_labels_M).mean()
