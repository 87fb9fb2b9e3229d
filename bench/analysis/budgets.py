"""Which numbers of FLOPs are one budget: models count a little apart, and no study hits a budget exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.analysis.finding import Item

ONE_BUDGET = 1.02  # ratio of FLOPs up to which two budgets are one


@dataclass(frozen=True, kw_only=True)
class FamilyBudget(Item, kind="Budget"):
    """FLOP and images seen of the least and the most expensive run behind a family's curve over images."""

    family: str
    flops: tuple[float, float]
    images_seen: tuple[int, int]


def one_budget(a: float, b: float) -> bool:
    """Whether two numbers of FLOPs are one budget."""
    return a <= ONE_BUDGET * b and b <= ONE_BUDGET * a


def budgets(flops: Sequence[float] | np.ndarray) -> np.ndarray:
    """Each number of FLOPs gets a budget: the largest of its group, which is one budget. Groups begin with the smallest
    that is in none, so that none spans more than `ONE_BUDGET`."""
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
