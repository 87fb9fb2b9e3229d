"""Predicts how many labelled images a model needs to reach an accuracy, from its errors at smaller numbers of images.

The law is error(n) = error(m) · (f + (1 - f) (n / m)^-c), where m is the largest number of images so far, c the
exponent, and f the fraction of the error that remains with any number of images. A few points hardly determine c and f,
and real curves deviate from the law. So the answer is a posterior distribution: every (c, f) is weighted by how usual
it is for such curves (the prior) and by how well it fits. A point far below m counts little, because the law may not
hold so far back; beyond m the exponent may change as well. The constants were set on one half of the curves of
`tools/labelling_curves.py`; the other half measures how often intervals hold the truth (results/reference/coverage/).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from bench.laws.bootstrap import LAW_LEVEL
from bench.laws.extrapolation import MIN_PLACES, REACH

EXPONENT, EXPONENT_SPREAD = 0.35, 0.5  # prior of c: its median, and the standard deviation of its logarithm
FLOOR = (0.5, 2.0)  # parameters of the beta distribution that is the prior of f
BACK = 0.2  # standard deviation of the law's misfit in log error, per unit of log distance below m
AHEAD = 0.25  # standard deviation of the logarithm of the factor by which the exponent changes beyond m
PRIOR_DRAWS = 2.0  # degrees of freedom of the prior of the variance between random draws of the training images
EXPONENTS, FLOORS, LEVELS, CHANGES = 40, 40, 15, 9
"""Numbers of grid nodes: for c, for f, for the true error at m, and for the change of the exponent beyond m."""


@dataclass(frozen=True, kw_only=True)
class LabellingCurve:
    """Test errors of one pre-trained model, adapted in one way, over the number of labelled images.

    Attributes:
        images: numbers of labelled images, ascending; at least two.
        errors: for each number, the error (0 to 1) of every random draw of that many images. The last number, which is
            all images, has one draw.
        num_test: number of test images behind each error.
    """

    images: tuple[float, ...]
    errors: tuple[tuple[float, ...], ...]
    num_test: int


@dataclass(frozen=True, kw_only=True)
class ImagesNeeded:
    """How many labelled images, in all, are needed to reach an error: a posterior distribution, summarised.

    Attributes:
        images: median; like the ends of the interval, infinite beyond `REACH` times the images at hand.
        low, high: ends of the interval.
        chance: probability that `REACH` times the images at hand are enough.
    """

    images: float
    low: float
    high: float
    chance: float


def images_needed(seen: LabellingCurve, wanted: float, *, level: float = LAW_LEVEL) -> ImagesNeeded | None:
    """Return how many labelled images are needed to reach the error `wanted`, with an interval at a confidence `level`;
    None for a curve of fewer than `MIN_PLACES` numbers of images."""
    if len(seen.images) < MIN_PLACES:
        return None
    least = 0.5 / seen.num_test
    logs = [np.log(np.maximum(each, least)) for each in seen.errors]
    y_P, draws_P = np.array([each.mean() for each in logs]), np.array([len(each) for each in logs])
    x_P, error = np.log(np.array(seen.images) / seen.images[-1]), float(np.exp(y_P[-1]))
    # Variance of log error from the finite test set, which all points share. It stays above 0 even if every test image
    # is misclassified.
    judged = max(1 - error, least) / error / seen.num_test
    squares, freedom = sum(float(((each - each.mean()) ** 2).sum()) for each in logs), int((draws_P - 1).sum())
    between = (squares + PRIOR_DRAWS * judged) / (freedom + PRIOR_DRAWS)
    share_P = np.exp(x_P)  # fraction of all images in a draw: draws overlap by it, so they are correlated
    variance_P = between * (share_P + (1 - share_P) / draws_P) + (BACK * x_P) ** 2

    c_C = EXPONENT * np.exp(EXPONENT_SPREAD * special.ndtri(_middles(EXPONENTS)))
    f_F = special.betaincinv(*FLOOR, _middles(FLOORS))
    shape_CFP = np.log(f_F[:, None] + (1 - f_F[:, None]) * np.exp(-c_C[:, None, None] * x_P))
    off_CFP = y_P - shape_CFP
    precision = (1 / variance_P).sum()
    level_CF = (off_CFP / variance_P).sum(-1) / precision
    misfit_CF = ((off_CFP - level_CF[..., None]) ** 2 / variance_P).sum(-1)
    weight_CF = np.exp(-(misfit_CF - misfit_CF.min()) / 2)

    level_L = special.ndtri(_middles(LEVELS)) * np.sqrt(1 / precision + judged)
    change_A = np.exp(AHEAD * special.ndtri(_middles(CHANGES)))
    left_CFL = np.exp(np.log(wanted) - level_CF[..., None] - level_L)  # wanted error as a fraction of the error at m
    with np.errstate(divide="ignore", invalid="ignore"):
        part_CFL = (left_CFL - f_F[:, None]) / (1 - f_F[:, None])
        log_CFL = np.where(part_CFL > 0, -np.log(np.maximum(part_CFL, 1e-300)), np.inf) / c_C[:, None, None]
    log_M = (np.maximum(log_CFL, 0)[..., None] / change_A).ravel()
    weight_M = np.broadcast_to(weight_CF[..., None, None], (*log_CFL.shape, CHANGES)).ravel()
    order = np.argsort(log_M)
    passed_M = np.cumsum(weight_M[order]) / weight_M.sum()
    at = np.searchsorted(passed_M, [0.5, 0.5 - level / 2, 0.5 + level / 2])
    ends = seen.images[-1] * np.exp(log_M[order][np.minimum(at, len(order) - 1)])
    middle, low, high = np.where(ends > REACH * seen.images[-1], np.inf, ends).tolist()
    return ImagesNeeded(
        images=middle, low=low, high=high, chance=float(weight_M[log_M <= np.log(REACH)].sum() / weight_M.sum())
    )


def _middles(number: int) -> np.ndarray:
    """Return the midpoints of `number` equal parts of [0, 1]. A distribution is represented by its quantiles at these
    probabilities."""
    return (np.arange(number) + 0.5) / number
