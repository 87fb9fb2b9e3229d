"""Parts of a cross-validation: every class in each; images that belong together in one."""

from __future__ import annotations

import numpy as np

Parts = list[tuple[np.ndarray, np.ndarray]]
"""(positions to fit, positions to judge) of each fold."""


def folds(labels_N: np.ndarray, groups_N: np.ndarray | None, number: int) -> Parts | None:
    """The folds; None where a class has too few images, or images of too few groups.

    Args:
        groups_N: equal for images that belong together; None where each stands alone.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    classes_K, counts_K = np.unique(labels_N, return_counts=True)
    if counts_K.min() < number or (groups_N is not None and len(np.unique(groups_N)) < number):
        return None
    how = {"shuffle": True, "random_state": 0}
    if groups_N is None:
        return list(StratifiedKFold(number, **how).split(labels_N, labels_N))
    parts: Parts = list(StratifiedGroupKFold(number, **how).split(labels_N, labels_N, groups_N))
    learnt = all(len(left_N) and len(np.unique(labels_N[fitted_N])) == len(classes_K) for fitted_N, left_N in parts)
    return parts if learnt else None
