"""Visual atoms: closed curves modulated by two sine waves, rendered in colour (after Takashima et al., CVPR 2023,
arXiv:2303.01112, whose VisualAtom-21k pre-trains a ViT-B to within 0.5 points of JFT-300M on ImageNet).

A class is defined by two frequencies, their weights and phase, the number of orbits (concentric curves) and their
spacing. Each instance has its own centre, size, rotation, ovality, low-frequency noise and colours: a background, and
two colours between which the orbits change from the inside out. Colours do not depend on the class.

An image depends only on (class, index) and is the same on any machine: random numbers are hashes, sines are a table of
integers, and everything after it is integer arithmetic.

Differences from the authors' code, which draws 200 to 1,000 vertices on up to 200 orbits at 512 px in grey: up to 16
orbits of points, since more are noise at 64 px; colour; noise as two random waves instead of Perlin's.
"""

from __future__ import annotations

import functools

import numpy as np

from bench.core.seeds import uniforms

TURN = 2_048  # units of an angle per full turn
ONE = 1 << 12  # the integer that stands for 1.0 in sines and weights
PIXEL = 1 << 6  # the integer that stands for one pixel of the oversampled picture
OVERSAMPLE = 2
MOST_FREQUENT = 16
ORBITS = (3, 16)
POINTS_PER_PIXEL = 1.5
OPAQUE = 3  # points in a finished pixel that cover it completely
AT_ONCE = 64  # images rendered at a time, which limits memory


@functools.cache
def sines() -> np.ndarray:
    """Return the sines of TURN evenly spaced angles of a full turn, times ONE, int32 (TURN,). They are rounded, so that
    the last bit of a library's sine does not matter."""
    return np.rint(np.sin(np.arange(TURN) * (2 * np.pi / TURN)) * ONE).astype(np.int32)


@functools.lru_cache(maxsize=100_000)
def _atom(number: int) -> np.ndarray:
    """Return the parameters of class `number`, int32 (6,): frequencies n1 < n2 in waves per turn, weight of the first
    (ONE stands for 1), phase of the second (TURN units per turn), number of orbits, spacing (0 to ONE)."""
    u = uniforms(f"visual-atoms/class/{number}", count=6)
    first = int(u[0] * MOST_FREQUENT)
    second = first + 1 + int(u[1] * (MOST_FREQUENT - first))
    orbits = ORBITS[0] + int(u[4] * (ORBITS[1] - ORBITS[0] + 1))
    return np.array([first, second, int((0.2 + 0.6 * u[2]) * ONE), int(u[3] * TURN), orbits, int(u[5] * ONE)], np.int32)


def draw(classes_N: np.ndarray, indices_N: np.ndarray, *, split: str, size: int) -> np.ndarray:
    """Render instance `indices_N[i]` of class `classes_N[i]` for each i; return uint8 (N, size, size, 3). `split`:
    "train" or "test", which have different instances."""
    grid, count = OVERSAMPLE * size, len(classes_N)
    points = round(POINTS_PER_PIXEL * size * size)
    atom_6N = np.stack([_atom(number) for number in classes_N.tolist()], axis=1)[..., None]
    pairs = zip(classes_N.tolist(), indices_N.tolist(), strict=True)
    u_UN = np.stack([uniforms(f"visual-atoms/{split}/{k}/{i}", count=20) for k, i in pairs], axis=1)[..., None]
    first, second, weight, phase, orbits, spacing = atom_6N
    sine, number_P = sines(), np.arange(points, dtype=np.int32)
    orbit_NP = number_P % orbits
    angle_NP = (number_P // orbits) * (TURN * orbits) // points
    turned_NP = angle_NP + (u_UN[0] * TURN).astype(np.int32)

    def wave(frequency: np.ndarray, start: np.ndarray) -> np.ndarray:
        return sine[(frequency * angle_NP + start) & (TURN - 1)]

    wave_NP = (weight * wave(first, 0 * phase) + (ONE - weight) * wave(second, phase)) // ONE
    noise_NP = wave(1 + (u_UN[1] * 6).astype(np.int32), (u_UN[2] * TURN).astype(np.int32))
    noise_NP += wave(3 + (u_UN[3] * 9).astype(np.int32), (u_UN[4] * TURN).astype(np.int32))
    reach = ((0.32 + 0.2 * u_UN[5]) * grid * PIXEL).astype(np.int32)  # radius of the outermost orbit without its waves
    inner = reach * (ONE + spacing) // (8 * ONE)
    radius_NP = inner + (reach - inner) * (1 + orbit_NP) // orbits * (2 * ONE + wave_NP + noise_NP // 16) // (3 * ONE)
    x_NP = _along(turned_NP + TURN // 4, radius_NP, oval=u_UN[6], shift=u_UN[7], grid=grid)
    y_NP = _along(turned_NP, radius_NP, oval=u_UN[8], shift=u_UN[9], grid=grid)
    inside_NP = (x_NP >= 0) & (x_NP < grid) & (y_NP >= 0) & (y_NP < grid)
    cell_NP = (np.arange(count, dtype=np.int32)[:, None] * size + y_NP // OVERSAMPLE) * size + x_NP // OVERSAMPLE
    cells, weights = cell_NP[inside_NP], (orbit_NP * ONE // orbits)[inside_NP]
    hits_NYX = np.bincount(cells, minlength=count * size * size).astype(np.int64)
    place_NYX = np.bincount(cells, weights, minlength=count * size * size).astype(np.int64)  # sums exact below 2**53
    place_NYX //= np.maximum(hits_NYX, 1)  # mean orbit of the points in a pixel, from 0 (innermost) to ONE
    ground_3N, inner_3N, outer_3N = ((u_UN[k : k + 3, :, 0] * 256).astype(np.int64) for k in (10, 13, 16))
    place, cover = place_NYX.reshape(count, size, size, 1), np.minimum(hits_NYX, OPAQUE).reshape(count, size, size, 1)
    ground, low, high = (colour_3N.T[:, None, None] for colour_3N in (ground_3N // 2, inner_3N, outer_3N))
    ink = low + (high - low) * place // ONE
    return (ground + (ink - ground) * cover // OPAQUE).astype(np.uint8)


def _along(
    angle_NP: np.ndarray, radius_NP: np.ndarray, *, oval: np.ndarray, shift: np.ndarray, grid: int
) -> np.ndarray:
    """Return the pixel coordinate of each point along one axis of the oversampled picture, int32 (N, P).

    Args:
        angle_NP: angles of the points, TURN units per turn.
        radius_NP: distances of the points from the centre, PIXEL units per pixel.
        oval, shift: in [0, 1): they scale the axis by 0.7 to 1 and move the centre by up to an eighth of the picture.
        grid: pixels per side of the oversampled picture.
    """
    scale = ((0.7 + 0.3 * oval) * ONE).astype(np.int32)
    centre = ((0.375 + 0.25 * shift) * grid * PIXEL).astype(np.int32)
    reach_NP = radius_NP * sines()[angle_NP & (TURN - 1)] // ONE
    return (centre + reach_NP * scale // ONE) // PIXEL
