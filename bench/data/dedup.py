"""Detection of downstream test images that have a copy in an upstream set, on which a model is pre-trained: a
perceptual hash proposes pairs, and their pixels confirm them.

The hash has 63 bits per image: which of the lowest spatial frequencies (DCT-II of a small grey image) have more than
the median amplitude, as in "pHash" (Zauner, 2010). Few bits differ between an image and a copy of it.

A pair is a duplicate if one image can be made from the other by mirroring, blurring (which any resizing does), a change
of brightness and contrast, and clipping at black and white, up to a residual too small to see. A common outline is not
enough: between two pieces of clothing, different seams and folds leave a residual, and different prints leave a
residual that is concentrated in one place.

Measured on Fashion-MNIST (tests/data/test_dedup.py): copies that were mirrored, resized to 20 or 40 px and back, saved
as JPEG of quality 75, or made darker or brighter by 40 levels are found; of JPEG of quality 30, three in four. Between
its training and test images it finds a few pairs that a person would call the same picture, and nothing else.

Accuracy is then reported with and without the test images that have a copy in the upstream set, as BiT does
(arXiv:1912.11370, appendix C). `copies` returns these images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from bench.data import cache
from bench.data.image_set import ImageSet
from bench.data.progress import Progress

REVISION = 3  # increment when the same sets give other pairs
SIDE = 28  # pixels per side of the grey thumbnails that are compared
FREQUENCIES = 8  # frequencies per axis: the hash has FREQUENCIES**2 - 1 bits
MAX_AMONG = 20_000  # largest set whose images are compared with each other: time grows with the square of their number
MAX_BITS = 10  # bits in which the hashes of two candidates may differ
BLOCK = 2_048  # images or pairs processed at a time
MAX_KEPT = 50_000  # largest set whose thumbnails are kept in the cache
MAX_RESIDUAL = 0.055  # largest residual of a copy, as a fraction of the copy's standard deviation; correlation 0.9985
MIN_CORRELATION = 0.8  # pairs that correlate less at half the size are not compared closely; clipping lowers it most
COARSE = ((0.0, 7.0), (0.5, 3.0))  # tests at half the size: sigma of a blur, largest residual in units of MAX_RESIDUAL
MAX_PEAK = 2.9  # largest squared residual / (its rms × the standard deviation); compression stays below, prints do not
MIN_FREE = 28  # least number of unclipped pixels to fit gain and offset to
SMOOTHING = 1.0  # sigma in pixels of a blur of the residual, whose finest detail is compression, not content
BLURS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.95, 1.1)  # sigmas in pixels by which one of the two may be blurred
DARK, BRIGHT = 4.0, 251.0  # grey levels beyond which a pixel may have been clipped
MIN_CONTRAST = 2.0  # least standard deviation in grey levels; a plain surface counts as no image's copy


@dataclass(frozen=True, kw_only=True)
class Duplicates:
    """Pairs of images that are copies of each other; M is the number of pairs.

    Attributes:
        upstream_M, downstream_M: int64 positions of each pair's images in the two sets.
        residual_M: rms difference that is left after transforming one image into the other as well as possible, as a
            fraction of the standard deviation of the image; 0 for an exact copy.
        flipped_M: whether one image is the mirror image of the other.
        candidates: number of pairs that the hash proposed.
    """

    upstream_M: np.ndarray
    downstream_M: np.ndarray
    residual_M: np.ndarray
    flipped_M: np.ndarray
    candidates: int

    def __len__(self) -> int:
        return len(self.upstream_M)


def find(upstream: ImageSet, downstream: ImageSet) -> Duplicates:
    """Find all pairs of an upstream and a downstream image that are copies. It needs a few hundred MB of memory,
    however large the sets are.

    Args:
        upstream: images that a model is pre-trained on.
        downstream: images that the model is evaluated on. If it is the same object as `upstream`, pairs within one set
            are found, each once.
    """
    hashes_N = hashes(upstream)
    ups, downs, flips = [], [], []
    for flipped in (False, True):
        up_M, down_M = near(hashes_N, hashes(downstream, flipped=flipped))
        if upstream is downstream:
            once_M = up_M < down_M
            up_M, down_M = up_M[once_M], down_M[once_M]
        ups.append(up_M)
        downs.append(down_M)
        flips.append(np.full(len(up_M), flipped))
    up_M, down_M, flipped_M = np.concatenate(ups), np.concatenate(downs), np.concatenate(flips)
    residual_M = np.empty(len(up_M))
    progress = Progress(f"comparing {upstream.name} with {downstream.name}", len(up_M), unit="pairs")
    for start in range(0, len(up_M), BLOCK):
        part = slice(start, start + BLOCK)
        one_MYX, other_MYX = thumbnails(upstream)(up_M[part]), thumbnails(downstream)(down_M[part])
        other_MYX = np.where(flipped_M[part, None, None], other_MYX[..., ::-1], other_MYX)
        residual_M[part] = residual(one_MYX, other_MYX)
        progress.step(len(one_MYX))
    same_M = np.flatnonzero(residual_M <= MAX_RESIDUAL)
    # A symmetric picture is its own mirror image: of the two rows for one pair, the one with the smaller residual is
    # kept.
    order = same_M[np.lexsort((flipped_M[same_M], residual_M[same_M]))]
    _, first = np.unique(np.stack([up_M[order], down_M[order]]), axis=1, return_index=True)
    kept = order[np.sort(first)]
    return Duplicates(
        upstream_M=up_M[kept],
        downstream_M=down_M[kept],
        residual_M=residual_M[kept],
        flipped_M=flipped_M[kept],
        candidates=len(up_M),
    )


def copies(upstream: ImageSet, downstream: ImageSet) -> np.ndarray:
    """Return for each downstream image whether the upstream set has a copy of it, bool (M,). The answer is cached on
    disk under the content hashes of both sets."""
    copied_M = np.zeros(len(downstream), dtype=bool)
    copied_M[pairs(upstream, downstream)[1]] = True
    return copied_M


def pairs(upstream: ImageSet, downstream: ImageSet) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions in the two sets of all pairs of copies, (upstream_M, downstream_M), as `find` finds them.
    They are cached on disk under the content hashes of both sets."""
    key = f"pairs-r{REVISION}-{upstream.content_hash[:16]}-{downstream.content_hash[:16]}"

    def build() -> dict[str, np.ndarray]:
        found = find(upstream, downstream)
        return {"upstream": found.upstream_M, "downstream": found.downstream_M}

    kept = cache.arrays(key, build)
    return np.array(kept["upstream"]), np.array(kept["downstream"])


def hashes(images: ImageSet, *, flipped: bool = False) -> np.ndarray:
    """Return the perceptual hash of each image, or, if `flipped`, of its mirror image: uint64 (N,)."""
    place = (np.arange(SIDE) + 0.5) * np.pi / SIDE
    cosines_FS = np.cos(np.arange(FREQUENCIES)[:, None] * place).astype(np.float32)
    hash_N = np.empty(len(images), dtype=np.uint64)
    read = thumbnails(images)
    for start in range(0, len(images), BLOCK):
        grey_NYX = read(slice(start, start + BLOCK))
        grey_NYX = grey_NYX[..., ::-1] if flipped else grey_NYX
        amplitude_NFF = cosines_FS @ grey_NYX @ cosines_FS.T
        low_NF = amplitude_NFF.reshape(len(grey_NYX), -1)[:, 1:]  # without the mean brightness
        bits_NB = low_NF > np.median(low_NF, axis=1, keepdims=True)
        packed_N8 = np.packbits(np.pad(bits_NB, ((0, 0), (1, 0))), axis=1)
        hash_N[start : start + BLOCK] = packed_N8.view(">u8")[:, 0]
    return hash_N


def near(one_N: np.ndarray, other_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions (in one_N, in other_M) of all pairs of hashes that differ in at most MAX_BITS bits."""
    ups, downs = [], []
    rows = max(1, (4 << 20) // max(1, len(other_M)))
    for start in range(0, len(one_N), rows):
        differ_RM = _popcount(one_N[start : start + rows, None] ^ other_M[None, :])
        up, down = np.nonzero(differ_RM <= MAX_BITS)
        ups.append(up + start)
        downs.append(down)
    empty = [np.empty(0, dtype=np.int64)]
    return np.concatenate(ups or empty), np.concatenate(downs or empty)


def _popcount(value: np.ndarray) -> np.ndarray:
    if hasattr(np, "bitwise_count"):  # numpy 2
        return np.bitwise_count(value)
    table = np.array([bin(n).count("1") for n in range(1 << 16)], dtype=np.uint8)
    return table[np.ascontiguousarray(value).view(np.uint16)].reshape(*value.shape, 4).sum(axis=-1, dtype=np.uint8)


def thumbnails(images: ImageSet) -> Callable[[Any], np.ndarray]:
    """Return a function: positions or slice of images -> their thumbnails as `grey` makes them. If the set has at most
    `MAX_KEPT` images, the thumbnails are cached on disk, 3 kB each."""
    if len(images) > MAX_KEPT or images.images_NHWC.shape[1:3] == (SIDE, SIDE):
        return lambda rows: grey(images.images_NHWC[rows])

    def make() -> Iterator[np.ndarray]:
        for start in range(0, len(images), BLOCK):
            yield grey(images.images_NHWC[start : start + BLOCK])

    whole = cache.Chunks(shape=(len(images), SIDE, SIDE), dtype="float32", make=make)
    kept_NYX = cache.arrays(f"thumbnails-{images.content_hash[:16]}", lambda: {"grey": whole})["grey"]
    return lambda rows: np.array(kept_NYX[rows])


def grey(images_NHWC: np.ndarray) -> np.ndarray:
    """Return thumbnails of images, float32 (N, SIDE, SIDE), 0 to 255: their luma (ITU-R 601), resized with smoothing if
    they have another size."""
    if images_NHWC.shape[-1] == 3:
        luma = np.array([0.299, 0.587, 0.114], dtype=np.float32)
        grey_NYX = images_NHWC.astype(np.float32) @ luma
    else:
        grey_NYX = images_NHWC[..., 0].astype(np.float32)
    if grey_NYX.shape[1:] == (SIDE, SIDE):
        return grey_NYX
    resized = [Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BICUBIC) for image in grey_NYX]
    return np.clip(np.stack([np.asarray(image) for image in resized]), 0, 255)


def residual(one_MYX: np.ndarray, other_MYX: np.ndarray) -> np.ndarray:
    """Return the residual of each pair of thumbnails, (M,): the rms difference after transforming one image into the
    other, in the better of the two directions, as a fraction of the other's standard deviation.

    A pair gets infinity if its difference is concentrated in one place, or if the difference is far above MAX_RESIDUAL
    at half the size already, as for most candidates.
    """
    result_M = np.full(len(one_MYX), np.inf)
    small_1, small_2 = halved(one_MYX), halved(other_MYX)
    alike = np.flatnonzero(_dot(_unit(small_1), _unit(small_2)) >= MIN_CORRELATION)
    coarse_M = np.full(len(alike), np.inf)
    for blur, allowed in COARSE:
        coarse_M = np.minimum(coarse_M, _best(small_1[alike], small_2[alike], blurs=(blur,), smooth=SMOOTHING / 2)[0])
        kept = coarse_M <= allowed * MAX_RESIDUAL
        alike, coarse_M = alike[kept], coarse_M[kept]
    residual_M, peak_M = _best(one_MYX[alike], other_MYX[alike], blurs=BLURS, smooth=SMOOTHING)
    result_M[alike] = np.where(peak_M <= MAX_PEAK, residual_M, np.inf)
    return result_M


def halved(images_MYX: np.ndarray) -> np.ndarray:
    """Return the images at half the size: means of 2 x 2 pixels."""
    rows = images_MYX[:, 0::2] + images_MYX[:, 1::2]
    return (rows[:, :, 0::2] + rows[:, :, 1::2]) / 4


def _best(
    one_MYX: np.ndarray, other_MYX: np.ndarray, *, blurs: tuple[float, ...], smooth: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each pair (smallest residual over all blurs and both directions, peak of that residual), both (M,);
    `_unexplained` defines residual and peak.

    Args:
        blurs: sigmas in pixels of the Gaussian blurs that are tried on one image before it is compared with the other.
        smooth: sigma in pixels of the blur of what remains (see `_unexplained`).
    """
    best_M, peak_M = np.full(len(one_MYX), np.inf), np.full(len(one_MYX), np.inf)
    if not len(one_MYX):
        return best_M, peak_M
    for source_MYX, copy_MYX in ((one_MYX, other_MYX), (other_MYX, one_MYX)):
        for sigma in blurs:
            left_M, largest_M = _unexplained(_blur(source_MYX, sigma), copy_MYX, smooth=smooth)
            peak_M = np.where(left_M < best_M, largest_M, peak_M)
            best_M = np.minimum(best_M, left_M)
    return best_M, peak_M


def _unit(images_MYX: np.ndarray) -> np.ndarray:
    """Return the images as rows of mean 0 and norm 1, (M, pixels); the dot product of two rows is the images'
    correlation."""
    rows_MP = images_MYX.reshape(len(images_MYX), -1)
    rows_MP = rows_MP - rows_MP.mean(axis=1, keepdims=True)
    return rows_MP / np.maximum(np.sqrt(_dot(rows_MP, rows_MP)), 1e-3)[:, None]


def _dot(one_MP: np.ndarray, other_MP: np.ndarray) -> np.ndarray:
    """Return the dot products of corresponding rows, (M,)."""
    return np.einsum("mp,mp->m", one_MP, other_MP)


def _unexplained(source_MYX: np.ndarray, copy_MYX: np.ndarray, *, smooth: float) -> tuple[np.ndarray, np.ndarray]:
    """Fit copy = clip(gain * source + offset) by least squares over unclipped pixels. Return (residual_M, peak_M).

    The residual is the rms of what remains divided by the copy's standard deviation. The peak is the largest squared
    remainder divided by (its rms × that standard deviation): it is high where a difference is concentrated in one
    place.

    Args:
        smooth: sigma in pixels of a blur of the remainder and of the copy, applied before both are measured.
    """
    count = len(source_MYX)
    x_MP, y_MP = source_MYX.reshape(count, -1), copy_MYX.reshape(count, -1)
    free_MP = ((x_MP > DARK) & (x_MP < BRIGHT) & (y_MP > DARK) & (y_MP < BRIGHT)).astype(np.float32)
    number_M = np.maximum(free_MP.sum(axis=1), 1)
    mean_x_M = _dot(x_MP, free_MP) / number_M
    mean_y_M = _dot(y_MP, free_MP) / number_M
    dx_MP, dy_MP = (x_MP - mean_x_M[:, None]) * free_MP, (y_MP - mean_y_M[:, None]) * free_MP
    gain_M = _dot(dx_MP, dy_MP) / np.maximum(_dot(dx_MP, dx_MP), 1e-6)
    gain_M = np.where(number_M >= MIN_FREE, np.clip(gain_M, 0.25, 4.0), np.float32(1))
    offset_M = np.where(number_M >= MIN_FREE, mean_y_M - gain_M * mean_x_M, np.float32(0))
    told_MP = np.clip(x_MP * gain_M[:, None] + offset_M[:, None], 0, 255)
    left_MP = _blur((y_MP - told_MP).reshape(copy_MYX.shape), smooth).reshape(count, -1)
    varies_M = _blur(copy_MYX, smooth).reshape(count, -1).std(axis=1)
    left_M = np.sqrt(_dot(left_MP, left_MP) / left_MP.shape[1])
    seen_M = varies_M >= MIN_CONTRAST
    peak_M = np.abs(left_MP).max(axis=1) ** 2 / np.maximum(left_M * varies_M, 1e-6)
    return np.where(seen_M, left_M / np.maximum(varies_M, 1e-6), np.inf), peak_M


def _blur(images_MYX: np.ndarray, sigma: float) -> np.ndarray:
    """Return the images after a Gaussian blur of `sigma` pixels; edge pixels are repeated beyond the edge."""
    if sigma == 0:
        return images_MYX
    side = images_MYX.shape[-1]
    weight_SS = np.exp(-((np.arange(side)[:, None] - np.arange(-4, side + 4)[None, :]) ** 2) / (2 * sigma**2))
    weight_SS = np.concatenate(
        [weight_SS[:, :5].sum(axis=1, keepdims=True), weight_SS[:, 5:-5], weight_SS[:, -5:].sum(axis=1, keepdims=True)],
        axis=1,
    )
    matrix_SS = (weight_SS / weight_SS.sum(axis=1, keepdims=True)).astype(np.float32)
    return matrix_SS @ images_MYX @ matrix_SS.T
