"""Visual atoms: closed curves modulated by two sine waves, drawn in colour (after Takashima et al., CVPR 2023,
arXiv:2303.01112, whose VisualAtom-21k pre-trains a ViT-B to within 0.5 points of JFT-300M on ImageNet).

A class is two frequencies, their weights and phase, the number of orbits and their spacing. An instance has its own
centre, size, rotation, oval, low-frequency noise, and colours: a ground, and two between which the orbits go from the
inside out; colours say nothing of the class.

Image (class, index) depends on nothing else, on any machine: random numbers are hashed, sines are a table of whole
numbers, and everything after it is whole numbers.

Differences from the authors' code, which draws 200 to 1,000 vertices on up to 200 orbits at 512 px in grey: up to 16
orbits of points, since more are noise at 64 px; colour; noise as two random waves instead of Perlin's.
"""

from __future__ import annotations

import functools

import numpy as np

from bench.core.seeds import uniforms

TURN = 2_048  # angles per turn
ONE = 1 << 12  # 1.0 of a sine or a weight
PIXEL = 1 << 6  # 1.0 pixel of the drawing grid
OVERSAMPLE = 2
MOST_FREQUENT = 16
ORBITS = (3, 16)
POINTS_PER_PIXEL = 1.5
OPAQUE = 3  # points that cover a finished pixel
AT_ONCE = 64  # images whose points are in memory together


@functools.cache
def sines() -> np.ndarray:
    """int32 (TURN): rounded, so that the last bit of a library's sine does not matter."""
    return np.rint(np.sin(np.arange(TURN) * (2 * np.pi / TURN)) * ONE).astype(np.int32)


@functools.lru_cache(maxsize=100_000)
def _atom(number: int) -> np.ndarray:
    """A class: frequencies n1 < n2, weight of the first, phase of the second, orbits, spacing; int32 (6,)."""
    u = uniforms(f"visual-atoms/class/{number}", count=6)
    first = int(u[0] * MOST_FREQUENT)
    second = first + 1 + int(u[1] * (MOST_FREQUENT - first))
    orbits = ORBITS[0] + int(u[4] * (ORBITS[1] - ORBITS[0] + 1))
    return np.array([first, second, int((0.2 + 0.6 * u[2]) * ONE), int(u[3] * TURN), orbits, int(u[5] * ONE)], np.int32)


def draw(classes_N: np.ndarray, indices_N: np.ndarray, *, split: str, size: int) -> np.ndarray:
    """uint8 images (N, size, size, 3) of instance `indices_N[i]` of class `classes_N[i]`."""
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
    reach = ((0.32 + 0.2 * u_UN[5]) * grid * PIXEL).astype(np.int32)  # of the outermost orbit, without its waves
    inner = reach * (ONE + spacing) // (8 * ONE)
    radius_NP = inner + (reach - inner) * (1 + orbit_NP) // orbits * (2 * ONE + wave_NP + noise_NP // 16) // (3 * ONE)
    x_NP = _along(turned_NP + TURN // 4, radius_NP, oval=u_UN[6], shift=u_UN[7], grid=grid)
    y_NP = _along(turned_NP, radius_NP, oval=u_UN[8], shift=u_UN[9], grid=grid)
    inside_NP = (x_NP >= 0) & (x_NP < grid) & (y_NP >= 0) & (y_NP < grid)
    cell_NP = (np.arange(count, dtype=np.int32)[:, None] * size + y_NP // OVERSAMPLE) * size + x_NP // OVERSAMPLE
    cells, weights = cell_NP[inside_NP], (orbit_NP * ONE // orbits)[inside_NP]
    hits_NYX = np.bincount(cells, minlength=count * size * size).astype(np.int64)
    place_NYX = np.bincount(cells, weights, minlength=count * size * size).astype(np.int64)  # exact below 2**53
    place_NYX //= np.maximum(hits_NYX, 1)  # from 0, the innermost orbit, to ONE
    ground_3N, inner_3N, outer_3N = ((u_UN[k : k + 3, :, 0] * 256).astype(np.int64) for k in (10, 13, 16))
    place, cover = place_NYX.reshape(count, size, size, 1), np.minimum(hits_NYX, OPAQUE).reshape(count, size, size, 1)
    ground, low, high = (colour_3N.T[:, None, None] for colour_3N in (ground_3N // 2, inner_3N, outer_3N))
    ink = low + (high - low) * place // ONE
    return (ground + (ink - ground) * cover // OPAQUE).astype(np.uint8)


def _along(
    angle_NP: np.ndarray, radius_NP: np.ndarray, *, oval: np.ndarray, shift: np.ndarray, grid: int
) -> np.ndarray:
    """Cells of the points along one axis: an oval about a centre that is up to an eighth of the picture off."""
    scale = ((0.7 + 0.3 * oval) * ONE).astype(np.int32)
    centre = ((0.375 + 0.25 * shift) * grid * PIXEL).astype(np.int32)
    reach_NP = radius_NP * sines()[angle_NP & (TURN - 1)] // ONE
    return (centre + reach_NP * scale // ONE) // PIXEL
