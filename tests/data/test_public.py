"""Published sets: read as published, and their corrected labels."""

import json
import pickle
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from bench.core.errors import UserError
from bench.data import identity
from bench.data.hub_sets import HubSet
from bench.data.image_set import ImageSet
from bench.data.load import load, look, resizes
from bench.data.public import CIFAR100, ROWS, TABLE
from bench.data.public_names import PUBLIC_SETS, UPSTREAM_IMAGES
from bench.data.real import read_real, real_hash, real_right
from bench.data.torchvision_sets import TorchvisionSet
from bench.study import registry
from tests.data import writers
from tests.data.test_hostile import MARK, Evil
from tests.data.writers import SPLITS, picture, shades

# -- the table of published sets: small files in the formats that their authors publish, read by torchvision's classes-


RNG = np.random.default_rng(0)
ROWS_MADE = 20
COLOUR = {
    split: writers.make(ROWS_MADE, classes=10, side=32, channels=3, seed=seed)["train"]
    for seed, split in enumerate(SPLITS)
}


def both(name: str, root: Path) -> tuple[ImageSet, ImageSet]:
    return load(name, "train", root=root), load(name, "test", root=root)


def check(images: ImageSet, *expected: tuple[int, int]) -> None:
    """The shade and the label of every image, in order."""
    assert list(zip(shades(images), images.labels_N.tolist(), strict=True)) == list(expected)


def test_names_are_found_once() -> None:
    names = [row.name for row in TABLE]
    assert len(set(names)) == len(names) and set(names) < set(registry.names("data set"))
    for row in TABLE:
        assert registry.load("data set", row.name) is row
    assert set(PUBLIC_SETS) == set(names)
    assert {name: row.images[0] for name, row in ROWS.items() if name in UPSTREAM_IMAGES} == UPSTREAM_IMAGES


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_absence_and_options(row: Any, tmp_path: Path) -> None:
    for root in (None, tmp_path):
        assert not row.available(root)
        with pytest.raises(UserError) as caught:
            load(row.name, "train", root=root)
        assert row.how_to_get in str(caught.value)
    if isinstance(row, TorchvisionSet | HubSet) and row.side is not None:
        assert f"default {row.side}px" in row.options and resizes(row.name)
        assert look(f"{row.name}:64px:grey", root=None) == (64, 1) and look(row.name, root=None) == (row.side, 3)
        for option in ("big", "4px", "5000px"):
            with pytest.raises(UserError, match=row.name):
                load(f"{row.name}:{option}", "train", root=tmp_path)


def test_flowers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """102 flowers, image 1 of class 0 …; torchvision checks the lists' checksums, which a miniature cannot have."""
    from torchvision.datasets import Flowers102

    folder, labels = tmp_path / "flowers-102", np.arange(1, 103)
    for number in labels.tolist():
        picture(folder / "jpg" / f"image_{number:05d}.jpg", number * 2)
    savemat(folder / "imagelabels.mat", {"labels": labels})
    ids = {"trnid": [3, 1], "valid": [5, 7], "tstid": np.setdiff1d(labels, [1, 3, 5, 7])}
    savemat(folder / "setid.mat", ids)
    with pytest.raises(UserError, match="not found or corrupted"):
        load("flowers102", "train", root=tmp_path)
    monkeypatch.setattr(Flowers102, "_check_integrity", lambda self: True)
    train, test = both("flowers102:16px", tmp_path)
    assert train.labels_N.tolist() == [0, 2, 4, 6] and len(test) == 98  # train and val together
    assert train.images_NHWC.shape == (4, 16, 16, 3) and len(train.class_names) == 102
    assert train.class_names[0] == "pink primrose"
    assert np.abs(train.images_NHWC.mean(axis=(1, 2, 3)) - [2, 6, 10, 14]).max() < 2


def test_textures(tmp_path: Path) -> None:
    labels = tmp_path / "dtd" / "dtd" / "labels"
    labels.mkdir(parents=True)
    for place, part in enumerate(("train", "val", "test")):
        names = [f"{name}/{name}_{part}.jpg" for name in ("banded", "zigzagged")]
        (labels / f"{part}1.txt").write_text("".join(f"{name}\n" for name in names))
        for kind, name in enumerate(names):
            picture(tmp_path / "dtd" / "dtd" / "images" / name, 100 * kind + 10 * place + 20)
    train, test = both("dtd:16px:grey", tmp_path)
    assert train.images_NHWC.shape == (4, 16, 16, 1) and train.class_names == ("banded", "zigzagged")
    check(train, (20, 0), (120, 1), (30, 0), (130, 1))
    check(test, (40, 0), (140, 1))
    (labels / "test1.txt").write_text("no slash\n")
    with pytest.raises(UserError, match="cannot be read"):
        load("dtd", "test", root=tmp_path)
    (labels / "test1.txt").write_text("banded/gone.jpg\n")
    with pytest.raises(UserError, match=r"gone\.jpg"):
        load("dtd", "test", root=tmp_path)


def test_pets(tmp_path: Path) -> None:
    folder = tmp_path / "oxford-iiit-pet"
    (folder / "annotations").mkdir(parents=True)
    for part, row in (("trainval", 1), ("test", 2)):
        rows = [("Abyssinian", 1, 1), ("great_pyrenees", 2, 2)]
        lines = "".join(f"{name}_{row} {label} {kind} 1\n" for name, label, kind in rows)
        (folder / "annotations" / f"{part}.txt").write_text(lines)
        for name, label, _ in rows:
            picture(folder / "images" / f"{name}_{row}.jpg", 100 * label + 10 * row)
    test = load("pets:16px", "test", root=tmp_path)
    assert test.class_names == ("Abyssinian", "Great Pyrenees")
    check(test, (120, 0), (220, 1))


def test_stl10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixels of one size, and resized where the name says another."""
    from torchvision.datasets import STL10

    monkeypatch.setattr(STL10, "_check_integrity", lambda self: True)
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    pixels = {split: RNG.integers(0, 256, (3, 3, 96, 96), dtype=np.uint8) for split in SPLITS}
    for split, images in pixels.items():
        images.transpose(0, 1, 3, 2).tofile(folder / f"{split}_X.bin")  # the files hold columns
        np.array([3, 1, 2], dtype=np.uint8).tofile(folder / f"{split}_y.bin")
    (folder / "class_names.txt").write_text("airplane\nbird\ncar\n")
    test = load("stl10", "test", root=tmp_path)
    np.testing.assert_array_equal(test.images_NHWC, pixels["test"].transpose(0, 2, 3, 1))
    assert test.labels_N.tolist() == [2, 0, 1] and test.class_names == ("airplane", "bird", "car")
    small = load("stl10:24px:grey", "test", root=tmp_path)
    assert small.images_NHWC.shape == (3, 24, 24, 1) and small.name == "stl10:24px:grey"
    grey_NHW = pixels["test"].mean(axis=1).reshape(3, 24, 4, 24, 4).mean(axis=(2, 4))
    assert np.abs(small.images_NHWC[..., 0] - grey_NHW).mean() < 12 and small.labels_N.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    "name, folder, train",
    [
        ("caltech101", "caltech101/101_ObjectCategories", 30),
        ("eurosat", "eurosat/2750", 32),
        ("resisc45", "resisc45/NWPU-RESISC45", 32),
        ("sun397", "SUN397", 32),
    ],
)
def test_sets_without_a_published_split(tmp_path: Path, name: str, folder: str, train: int) -> None:
    kinds = ("BACKGROUND_Google", "Faces", "ant")
    for kind, label in enumerate(kinds):
        for number in range(40):
            picture(tmp_path / folder / label / f"sun_{number:04d}.jpg", 60 * kind + number)
    if name == "sun397":
        (tmp_path / folder / "ClassName.txt").write_text("".join(f"/b/{kind}\n" for kind in kinds))
        for kind in kinds:
            (tmp_path / folder / "b").mkdir(exist_ok=True)
            (tmp_path / folder / kind).rename(tmp_path / folder / "b" / kind)
    parts = both(f"{name}:16px", tmp_path)
    assert parts[0].class_names == kinds
    for part, count in zip(parts, (train, 40 - train), strict=True):
        assert np.bincount(part.labels_N).tolist() == [count] * 3
    means = [set(np.round(part.images_NHWC.mean(axis=(1, 2, 3))).tolist()) for part in parts]
    assert not means[0] & means[1] and len(means[0] | means[1]) == 120, "every image is in one split"


def test_clevr_counts_from_three(tmp_path: Path) -> None:
    folder = tmp_path / "clevr" / "CLEVR_v1.0"
    (folder / "scenes").mkdir(parents=True)
    for part, scenes in {"train": {"b.png": 3, "a.png": 4}, "val": {"c.png": 10}}.items():
        rows = [{"image_filename": name, "objects": [{}] * count} for name, count in scenes.items()]
        (folder / "scenes" / f"CLEVR_{part}_scenes.json").write_text(json.dumps({"scenes": rows}))
        for name in scenes:
            picture(folder / "images" / part / name, 100)
    train, test = both("clevr-count:16px", tmp_path)
    assert [train.class_names[label] for label in train.labels_N] == ["4", "3"]
    assert [test.class_names[label] for label in test.labels_N] == ["10"]
    picture(folder / "images" / "val" / "d.png", 100)
    scenes = [{"image_filename": name, "objects": [{}] * 11} for name in ("c.png", "d.png")]
    (folder / "scenes" / "CLEVR_val_scenes.json").write_text(json.dumps({"scenes": scenes}))
    with pytest.raises(UserError, match="holds label 8; classes are 0 to 7"):
        load("clevr-count:16px", "test", root=tmp_path)
    (folder / "scenes" / "CLEVR_val_scenes.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        load("clevr-count:16px", "test", root=tmp_path)


# Pixels in a few files.


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision checks the published checksums, which a miniature cannot have."""
    from torchvision.datasets import cifar

    monkeypatch.setattr(cifar, "check_integrity", lambda *_: True)


def planes(images_NHWC: np.ndarray) -> np.ndarray:
    return images_NHWC.transpose(0, 3, 1, 2).reshape(len(images_NHWC), -1)


def write_cifar10(root: Path) -> Path:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for split, (images, labels) in COLOUR.items():
        for number in range(1, 6) if split == "train" else (0,):
            batch = {"data": planes(images), "labels": np.roll(labels, number).tolist()}
            name = f"data_batch_{number}" if number else "test_batch"
            (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    return folder


def test_cifar10(tmp_path: Path, unchecked: None) -> None:
    write_cifar10(tmp_path)
    train, test = both("cifar10", tmp_path)
    np.testing.assert_array_equal(train.images_NHWC, np.concatenate([COLOUR["train"][0]] * 5))
    np.testing.assert_array_equal(train.labels_N, np.concatenate([np.roll(COLOUR["train"][1], i) for i in range(1, 6)]))
    np.testing.assert_array_equal(test.images_NHWC, COLOUR["test"][0])
    assert train.class_names == tuple("abcdefghij") and look("cifar10", root=tmp_path) == (32, 3)
    assert look("cifar10", root=None) is None
    with pytest.raises(UserError, match="takes nothing after a colon"):
        load("cifar10:64px", "train", root=tmp_path)


def test_cifar100_fine_and_coarse(tmp_path: Path, unchecked: None) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    names = sorted(name for five in CIFAR100.values() for name in five.split())
    for split, (images, labels) in COLOUR.items():
        batch = {"data": planes(images), "fine_labels": (labels * 7).tolist()}
        (folder / split).write_bytes(pickle.dumps(batch, protocol=2))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": names}))
    images, labels = COLOUR["train"]
    fine, coarse = load("cifar100", "train", root=tmp_path), load("cifar100:coarse", "train", root=tmp_path)
    np.testing.assert_array_equal(fine.labels_N, labels * 7)
    np.testing.assert_array_equal(coarse.images_NHWC, images)
    assert (fine.num_classes, coarse.num_classes, coarse.name) == (100, 20, "cifar100:coarse")
    assert load("cifar100:fine", "train", root=tmp_path).name == "cifar100"
    for one, many in zip(fine.labels_N, coarse.labels_N, strict=True):
        assert fine.class_names[one] in CIFAR100[coarse.class_names[many]].split()
    with pytest.raises(UserError, match="coarse"):
        load("cifar100:corse", "train", root=tmp_path)


def test_a_pickle_that_is_not_the_published_one_is_not_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither code nor a bomb: a reader's table of two thousand million notes; one note encoded again and again."""
    monkeypatch.chdir(tmp_path)
    folder = write_cifar10(tmp_path)
    text = b"X\x00\x00\x10\x00" + b"a" * (1 << 20)
    bomb = b"\x80\x02](" + b"c_codecs\nencode\nq\x01" + text + b"q\x02" + b"\x85R" + b"h\x01h\x02\x85R" * 10_000 + b"e."
    for program in (pickle.dumps({"data": Evil()}), bomb, b"K\x01r\xff\xff\xff\x7f."):
        for path in (folder / "data_batch_1", folder / "batches.meta"):
            path.write_bytes(program)
        with pytest.raises(UserError, match="corrupted"):
            load("cifar10", "train", root=tmp_path)
    assert not Path(MARK).exists()


def test_emnist_splits_are_upright_and_count_from_zero(tmp_path: Path) -> None:
    published = {"balanced": 47, "letters": 26, "digits": 10, "mnist": 10, "bymerge": 47, "byclass": 62}
    for option, count in published.items():
        parts = writers.make(count, classes=count, side=28, seed=count)
        stored = {split: (x.swapaxes(1, 2), y + (option == "letters")) for split, (x, y) in parts.items()}
        writers.as_idx(tmp_path / "EMNIST" / "raw", stored, prefix=f"emnist-{option}-", test="test", plain=True)
        train = load(f"emnist:{option}", "train", root=tmp_path)
        np.testing.assert_array_equal(train.images_NHWC, parts["train"][0])
        np.testing.assert_array_equal(train.labels_N, parts["train"][1])
        assert train.num_classes == count and ("N/A" not in train.class_names)
    plain, named = load("emnist", "test", root=tmp_path), load("emnist:balanced", "test", root=tmp_path)
    assert plain.content_hash == named.content_hash and plain.name == named.name == "emnist"
    with pytest.raises(UserError, match="'letters'"):
        load("emnist:leters", "train", root=tmp_path)


@pytest.mark.parametrize("kept", [-1, 10, 0, None])
def test_a_file_that_is_cut_short_or_missing(tmp_path: Path, unchecked: None, kept: int | None) -> None:
    path = write_cifar10(tmp_path) / "test_batch"
    assert ROWS["cifar10"].available(tmp_path)
    if kept is None:
        path.unlink()
        assert not ROWS["cifar10"].available(tmp_path)
    else:
        path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=r"'cifar10' below|not on this machine"):
        load("cifar10", "test", root=tmp_path)


def test_a_damaged_picture_is_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIT_BENCH_MAX_UNREADABLE", "30%")
    for kind in ("a", "b"):
        for number in range(10):
            path = tmp_path / "eurosat" / "2750" / kind / f"{kind}_{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), 20 * number).save(path)
    (tmp_path / "eurosat" / "2750" / "a" / "a_7.png").write_bytes(b"no picture")
    with pytest.warns(UserWarning, match=r"a_7\.png"):
        parts = both("eurosat:8px", tmp_path)
    assert sum(map(len, parts)) == 19
    assert any("1 unreadable left out" in part.source for part in parts)


# -- reaL labels: read from JSON, matched to ImageNet's images by number, and scored as published ----------------------


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


def test_another_copy_of_imagenet_is_noticed(imagenet: Path) -> None:
    """By whatever finished cells keep of their images; nothing is asked where there is none."""
    assert identity.digest("imagenet", root=None) is identity.digest("imagenet-21k", root=imagenet) is None
    before = identity.digest("imagenet", root=imagenet)
    added = imagenet / "imagenet" / "train" / "n01" / "n01_99.PNG"
    added.write_bytes(writers.png(255 - pixels_of_number(imagenet, 2)))
    after = identity.digest("imagenet", root=imagenet)
    assert before is not None and after is not None
    assert identity.difference(before, after) == "1 image added"
    added.unlink()
    assert identity.digest("imagenet", root=imagenet) == before


def pixels_of_number(root: Path, number: int) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(next(root.rglob(f"ILSVRC2012_val_{number:08d}.PNG"))))


def test_labels_follow_their_images(imagenet: Path) -> None:
    (imagenet / "imagenet" / "real.json").write_text(json.dumps(REAL))
    for _ in range(2):  # decoded, then from the cache
        test = load("folder:imagenet", "test", root=imagenet)
        for image_HWC, classes in zip(test.images_NHWC, test.multi_labels, strict=True):
            number = next(n for n in (2, 4, 6, 8) if (pixels_of_number(imagenet, n) == image_HWC[..., 0]).all())
            assert list(classes) == sorted(REAL[number - 1])
    assert load("folder:imagenet", "train", root=imagenet).multi_labels is None
    assert test.take(np.array([2, 0])).multi_labels == (test.multi_labels[2], test.multi_labels[0])


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
    right_R = real_right(guesses_N, tuple(tuple(np.flatnonzero(row).tolist()) for row in hot_NK))
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
    labels = read_real(Path(str(files("timm.data") / "_info" / "imagenet_real_labels.json")), num_classes=1_000)
    assert labels == tuple(tuple(sorted(set(theirs.real_labels[name]))) for name in names)
    guesses_N = np.random.default_rng(0).integers(0, 1_000, len(names))
    guesses_N[::2] = [row[0] if row else 0 for row in labels[::2]]
    theirs.add_result(torch.nn.functional.one_hot(torch.from_numpy(guesses_N[:5_000]), 1_000).float())
    assert float(real_right(guesses_N[:5_000], labels[:5_000]).mean()) == pytest.approx(theirs.get_accuracy(1) / 100)


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
