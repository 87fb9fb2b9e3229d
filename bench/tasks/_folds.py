"""Divide labelled images into folds for cross-validation, to choose among models, ways of adapting and regularisation
strengths.

Every class is in each part that is fitted. Images that belong together (of one group, such as photos of one patient, or
copies of each other) are in the same fold: otherwise memorised images would count as generalisation.
"""

from __future__ import annotations

import numpy as np

from bench.data import dedup
from bench.data.image_set import ImageSet

Parts = list[tuple[np.ndarray, np.ndarray]]
"""For each fold, (positions of the images to fit, positions of the images left out, on which the fit is scored)."""


def together(images: ImageSet) -> np.ndarray | None:
    """Return numbers that say which images belong together and must be in the same fold: uint64 (N,), equal for images
    that do; None where no images do.

    Images belong together if they are of one group (`ImageSet.groups_N`, such as photos of one patient), are copies of
    each other (equal images; in sets of up to `dedup.MAX_AMONG` images also nearly equal ones), or are connected
    through others. The numbers depend on the images' content, not on their order.
    """
    from scipy.sparse import coo_array  # imported here: a plan imports every task for its revision, and divides nothing
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
    """Return whether no two images belong together.

    Args:
        groups_N: numbers, equal for images that belong together (see `together`); None where no images do.
    """
    return groups_N is None or len(np.unique(groups_N)) == len(groups_N)


def folds(labels_N: np.ndarray, groups_N: np.ndarray | None, number: int) -> Parts | None:
    """Divide images into folds for cross-validation; None if a class has too few images, there are too few groups, or
    the fitted part of a fold would lack a class.

    Args:
        groups_N: numbers, equal for images that belong together (see `together`); None where no images do.
        number: number of folds.

    Returns:
        (positions of the images to fit, positions of the images left out) for each fold.
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
