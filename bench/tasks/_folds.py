"""Labelled images are divided to choose among models, ways and strengths: every class in each part, and in one part
images that belong together, of one group or copies of each other. Divided, what was learned by heart would count as
understood.
"""

from __future__ import annotations

import numpy as np

from bench.data import dedup
from bench.data.image_set import ImageSet

Parts = list[tuple[np.ndarray, np.ndarray]]
"""(positions to fit, positions to judge) of each fold."""


def together(images: ImageSet) -> np.ndarray | None:
    """Which images are never divided: uint64 (N,), equal for those of one group (`ImageSet.groups_N`), for copies of
    each other (equal images; up to `dedup.MAX_AMONG` images also nearly equal ones), and for all that these connect.
    None where each stands alone. It follows from content, not from the order of images."""
    from scipy.sparse import coo_array  # here: a plan imports every task for its revision, and divides nothing
    from scipy.sparse.csgraph import connected_components

    number, keys_N = len(images), images.content_keys_N
    links = [dedup.pairs(images, images)] if number <= dedup.MAX_AMONG else []
    for same_N in (keys_N, images.groups_N):
        if same_N is not None:
            _, first, which_N = np.unique(same_N, return_index=True, return_inverse=True)
            links.append((np.arange(number), first[which_N]))
    one, other = np.concatenate(links, axis=1)
    graph = coo_array((np.ones(len(one)), (one, other)), shape=(number, number))
    parts, part_N = connected_components(graph, directed=False)
    least_P = np.full(parts, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(least_P, part_N, keys_N)
    return least_P[part_N] if parts < number else None


def alone(groups_N: np.ndarray | None) -> bool:
    """Whether no two images belong together."""
    return groups_N is None or len(np.unique(groups_N)) == len(groups_N)


def folds(labels_N: np.ndarray, groups_N: np.ndarray | None, number: int) -> Parts | None:
    """The folds; None where a class has too few images, or images of too few groups.

    Args:
        groups_N: equal for images that belong together (`together`); None where each stands alone.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    classes_K, counts_K = np.unique(labels_N, return_counts=True)
    if counts_K.min() < number or (groups_N is not None and len(np.unique(groups_N)) < number):
        return None
    how = {"shuffle": True, "random_state": 0}
    if groups_N is None or alone(groups_N):
        return list(StratifiedKFold(number, **how).split(labels_N, labels_N))
    parts: Parts = list(StratifiedGroupKFold(number, **how).split(labels_N, labels_N, groups_N))
    learnt = all(len(left_N) and len(np.unique(labels_N[fitted_N])) == len(classes_K) for fitted_N, left_N in parts)
    return parts if learnt else None
