"""Perceptual hashes: 64 bits per image, few of which differ between an image and a copy of it.

The bits say which of the lowest spatial frequencies (DCT-II of a small grey image) have more than the median amplitude,
as "pHash" does (Zauner, 2010). They propose candidates; `bench.data.dedup` looks at the pixels.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

from bench.data.image_set import ImageSet

SIDE = 28  # pixels per side on which images are compared, in grey
FREQUENCIES = 8  # per axis: the hash has FREQUENCIES**2 - 1 bits
MAX_BITS = 10  # that may differ between the hashes of candidates
BLOCK = 2_048  # images at a time


def hashes(images: ImageSet, *, flipped: bool = False) -> np.ndarray:
    """uint64 per image: which of the lowest spatial frequencies have more than the median amplitude (DCT-II)."""
    place = (np.arange(SIDE) + 0.5) * np.pi / SIDE
    cosines_FS = np.cos(np.arange(FREQUENCIES)[:, None] * place).astype(np.float32)
    found = np.empty(len(images), dtype=np.uint64)
    for start in range(0, len(images), BLOCK):
        grey_NYX = grey(images.images_NHWC[start : start + BLOCK])
        grey_NYX = grey_NYX[..., ::-1] if flipped else grey_NYX
        amplitude_NFF = cosines_FS @ grey_NYX @ cosines_FS.T
        low_NF = amplitude_NFF.reshape(len(grey_NYX), -1)[:, 1:]  # without the mean brightness
        bits_NB = low_NF > np.median(low_NF, axis=1, keepdims=True)
        packed_N8 = np.packbits(np.pad(bits_NB, ((0, 0), (1, 0))), axis=1)
        found[start : start + BLOCK] = packed_N8.view(">u8")[:, 0]
    return found


def near(one_N: np.ndarray, other_M: np.ndarray, *, max_bits: int = MAX_BITS) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of positions whose hashes differ in at most `max_bits` bits."""
    ups, downs = [], []
    rows = max(1, (4 << 20) // max(1, len(other_M)))
    for start in range(0, len(one_N), rows):
        differ_RM = _popcount(one_N[start : start + rows, None] ^ other_M[None, :])
        up, down = np.nonzero(differ_RM <= max_bits)
        ups.append(up + start)
        downs.append(down)
    empty = [np.empty(0, dtype=np.int64)]
    return np.concatenate(ups or empty), np.concatenate(downs or empty)


def _popcount(value: np.ndarray) -> np.ndarray:
    if hasattr(np, "bitwise_count"):  # numpy 2
        return np.bitwise_count(value)
    table = np.array([bin(n).count("1") for n in range(1 << 16)], dtype=np.uint8)
    return table[np.ascontiguousarray(value).view(np.uint16)].reshape(*value.shape, 4).sum(axis=-1, dtype=np.uint8)


def grey(images_NHWC: np.ndarray) -> np.ndarray:
    """float32 (N, SIDE, SIDE), 0 to 255: luma (ITU-R 601), resized with smoothing where the size is another."""
    if images_NHWC.shape[-1] == 3:
        luma = np.array([0.299, 0.587, 0.114], dtype=np.float32)
        grey_NYX = images_NHWC.astype(np.float32) @ luma
    else:
        grey_NYX = images_NHWC[..., 0].astype(np.float32)
    if grey_NYX.shape[1:] == (SIDE, SIDE):
        return grey_NYX
    resized = [Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BICUBIC) for image in grey_NYX]
    return np.clip(np.stack([np.asarray(image) for image in resized]), 0, 255)
