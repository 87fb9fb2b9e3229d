"""Decides which numbers of FLOPs count as one compute budget, because no run hits a budget exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.analysis.finding import Item

ONE_BUDGET = 1.02  # two numbers of FLOPs are one budget if their ratio is at most this


@dataclass(frozen=True, kw_only=True)
class FamilyBudget(Item, kind="Budget"):
    """What was spent on a family's runs whose accuracy is compared over numbers of distinct images.

    Attributes:
        flops: training compute of its cheapest and of its most expensive run.
        images_seen: images seen (with repeats) by these two runs.
    """

    family: str
    flops: tuple[float, float]
    images_seen: tuple[int, int]


def one_budget(a: float, b: float) -> bool:
    """Return whether two numbers of FLOPs count as one budget, that is, differ by a factor of at most `ONE_BUDGET`."""
    return a <= ONE_BUDGET * b and b <= ONE_BUDGET * a


def budgets(flops: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return, for each of N numbers of FLOPs, the budget that it belongs to, (N,) float: the largest number of its
    group. A group begins at the smallest number that is in no other group, and spans a factor of at most
    `ONE_BUDGET`."""
    flops_N = np.asarray(flops, dtype=float)
    found_N = flops_N.copy()
    start = -np.inf
    group: list[int] = []
    for n in np.argsort(flops_N, kind="stable").tolist():
        if not one_budget(flops_N[n], start):
            start, group = flops_N[n], []
        group.append(n)
        found_N[group] = flops_N[n]
    return found_N
