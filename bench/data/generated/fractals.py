"""FractalDB's images (Kataoka et al., ACCV 2020, arXiv:2101.08515): classes found by chance, instances by variation.

A class is an iterated function system: 2 to 7 affine maps (x, y) -> (ax + by + e, cx + dy + f) with parameters from
U(-1, 1), each applied with a probability proportional to its |determinant|. It is kept when the points of its chaos
game fill enough of the picture. An instance multiplies one of a … f in all maps by a weight, flips the picture, and
stamps each point as a random 3 x 3 patch.

Image (class, index) depends on nothing else, on any machine: random numbers are hashed, and the only arithmetic with
rounding is IEEE addition, multiplication and division, one operation at a time.

Differences from the authors' code, which draws at 362 px: 2.5 points per finished pixel (there 1.5), on a grid of twice
the size, then summed to it with logarithmic brightness, because at 32 px on or off leaves no shape; weights of
0.6 … 1.4 (their file weights_0.2.csv), because wider ones make small pictures collapse; and a class must also stay
bounded and visible under the smallest and the largest of them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.core.seeds import uniforms

MAPS = range(2, 8)  # how many maps a system may have
FILL, FILL_VARIED = 0.2, 0.1  # of the search grid: of the class itself (as published), of each of its variations
SEARCH_GRID, SEARCH_POINTS = 64, 2_400
FAR = 1e6  # a point further out than this: the system diverges
POINTS_PER_PIXEL = 2.5
OVERSAMPLE = 2
WEIGHTS = {"train": (0.6, 0.8, 1.2, 1.4), "test": (0.7, 0.9, 1.1, 1.3)}
EXTREMES = np.r_[1:7, 19:25]  # rows of `weight_rows("train")`: the smallest and the largest weight
FLIPS = 4
AT_ONCE = 512  # images whose points are in memory together


@dataclass(frozen=True, kw_only=True)
class Systems:
    """Iterated function systems, one per row.

    Attributes:
        maps_KM6: a, b, c, d, e, f of every map; maps that a system does not have are zero.
        choice_KM: cumulative probability of the maps, ending in ones.
    """

    maps_KM6: np.ndarray
    choice_KM: np.ndarray

    def __len__(self) -> int:
        return len(self.maps_KM6)

    def take(self, rows_N: np.ndarray) -> Systems:
        return Systems(maps_KM6=self.maps_KM6[rows_N], choice_KM=self.choice_KM[rows_N])

    def varied(self, weights_K6: np.ndarray) -> Systems:
        """The systems with their parameters multiplied; the probabilities stay, as published."""
        return Systems(maps_KM6=self.maps_KM6 * weights_K6[:, None], choice_KM=self.choice_KM)


def weight_rows(split: str) -> np.ndarray:
    """The variations of a class, (rows, 6): one parameter multiplied per row. "train" starts with the class itself.

    The weights of "test" lie between those of "train": other shapes of the same classes.
    """
    rows = [np.ones(6)] if split == "train" else []
    for weight in WEIGHTS[split]:
        for parameter in range(6):
            row = np.ones(6)
            row[parameter] = weight
            rows.append(row)
    return np.stack(rows)


def candidates(numbers: Sequence[int]) -> Systems:
    """The systems that the search tries, by their number in its sequence."""
    count = len(numbers)
    raw_KU = np.stack([uniforms(f"fractaldb/system/{number}", count=1 + 6 * MAPS[-1]) for number in numbers])
    maps_KM6 = raw_KU[:, 1:].reshape(count, MAPS[-1], 6) * 2.0 - 1.0
    has_KM = np.arange(MAPS[-1]) < (MAPS[0] + np.floor(raw_KU[:, 0] * len(MAPS)))[:, None]
    maps_KM6 = maps_KM6 * has_KM[..., None]
    a_KM, b_KM, c_KM, d_KM = (maps_KM6[..., i] for i in range(4))
    area_KM = np.abs(a_KM * d_KM - b_KM * c_KM)
    total_KM = area_KM.cumsum(axis=1)
    choice_KM = total_KM / total_KM[:, -1:]
    choice_KM[~has_KM] = 1.0
    return Systems(maps_KM6=maps_KM6, choice_KM=choice_KM)


@functools.lru_cache(maxsize=2)
def search(count: int) -> Systems:
    """The first `count` systems of the sequence that make a class. A longer search begins with a shorter one's."""
    found: list[Systems] = []
    tried = kept = 0
    while kept < count:
        block = candidates(range(tried, tried + AT_ONCE))
        tried += AT_ONCE
        block = block.take(np.flatnonzero(_fill(block) >= FILL))
        good_K = np.ones(len(block), dtype=bool)
        for weights_6 in weight_rows("train")[EXTREMES]:
            alive = np.flatnonzero(good_K)
            good_K[alive] = _fill(block.take(alive).varied(np.tile(weights_6, (len(alive), 1)))) >= FILL_VARIED
        found.append(block.take(np.flatnonzero(good_K)))
        kept += len(found[-1])
    maps = np.concatenate([part.maps_KM6 for part in found])[:count]
    return Systems(maps_KM6=maps, choice_KM=np.concatenate([part.choice_KM for part in found])[:count])


def _fill(systems: Systems) -> np.ndarray:
    """Fraction of the search grid's cells that each system's points touch; 0 where it diverges."""
    if not len(systems):
        return np.zeros(0)
    hits_NYX, bounded_N = density(systems, points=SEARCH_POINTS, grid=SEARCH_GRID, draws_N=np.zeros(len(systems), int))
    return (hits_NYX > 0).mean(axis=(1, 2)) * bounded_N


def density(systems: Systems, *, points: int, grid: int, draws_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many points of its chaos game fall into each cell, for N systems at once.

    Args:
        systems: N systems.
        points: steps of the game, which starts at the origin.
        grid: cells per side; a border of one cell in 85 (the published 6 of 512) stays empty.
        draws_N: which sequence of random numbers each plays with; all systems share the sequences, as published.

    Returns:
        (int32 hits_NYX, bounded_N): systems that diverge have unusable hits.
    """
    count = len(systems)
    rows_N = np.arange(count) * MAPS[-1]
    flat_6R = np.ascontiguousarray(systems.maps_KM6.reshape(-1, 6).T)
    sequences, which_N = np.unique(draws_N, return_inverse=True)
    random_TN = np.stack([uniforms(f"fractaldb/orbit/{draw}", count=points) for draw in sequences], axis=1)[:, which_N]
    chosen_TN = np.zeros((points, count), dtype=np.intp) + rows_N
    for place in range(MAPS[-1] - 1):
        chosen_TN += systems.choice_KM[:, place] <= random_TN
    x_TN, y_TN = np.empty((points, count)), np.empty((points, count))
    x_N, y_N = np.zeros(count), np.zeros(count)
    with np.errstate(all="ignore"):
        for step in range(points):
            a, b, c, d, e, f = flat_6R.take(chosen_TN[step], axis=1)
            x_N, y_N = a * x_N + b * y_N + e, c * x_N + d * y_N + f
            x_TN[step], y_TN[step] = x_N, y_N
        low_x, high_x, low_y, high_y = (x_TN.min(0), x_TN.max(0), y_TN.min(0), y_TN.max(0))
        bounded_N = (np.maximum(-np.minimum(low_x, low_y), np.maximum(high_x, high_y)) < FAR) & (
            np.minimum(high_x - low_x, high_y - low_y) > 1e-6
        )
        border = grid * 6 / 512
        scale = grid - 2 * border
        column_TN = np.where(bounded_N, (x_TN - low_x) / (high_x - low_x) * scale + border, 0).astype(np.int32)
        row_TN = np.where(bounded_N, (y_TN - low_y) / (high_y - low_y) * scale + border, 0).astype(np.int32)
    cell_TN = (np.arange(count, dtype=np.int32) * grid + row_TN) * grid + column_TN
    hits = np.bincount(cell_TN.ravel(), minlength=count * grid * grid)
    return hits.reshape(count, grid, grid).astype(np.int32), bounded_N


def draw(systems: Systems, classes_N: np.ndarray, indices_N: np.ndarray, *, split: str, size: int) -> np.ndarray:
    """uint8 images (N, size, size) of instance `indices_N[i]` of class `classes_N[i]`.

    An index goes through the variations first, then the flips, then patches and sequences of random numbers; there is
    no last one.
    """
    rows = weight_rows(split)
    draws_N = indices_N // (len(rows) * FLIPS)
    varied = systems.take(classes_N).varied(rows[indices_N % len(rows)])
    points = round(POINTS_PER_PIXEL * size * size)
    game = functools.partial(density, points=points, grid=OVERSAMPLE * size)
    hits_NYX, bounded_N = game(varied, draws_N=draws_N)
    if len(lost := np.flatnonzero(~bounded_N)):  # a weight between the extremes made it diverge: the class itself
        hits_NYX[lost] = game(systems.take(classes_N[lost]), draws_N=draws_N[lost])[0]
    patch_N9 = _patches(classes_N, indices_N, split=split)
    stamped_NYX = np.zeros_like(hits_NYX)
    padded_NYX = np.pad(hits_NYX, ((0, 0), (1, 1), (1, 1)))
    side = hits_NYX.shape[1]
    for place in range(9):
        top, left = divmod(place, 3)
        stamped_NYX += padded_NYX[:, top : top + side, left : left + side] * patch_N9[:, place, None, None]
    counts_NYX = stamped_NYX.reshape(-1, size, OVERSAMPLE, size, OVERSAMPLE).sum(axis=(2, 4))
    flip_N = (indices_N // len(rows)) % FLIPS
    for flip, axes in ((1, (2,)), (2, (1,)), (3, (1, 2))):
        counts_NYX[flip_N == flip] = np.flip(counts_NYX[flip_N == flip], axis=axes)
    log_NYX = log2_fixed(int(counts_NYX.max()) + 1)[counts_NYX]
    peak_N11 = log_NYX.max(axis=(1, 2), keepdims=True)
    return ((log_NYX * 510 + peak_N11) // (2 * peak_N11)).astype(np.uint8)


def _patches(classes_N: np.ndarray, indices_N: np.ndarray, *, split: str) -> np.ndarray:
    """The 3 x 3 stamp of each image as int32 zeros and ones (N, 9), at least one of them set."""
    addresses = (
        f"fractaldb/patch/{split}/{k}/{i}" for k, i in zip(classes_N.tolist(), indices_N.tolist(), strict=True)
    )
    digests = b"".join(hashlib.blake2b(address.encode(), digest_size=2).digest() for address in addresses)
    number_N = np.frombuffer(digests, dtype="<u2").astype(np.int32) % 511 + 1
    return (number_N[:, None] >> np.arange(9, dtype=np.int32)) & 1


@functools.lru_cache(maxsize=8)
def _log2_table(size: int) -> np.ndarray:
    """floor(2**12 log2(1 + n)) for n < size, by squaring in whole numbers: the same on every machine."""
    value = np.arange(1, size + 1, dtype=np.int64)
    whole = np.zeros_like(value)
    for _ in range(40):
        whole += (value >> (whole + 1)) > 0
    mantissa = (value << 30) >> whole  # in [1, 2), 30 binary places
    result = whole << 12
    for bit in range(11, -1, -1):
        mantissa = (mantissa * mantissa) >> 30
        over = mantissa >= 2 << 30
        mantissa = np.where(over, mantissa >> 1, mantissa)
        result += over.astype(np.int64) << bit
    return result


def log2_fixed(size: int) -> np.ndarray:
    """A table of logarithms long enough for `size` counts; lengths are rounded up so that few are made."""
    return _log2_table(1 << (size - 1).bit_length())
