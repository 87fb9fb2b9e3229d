"""Visual atoms: each image a function of its class and number alone; classes can be told apart."""

from __future__ import annotations

import numpy as np
import pytest

from bench.core.errors import UserError
from bench.data.generated import atoms, drawn
from bench.data.load import load


def test_a_larger_set_holds_a_smaller_one_and_pieces_do_not_matter(monkeypatch) -> None:
    large, small = load("visual-atoms:6x40:32px", "train"), load("visual-atoms:6x8:32px", "train")
    assert large.images_NHWC.shape == (240, 32, 32, 3) and small.num_classes == 6
    assert np.array_equal(large.images_NHWC[:48], small.images_NHWC) and (np.bincount(large.labels_N) == 40).all()
    classes, indices = np.array([5, 0, 5]), np.array([3, 7, 39])
    alone = atoms.draw(classes, indices, split="train", size=32)
    assert np.array_equal(alone, large.images_NHWC[indices * 6 + classes])
    monkeypatch.setattr(drawn, "ALONE", 100)
    monkeypatch.setattr(drawn, "PIECE", 70)
    pieces = drawn._pieces(_numbers, 3, 240, "train", 1, "test")
    assert np.concatenate(list(pieces)).ravel().tolist() == list(range(240))  # by several processes, in order


def _numbers(numbers_N: np.ndarray, *, classes: int, split: str, size: int) -> np.ndarray:
    return numbers_N.astype(np.uint8).reshape(-1, 1, 1, 1)


def test_no_image_is_twice_in_a_set_or_in_both_splits() -> None:
    train, test = load("visual-atoms:6x40:32px", "train"), load("visual-atoms:6x40:32px", "test")
    keys = np.concatenate([train.content_keys_N, test.content_keys_N])
    assert len(np.unique(keys)) == len(keys) == 240 + 150


def test_frequencies_are_those_of_the_outline() -> None:
    """The strongest frequency of the radius is one of the class's two: read off the drawing by a Fourier transform."""
    right = 0
    for number in range(20):
        image = atoms.draw(np.array([number]), np.array([0]), split="train", size=128)[0].astype(float)
        inked = np.abs(image - image[0, 0]).sum(-1) > 0
        y, x = np.nonzero(inked)
        angle = np.arctan2(y - y.mean(), x - x.mean())
        bins = ((angle + np.pi) / (2 * np.pi) * 128).astype(int) % 128
        radius = np.array([np.hypot(y - y.mean(), x - x.mean())[bins == k].max(initial=0.0) for k in range(128)])
        spectrum = np.abs(np.fft.rfft(radius - radius.mean()))
        spectrum[:3] = 0  # the oval, and the centre of mass
        first, second, *_ = atoms._atom(number)
        right += int(np.argmax(spectrum)) in (first, second)
    assert right >= 12


@pytest.mark.parametrize("option", ["1x10", "10x0", "10x10:8px", "10by10", "100000x1001", ":64px:rgb"])
def test_what_cannot_be_drawn_is_refused(option: str) -> None:
    with pytest.raises(UserError, match=r"visual-atoms:CLASSESxIMAGES|out of range"):
        load(f"visual-atoms:{option}", "train")
