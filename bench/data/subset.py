"""Nested, class-balanced subsets: every smaller subset `name@N` is contained in every larger one.

The order in which images enter a subset depends on their content, not on their place in a file. So the same images give
the same subsets in whatever format they are stored. A part of a set that was itself chosen by this rule (the embedded
Fashion-MNIST) gives the same `@N` as the full set, for the default seed and every N up to the part's size.
"""

from __future__ import annotations

import hashlib

import numpy as np

HELD_OUT = 0.1  # fraction of every class that is held out, if it has at least two different images


def nested(
    labels_N: np.ndarray, num_images: int | None, seed: int = 0, *, keys_N: np.ndarray | None = None
) -> np.ndarray:
    """Return the indices of the first `num_images` images of a fixed order, so that a smaller result is a prefix of
    every larger one.

    In that order the classes take turns (the first image of every class, then the second, …), so counts per class
    differ by at most one until a class runs out.

    Args:
        labels_N: integer class of each image.
        num_images: number of images; None, or more than there are, gives all of them.
        seed: another seed gives other subsets.
        keys_N: uint64 per image on which the order within a class depends (`ImageSet.content_keys_N`); None: it depends
            on the position in the array.

    Returns:
        int64 indices of shape (min(num_images, N),).
    """
    if num_images is not None and num_images < 0:
        raise ValueError(f"num_images is {num_images}; at least 0 is needed")
    labels_N = np.asarray(labels_N)
    order_N = np.argsort(priorities(labels_N, f"nested/{seed}", keys_N=keys_N), kind="stable")
    rank_N = rank_within_class(labels_N, order_N).astype(small_enough(len(labels_N)))
    del order_N  # for many millions of images each such array takes as much memory as their names
    classes_K = np.unique(labels_N)
    turn_K = np.argsort(np.argsort(mix(classes_K.astype(np.uint64), f"turn/{seed}"), kind="stable"), kind="stable")
    turn_N = turn_K.astype(small_enough(len(classes_K)))[np.searchsorted(classes_K, labels_N)]
    return np.lexsort((turn_N, rank_N))[:num_images].astype(np.int64)


def first_per_class(
    labels_N: np.ndarray, count: int, purpose: str, *, keys_N: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Choose up to `count` images of every class at random, by the random stream named `purpose`.

    Args:
        keys_N: uint64 per image on which the choice depends (`ImageSet.content_keys_N`); None: it depends on the
            position in the array.

    Returns:
        (indices, ranks within the class), both int64, sorted by rank. The images with `rank < k` are the k-shot set, so
        sets are nested over k.
    """
    order_N = np.argsort(priorities(labels_N, purpose, keys_N=keys_N), kind="stable")
    rank_N = rank_within_class(labels_N, order_N)
    chosen_M = np.flatnonzero(rank_N < count)
    chosen_M = chosen_M[np.lexsort((labels_N[chosen_M], rank_N[chosen_M]))]
    return chosen_M.astype(np.int64), rank_N[chosen_M]


def validation(labels_N: np.ndarray, keys_N: np.ndarray, *, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Divide training images into those to train on and those that are held out (`held_out`). Return the indices of the
    images to train on, and the indices of at most `most` held-out images, balanced over the classes. Both depend on the
    images' content only (`keys_N`), so that nested subsets of any size never contain held-out images."""
    out_N = held_out(labels_N, keys_N)
    kept, out = np.flatnonzero(~out_N), np.flatnonzero(out_N)
    return kept, out[nested(labels_N[out], most, keys_N=keys_N[out])]


def held_out(labels_N: np.ndarray, keys_N: np.ndarray) -> np.ndarray:
    """Choose images to hold out, such as the test images of a set without splits: the fraction HELD_OUT of every class,
    at random by a hash of `keys_N` (`ImageSet.content_keys_N`). Return bool (N,), True for these images. Copies of one
    image have the same key, so all or none of them are held out."""
    place_N = mix(keys_N, "held-out")
    chosen_N = np.zeros(len(place_N), dtype=bool)
    by_class_N = np.argsort(labels_N, kind="stable")  # sort once: a pass over all images per class could take hours
    _, counts_K = np.unique(labels_N, return_counts=True)
    for of_class in np.split(by_class_N, np.cumsum(counts_K)[:-1]):
        places = np.unique(mine := place_N[of_class])
        if len(places) > 1:
            chosen_N[of_class] = mine < places[max(1, round(HELD_OUT * len(places)))]
    return chosen_N


def priorities(labels_N: np.ndarray, purpose: str, *, keys_N: np.ndarray | None = None) -> np.ndarray:
    """Return a priority for each image, uint64, uniformly distributed and determined by (key, `purpose`); smaller comes
    first. If `keys_N` is None, the position in the array is the key."""
    keys_N = np.arange(len(labels_N), dtype=np.uint64) if keys_N is None else keys_N
    return mix(keys_N, purpose)


def rank_within_class(labels_N: np.ndarray, order_N: np.ndarray) -> np.ndarray:
    """Return the rank of each image within its class, int64 (N,), from 0, when images are visited in the order
    `order_N` (indices)."""
    by_class_N = order_N[np.argsort(labels_N[order_N], kind="stable")]
    _, starts_K, counts_K = np.unique(labels_N[by_class_N], return_index=True, return_counts=True)
    rank_N = np.empty(len(labels_N), dtype=np.int64)
    rank_N[by_class_N] = np.arange(len(labels_N)) - np.repeat(starts_K, counts_K)
    return rank_N


def small_enough(number: int) -> type[np.integer]:
    """Return the smallest signed integer dtype that can hold all numbers from 0 to `number`."""
    return next(kind for kind in (np.int16, np.int32, np.int64) if number <= np.iinfo(kind).max)


def mix(keys_N: np.ndarray, purpose: str) -> np.ndarray:
    """Return uint64 hashes of uint64 keys, different ones for each `purpose`: splitmix64's finaliser (Steele et al.,
    2014), applied to a multiple of the key plus hash(purpose)."""
    salt = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "little")
    with np.errstate(over="ignore"):
        x_N = keys_N.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
        x_N = (x_N ^ (x_N >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x_N = (x_N ^ (x_N >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x_N ^ (x_N >> np.uint64(31))
