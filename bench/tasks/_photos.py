"""Facts about labelled photos that go with an accuracy: copies among them, counts by class, and the most confident
errors as small pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from bench.core.errors import UserError
from bench.data import dedup
from bench.data.image_set import ImageSet

SIDE = 72  # pixels per side of a small picture at most
QUALITY = 75  # quality of its JPEG
MAX_ERRORS, MAX_PAIRS = 12, 6  # errors, and pairs of copies, that are kept as pictures at most
PER_PIXEL, PER_PAIR = 30e-9, 20e-9  # seconds to shrink an image, and to compare two: for plans


@dataclass(frozen=True, kw_only=True, eq=False)
class Copies:
    """Copies (near-duplicates) in a labelled set.

    Attributes:
        aside_N: bool, one per training image: whether it is a copy of a test image.
        contrary: some pairs of copies with different labels, each image as a small picture (see `picture`).
        num_contrary: number of all pairs of copies with different labels.
    """

    aside_N: np.ndarray
    contrary: tuple[list[dict[str, str]], ...]
    num_contrary: int


def copies(train: ImageSet, test: ImageSet) -> Copies:
    """Find the copies (near-duplicates) between the training and the test images, and within each of the two.

    Raises:
        UserError: all training images of a class are copies of test images.
    """
    aside_N = np.zeros(len(train), dtype=bool)
    aside_N[dedup.pairs(train, test)[0]] = True
    if len(empty := np.setdiff1d(train.labels_N, train.labels_N[~aside_N])):
        names = ", ".join(train.class_names[k] for k in empty)
        what = f"{train.name}: every training image of {names} is a copy of a test image."
        raise UserError(what, "Give test images that are no copies.")
    contrary = [pair for one, other in ((train, test), (train, train), (test, test)) for pair in _contrary(one, other)]
    shown = [[picture(images, i) for images, i in pair] for pair in contrary[:MAX_PAIRS]]
    return Copies(aside_N=aside_N, contrary=tuple(shown), num_contrary=len(contrary))


def seconds(train: int, test: int, side: int) -> float:
    """Estimate the seconds that one core takes for `copies`, to forecast costs.

    Args:
        train, test: numbers of training and test images.
        side: pixels per side of the images.
    """
    among = sum(number**2 for number in (train, test) if number <= dedup.MAX_AMONG)
    return (train + test) * side**2 * PER_PIXEL + 2 * (train * test + among) * PER_PAIR


def _contrary(one: ImageSet, other: ImageSet) -> Iterator[tuple[tuple[ImageSet, int], tuple[ImageSet, int]]]:
    """Yield each pair of copies with different labels, one image from each set: ((set, position), (set, position)).

    Args:
        one, other: the two sets, or the same set twice; for a set with more than `dedup.MAX_AMONG` images nothing is
            then yielded.
    """
    if one is other and len(one) > dedup.MAX_AMONG:
        return
    for i, j in zip(*(place_M.tolist() for place_M in dedup.pairs(one, other)), strict=True):
        if one.labels_N[i] != other.labels_N[j]:
            yield (one, i), (other, j)


def picture(images: ImageSet, place: int) -> dict[str, str]:
    """Return {"class": name of an image's class, "split": its split, "jpeg": the image as a small JPEG in base64}.

    Args:
        place: position of the image in `images`.
    """
    pixels_HWC = np.asarray(images.images_NHWC[place : place + 1])[0]
    small = Image.fromarray(pixels_HWC[..., 0] if pixels_HWC.shape[2] == 1 else pixels_HWC)
    small.thumbnail((SIDE, SIDE))
    data = io.BytesIO()
    small.save(data, "JPEG", quality=QUALITY)
    name = images.class_names[images.labels_N[place]]
    return {"class": name, "split": images.split, "jpeg": base64.b64encode(data.getvalue()).decode()}


def surest_errors(test: ImageSet, predicted_M: np.ndarray, scores_MK: np.ndarray) -> list[dict[str, str]]:
    """Return the most confidently misclassified test images as small pictures (see `picture`), each with the predicted
    class as "taken".

    First come the images for which the score of the predicted class is furthest above the score of the correct one.

    Args:
        predicted_M: predicted class of each test image.
        scores_MK: scores of the classes by ridge regression.
    """
    wrong_E = np.flatnonzero(predicted_M != test.labels_N)
    margin_E = scores_MK[wrong_E, predicted_M[wrong_E]] - scores_MK[wrong_E, test.labels_N[wrong_E]]
    first = wrong_E[np.argsort(-margin_E, kind="stable")][:MAX_ERRORS]
    return [picture(test, int(i)) | {"taken": test.class_names[predicted_M[i]]} for i in first]


def by_class(
    names: Sequence[str], labels_N: np.ndarray, test_labels_M: np.ndarray, validated_N: np.ndarray | None
) -> list[list[Any]]:
    """Return [class, labelled images, how many of them are right in cross-validation, test images] for each class.

    Args:
        names: names of the classes.
        labels_N, test_labels_M: classes of the labelled images, and of the test images.
        validated_N: bool, one per labelled image: whether cross-validation classifies it correctly. None without
            cross-validation; the third entry is then None.
    """
    num_K, tested_K = (np.bincount(labels, minlength=len(names)) for labels in (labels_N, test_labels_M))
    right_K = None if validated_N is None else np.bincount(labels_N[validated_N], minlength=len(names))
    return [
        [name, int(num_K[k]), None if right_K is None else int(right_K[k]), int(tested_K[k])]
        for k, name in enumerate(names)
    ]
