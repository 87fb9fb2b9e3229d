"""Copies of test images among training images: found, drawn, and nothing else taken for one."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.data import __main__ as data
from bench.data import dedup
from bench.data.image_set import ImageSet
from bench.data.load import load
from tests.data import writers

# -- planted copies are found, lookalikes are not: recall and precision on Fashion-MNIST's own images ------------------


PLANTED = 150
# Test images of the embedded part with a copy among its training images, found by this rule and judged by eye.
KNOWN = 3


def jpeg(quality: int) -> Callable[[np.ndarray], np.ndarray]:
    def make(image_HW: np.ndarray) -> np.ndarray:
        data = io.BytesIO()
        Image.fromarray(image_HW).save(data, "JPEG", quality=quality)
        return np.asarray(Image.open(data))

    return make


def resized(side: int, how: Image.Resampling) -> Callable[[np.ndarray], np.ndarray]:
    return lambda image_HW: np.asarray(Image.fromarray(image_HW).resize((side, side), how).resize((28, 28), how))


def brighter(levels: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda image_HW: np.clip(image_HW.astype(int) + levels, 0, 255).astype(np.uint8)


COPIES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "exact": (lambda image_HW: image_HW, 1.0),
    "mirrored": (lambda image_HW: image_HW[:, ::-1], 1.0),
    "mirrored, JPEG 75": (lambda image_HW: jpeg(75)(image_HW[:, ::-1]), 0.97),
    "JPEG 90": (jpeg(90), 1.0),
    "JPEG 75": (jpeg(75), 0.97),
    "JPEG 50": (jpeg(50), 0.88),
    "JPEG 30": (jpeg(30), 0.75),
    "20 px and back": (resized(20, Image.Resampling.BILINEAR), 0.98),
    "20 px and back, bicubic": (resized(20, Image.Resampling.BICUBIC), 0.97),
    "40 px and back": (resized(40, Image.Resampling.BILINEAR), 1.0),
    "56 px and back": (resized(56, Image.Resampling.BICUBIC), 1.0),
    "brighter by 40": (brighter(40), 1.0),
    "darker by 40": (brighter(-40), 0.95),  # what was nearly black is gone
    "less contrast": (lambda image_HW: (image_HW * 0.7 + 20).astype(np.uint8), 1.0),
}


def parts() -> tuple[ImageSet, ImageSet]:
    return load("fashion-mnist:part", "train"), load("fashion-mnist:part", "test")


def images_like(images: ImageSet, pixels_NHW: np.ndarray, labels_N: np.ndarray) -> ImageSet:
    return replace(images, images_NHWC=pixels_NHW[..., None], labels_N=labels_N)


@pytest.fixture(scope="module")
def found() -> tuple[dedup.Duplicates, dict[str, slice], np.ndarray, int]:
    """Copies of one sample of test images, made in every way and put among the training images."""
    train, test = parts()
    chosen_P = np.sort(np.random.default_rng(0).permutation(len(test))[:PLANTED])
    planted = [np.stack([make(test.images_NHWC[i, :, :, 0]) for i in chosen_P]) for make, _ in COPIES.values()]
    pixels_NHW = np.concatenate([train.images_NHWC[:4000, :, :, 0], *planted])
    labels_N = np.concatenate([train.labels_N[:4000], *[test.labels_N[chosen_P]] * len(planted)])
    places = {name: slice(4000 + k * PLANTED, 4000 + (k + 1) * PLANTED) for k, name in enumerate(COPIES)}
    return dedup.find(images_like(train, pixels_NHW, labels_N), test), places, chosen_P, len(pixels_NHW)


@pytest.mark.parametrize("name", COPIES)
def test_recall(found: tuple, name: str) -> None:
    duplicates, places, chosen_P, total = found
    pairs = set(zip(duplicates.upstream_M.tolist(), duplicates.downstream_M.tolist(), strict=True))
    hits = sum((row, i) in pairs for row, i in zip(range(total)[places[name]], chosen_P.tolist(), strict=True))
    print(f"{name}: {hits} of {PLANTED}")
    assert hits >= COPIES[name][1] * PLANTED


def test_precision(found: tuple) -> None:
    """Every planted copy that is paired is paired with its original, except where the test set repeats itself."""
    duplicates, _, chosen_P, _ = found
    planted_M = duplicates.upstream_M >= 4000
    original_M = chosen_P[(duplicates.upstream_M[planted_M] - 4000) % PLANTED]
    wrong = np.mean(original_M != duplicates.downstream_M[planted_M])
    print(f"{wrong:.2%} of {planted_M.sum()} pairs are with another image")
    assert wrong <= 0.01
    assert (~planted_M).sum() <= KNOWN


@pytest.mark.parametrize("levels", [50, 100])
def test_a_print_makes_another_garment(levels: int) -> None:
    """The same shirt with a mark of 3 x 6 pixels on its chest is told apart from the one without."""
    _, test = parts()
    shirts = test.take(np.flatnonzero(np.isin(test.labels_N, (0, 2, 4, 6)))[:200])
    printed = shirts.images_NHWC.astype(int)
    chest = printed[:, 10:13, 11:17]
    printed[:, 10:13, 11:17] = np.where(chest.mean(axis=(1, 2, 3), keepdims=True) > 127, chest - levels, chest + levels)
    found = dedup.find(replace(shirts, images_NHWC=np.clip(printed, 0, 255).astype(np.uint8)), shirts)
    same = np.mean(np.isin(np.arange(len(shirts)), found.upstream_M[found.upstream_M == found.downstream_M]))
    print(f"{levels} levels: {same:.1%} taken for copies")
    assert same <= 0.02


def test_mirrored_is_said(found: tuple) -> None:
    duplicates, places, _, _ = found
    for name, flipped in (("exact", False), ("mirrored", True)):
        rows_M = (duplicates.upstream_M >= places[name].start) & (duplicates.upstream_M < places[name].stop)
        assert np.mean(duplicates.flipped_M[rows_M] == flipped) > 0.98
    assert duplicates.residual_M[duplicates.upstream_M >= places["exact"].start].min() == 0


def test_nothing_else_is_dropped_from_fashion_mnist() -> None:
    train, test = parts()
    duplicates = dedup.find(train, test)
    assert len(duplicates) == KNOWN
    assert not duplicates.flipped_M.any()
    np.testing.assert_array_equal(train.labels_N[duplicates.upstream_M], test.labels_N[duplicates.downstream_M])
    assert len(dedup.find(train.take(np.setdiff1d(np.arange(len(train)), duplicates.upstream_M)), test)) == 0


def test_another_size_and_colour() -> None:
    _, test = parts()
    large = [
        Image.fromarray(image[..., 0]).resize((64, 64), Image.Resampling.BICUBIC) for image in test.images_NHWC[:60]
    ]
    coloured = np.stack([np.asarray(image.convert("RGB")) for image in large])
    duplicates = dedup.find(replace(test, images_NHWC=coloured, labels_N=test.labels_N[:60]), test)
    assert set(range(60)) == set(duplicates.upstream_M[duplicates.upstream_M == duplicates.downstream_M].tolist())


def test_rendered_sets_share_nothing_with_the_photographs() -> None:
    test = load("fashion-mnist:part", "test")
    for name in ("shapes-orientation", "visual-atoms:12x100"):
        assert len(dedup.find(load(name, "train", num_images=1000), test)) == 0


def test_plain_and_empty_pictures_are_nobodys_copy() -> None:
    plain = ImageSet(
        name="plain",
        split="train",
        images_NHWC=np.full((3, 28, 28, 1), 128, np.uint8),
        labels_N=np.zeros(3, int),
        class_names=("0",),
        kind="rendered",
    )
    assert len(dedup.find(plain, plain)) == 0
    nothing = plain.take(np.empty(0, dtype=int))
    assert len(dedup.find(nothing, plain)) == len(dedup.find(plain, nothing)) == 0


def test_counting_bits_without_numpy_2(monkeypatch: pytest.MonkeyPatch) -> None:
    value = np.random.default_rng(0).integers(0, 2**63, (40, 50), dtype=np.uint64)
    expected = [[int(number).bit_count() for number in row] for row in value]
    np.testing.assert_array_equal(dedup._popcount(value), expected)
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    np.testing.assert_array_equal(dedup._popcount(value), expected)


# -- `python -m bench data --copies`: the pairs it says and draws are those that were planted --------------------------


COUNT = 40


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image folder, some of whose training images are test images of Fashion-MNIST, mirrored."""
    train, test = (load("fashion-mnist:part", split) for split in ("train", "test"))
    stolen, own = test.images_NHWC[:3, :, ::-1], train.images_NHWC[:COUNT]
    labels = np.arange(COUNT + 3) % 2
    parts = {"train": (np.concatenate([stolen, own]), labels), "test": (own[:4], labels[:4])}
    writers.as_npz(folder := tmp_path_factory.mktemp("data") / "mine", parts)
    return folder.parent


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = data.main(["--copies", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_pairs_are_said_and_drawn(capsys: pytest.CaptureFixture[str], root: Path, tmp_path: Path) -> None:
    where, picture = ["folder:mine", "fashion-mnist:part", "--data-root", str(root)], tmp_path / "pairs.png"
    code, out, _ = run(capsys, *where, "--picture", str(picture), "--json")
    rows = json.loads(out)
    upstream, test = load("folder:mine", "train", root=root), load("fashion-mnist:part", "test")
    assert code == 0 and sorted(row["downstream"] for row in rows) == [0, 1, 2]
    for row in rows:
        np.testing.assert_array_equal(
            upstream.images_NHWC[row["upstream"], :, ::-1], test.images_NHWC[row["downstream"]]
        )
        assert row["mirrored"] and row["residual"] == 0 and row["downstream_class"] in test.class_names
    drawn = np.asarray(Image.open(picture))
    tile = lambda top, left: drawn[top : top + 84 : 3, left : left + 84 : 3]  # noqa: E731
    assert drawn.shape == (2 * 84 + 24, 3 * 96 + 12)
    for place, row in enumerate(rows):
        np.testing.assert_array_equal(tile(12, 12 + 96 * place), upstream.images_NHWC[row["upstream"], :, :, 0])
        np.testing.assert_array_equal(tile(96, 12 + 96 * place), test.images_NHWC[row["downstream"], :, :, 0])


def test_nothing_found_draws_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "pairs.png"
    code, out, _ = run(capsys, "shapes-count@50", "fashion-mnist:part", "--picture", str(picture), "--json")
    assert code == 0 and json.loads(out) == [] and not picture.exists()
