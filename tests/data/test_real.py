"""ReaL labels: read from JSON, matched to ImageNet's images by number, and scored as published."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from bench.core.errors import UserError
from bench.data.load import load
from bench.data.real import read_real, real_hash, real_right
from tests.data import writers

# In the order of the numbers; image 3 has no label, image 5 is another class than its file says.
REAL = [[0], [0, 2], [], [1, 2], [0], [2], [1], [1], [2, 0]]


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    """ImageNet's layout with 3 classes: train/n…/n…_1.JPEG and val/n…/ILSVRC2012_val_00000001.JPEG."""
    parts = writers.make(12)
    for split, (images, labels) in {"train": parts["train"], "val": (parts["test"][0][:4], np.arange(4) % 3)}.items():
        for row, (pixels, label) in enumerate(zip(images, labels, strict=True), start=1):
            name = f"ILSVRC2012_val_{2 * row:08d}.PNG" if split == "val" else f"n0{label}_{row}.PNG"
            path = tmp_path / "imagenet" / split / f"n0{label}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(writers.png(pixels))
    return tmp_path


def pixels_of_number(root: Path, number: int) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(next(root.rglob(f"ILSVRC2012_val_{number:08d}.PNG"))))


def test_labels_follow_their_images(imagenet: Path) -> None:
    (imagenet / "imagenet" / "real.json").write_text(json.dumps(REAL))
    for _ in range(2):  # decoded, then from the cache
        test = load("folder:imagenet", "test", root=imagenet)
        assert test.multi_labels is not None
        for image_HWC, classes in zip(test.images_NHWC, test.multi_labels, strict=True):
            number = next(n for n in (2, 4, 6, 8) if (pixels_of_number(imagenet, n) == image_HWC[..., 0]).all())
            assert list(classes) == sorted(REAL[number - 1])
    assert load("folder:imagenet", "train", root=imagenet).multi_labels is None
    order = np.array([2, 0])
    assert test.take(order).multi_labels == (test.multi_labels[2], test.multi_labels[0])


def test_the_labels_change_no_image(imagenet: Path) -> None:
    plain = load("folder:imagenet", "test", root=imagenet)
    assert plain.multi_labels is None
    (imagenet / "imagenet" / "real.json").write_text(json.dumps(REAL))
    assert load("folder:imagenet", "test", root=imagenet).content_hash == plain.content_hash


def test_the_metric_as_published() -> None:
    """Right when the class is in the set; images without a class do not count. Written out over a multi-hot matrix."""
    rng = np.random.default_rng(0)
    hot_NK = rng.random((500, 10)) < 0.15
    guesses_N = rng.integers(0, 10, 500)
    labels = tuple(tuple(np.flatnonzero(row).tolist()) for row in hot_NK)
    right_R = real_right(guesses_N, labels)
    has_N = hot_NK.any(axis=1)
    assert 0 < len(right_R) == has_N.sum() < 500
    np.testing.assert_array_equal(right_R, hot_NK[np.arange(500), guesses_N][has_N])
    assert len(real_right(np.array([1, 2]), ((), ()))) == 0
    with pytest.raises(ValueError, match="3 predictions for 2"):
        real_right(np.zeros(3, int), ((1,), (2,)))


def test_the_published_labels_and_accuracy_are_those_of_timm(tmp_path: Path) -> None:
    """timm carries the published file and its authors' metric."""
    import torch
    from timm.data.real_labels import RealLabelsImagenet

    names = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, 50_001)]
    theirs = RealLabelsImagenet(names, topk=(1,))
    path = Path(str(files("timm.data") / "_info" / "imagenet_real_labels.json"))
    labels = read_real(path, num_classes=1_000)
    assert labels == tuple(tuple(sorted(set(theirs.real_labels[name]))) for name in names)
    guesses_N = np.random.default_rng(0).integers(0, 1_000, len(names))
    guesses_N[::2] = [row[0] if row else 0 for row in labels[::2]]
    theirs.add_result(torch.nn.functional.one_hot(torch.from_numpy(guesses_N[:5_000]), 1_000).float())
    right_R = real_right(guesses_N[:5_000], labels[:5_000])
    assert float(right_R.mean()) == pytest.approx(theirs.get_accuracy(1) / 100)


def test_other_images_or_other_classes_are_another_test_set() -> None:
    sets = [("a", ((1,), ())), ("b", ((1,), ())), ("a", ((), (1,))), ("a", ((1, 2), ()))]
    assert len({real_hash(*one) for one in sets}) == len(sets)


@pytest.mark.parametrize(
    "text, said",
    [
        ("[[0], [1", "JSON"),
        ('{"a": 1}', "no list of images"),
        ("[]", "no list of images"),
        ("[[0], 3]", "image 2"),
        ('[[0], ["cat"]]', "image 2"),
        ("[[0], [3]]", "0 to 2"),
        ("[[-1]]", "0 to 2"),
        ("[[true]]", "image 1"),
        ("[[0], [1]]", "none of the 2 images"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_bad_files_are_refused(imagenet: Path, text: str, said: str) -> None:
    (imagenet / "imagenet" / "real.json").write_text(text)
    with pytest.raises(UserError, match=said):
        load("folder:imagenet", "test", root=imagenet)


def test_images_under_other_names_are_refused(imagenet: Path) -> None:
    (imagenet / "imagenet" / "real.json").write_text(json.dumps(REAL))
    path = next((imagenet / "imagenet" / "val").rglob("*.PNG"))
    path.rename(path.with_name("holiday.PNG"))
    with pytest.raises(UserError, match=r"holiday\.PNG"):
        load("folder:imagenet", "test", root=imagenet)
