"""The structured tasks: labels are what an independent measurement says; nothing else gives them away."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from bench.data.generated.shapes import OVERSAMPLE, SIZE, Shape, corners
from bench.data.image_set import ImageSet
from bench.data.load import load
from bench.data.sets import shapes_distance, shapes_orientation, shapes_position

NAMES = ("shapes-count", "shapes-position", "shapes-orientation", "shapes-distance")


def pieces(image_HW: np.ndarray, *, at_least: int = 4) -> tuple[np.ndarray, list[int]]:
    """Connected parts well above the ground, and the numbers of those that have `at_least` pixels."""
    labels_HW, count = ndimage.label(image_HW > np.median(image_HW) + 40, structure=np.ones((3, 3)))
    sizes = np.bincount(labels_HW.ravel(), minlength=count + 1)
    return labels_HW, [number for number in range(1, count + 1) if sizes[number] >= at_least]


def sample(name: str) -> tuple[ImageSet, list[np.ndarray]]:
    images = load(name, "test")
    return images, [image[..., 0].astype(float) for image in images.images_NHWC[:300]]


def test_count() -> None:
    images, pictures = sample("shapes-count")
    counted = [len(pieces(picture, at_least=3)[1]) for picture in pictures]
    assert np.mean(np.array(counted) == images.labels_N[:300] + 1) > 0.97


def test_count_is_not_told_by_ink_alone() -> None:
    """Bright pixels of every class overlap with those of the next."""
    images = load("shapes-count", "train")
    ink_N = (images.images_NHWC > np.median(images.images_NHWC, axis=(1, 2), keepdims=True) + 40).sum(axis=(1, 2, 3))
    order_N = np.argsort(np.argsort(ink_N))
    assert 0.3 < np.mean(order_N * 6 // len(ink_N) == images.labels_N) < 0.7


def test_position() -> None:
    images, pictures = sample("shapes-position")
    width = (SIZE - 2 * shapes_position.MARGIN) / 8
    found = []
    for picture in pictures:
        labels_HW, numbers = pieces(picture)
        largest = max(numbers, key=lambda number: np.count_nonzero(labels_HW == number))
        x = ndimage.center_of_mass(labels_HW == largest)[1] + 0.5
        found.append((x - shapes_position.MARGIN) / width - 0.5)
    assert np.mean(np.abs(np.array(found) - images.labels_N[:300]) < 0.9) > 0.95


def test_orientation() -> None:
    """Mean shapes of the classes, turned back by their labels, are one shape; by other angles they are not."""
    images = load("shapes-orientation", "test")
    means = []
    for label in range(8):
        total_HW = np.zeros((SIZE, SIZE))
        for image in images.images_NHWC[images.labels_N == label, :, :, 0]:
            shape_HW = (image > np.median(image) + 40).astype(float)
            centre = np.array(ndimage.center_of_mass(shape_HW))
            total_HW += ndimage.shift(shape_HW, (SIZE - 1) / 2 - centre, order=1)
        means.append(total_HW)

    def alike(label: int, turns: int) -> float:
        turned = ndimage.rotate(means[label], 45 * turns, reshape=False, order=1)  # anticlockwise in the picture
        return float(np.corrcoef(turned.ravel(), means[0].ravel())[0, 1])

    for label in range(1, 8):
        right = alike(label, label)
        assert right > 0.97
        assert all(right > alike(label, turns) for turns in range(8) if turns != label)
    tip = max(corners(Shape(outline="arrow", x=14, y=14, radius=6, angle=0, ink=100)))
    assert tip[1] == 14 * OVERSAMPLE and shapes_orientation.CLASSES[0] == "east"


def test_distance() -> None:
    images, pictures = sample("shapes-distance")
    step = (shapes_distance.FURTHEST - shapes_distance.NEAREST) / 6
    errors = []
    for picture, label in zip(pictures, images.labels_N, strict=False):
        labels_HW, numbers = pieces(picture, at_least=3)
        if len(numbers) == 2:
            (y, x), (y_2, x_2) = ndimage.center_of_mass(labels_HW > 0, labels_HW, numbers)
            errors.append((np.hypot(x - x_2, y - y_2) - shapes_distance.NEAREST) / step - 0.5 - label)
    assert len(errors) > 290 and np.mean(np.abs(errors) < 0.75) > 0.97


@pytest.mark.parametrize("name", NAMES)
def test_balanced_and_never_the_same_twice(name: str) -> None:
    train, test = load(name, "train"), load(name, "test")
    assert (len(train), len(test)) == (2000, 1000)
    for images in (train, test):
        counts = np.bincount(images.labels_N)
        assert counts.max() - counts.min() <= 1
    keys = np.concatenate([train.content_keys_N, test.content_keys_N])
    assert len(np.unique(keys)) == len(keys)


@pytest.mark.parametrize("name", NAMES)
def test_ground_does_not_tell(name: str) -> None:
    """The median brightness and the class are independent: the classes' means agree within their errors."""
    images = load(name, "train")
    ground_N = np.median(images.images_NHWC, axis=(1, 2, 3))
    means = [ground_N[images.labels_N == label].mean() for label in range(images.num_classes)]
    assert np.ptp(means) < 5 * ground_N.std() / np.sqrt(len(images) / images.num_classes)
