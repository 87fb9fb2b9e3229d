"""The standard error of a mean over values that are correlated within groups (clusters)."""

from __future__ import annotations

import math

import numpy as np


def cluster_error(x_M: np.ndarray, groups_M: np.ndarray) -> tuple[float, int]:
    """Return (standard error of the mean of `x_M`, number G of groups). Groups are independent of each other; values
    within a group need not be.

    This is the cluster-robust error of Liang and Zeger (1986) for a mean: residuals are summed within each group first,
    and the factor G / (G - 1) corrects for few groups. With one value per group it is the usual standard error. The
    error is NaN if there is only one group.

    Args:
        groups_M: label of each value's group.
    """
    sums_G = group_sums(np.asarray(x_M) - np.mean(x_M), groups_M)
    number = len(sums_G)
    if number < 2:
        return math.nan, number
    return math.sqrt(number / (number - 1) * float((sums_G**2).sum())) / len(x_M), number


def group_sums(x_M: np.ndarray, groups_M: np.ndarray) -> np.ndarray:
    """Return the sum of the values `x_M` of each group, (G,) float64, in ascending order of the labels `groups_M`."""
    return np.bincount(np.unique(groups_M, return_inverse=True)[1], weights=x_M)
