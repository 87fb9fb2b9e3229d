"""The error of a mean over values of which some belong together."""

from __future__ import annotations

import math

import numpy as np


def cluster_error(x_M: np.ndarray, groups_M: np.ndarray) -> tuple[float, int]:
    """Standard error of the mean, and the number of groups, which are independent; values of one need not be.

    That of Liang and Zeger (1986) for a mean, with G / (G - 1) for few groups: residuals are summed within each first.
    With one value in each it is the usual one. One group alone says nothing: the error is NaN.
    """
    sums_G = group_sums(np.asarray(x_M) - np.mean(x_M), groups_M)
    number = len(sums_G)
    if number < 2:
        return math.nan, number
    return math.sqrt(number / (number - 1) * float((sums_G**2).sum())) / len(x_M), number


def group_sums(x_M: np.ndarray, groups_M: np.ndarray) -> np.ndarray:
    """The sum of each group's values."""
    return np.bincount(np.unique(groups_M, return_inverse=True)[1], weights=x_M)
