"""Sets that torchvision's own classes read: laid out in miniature as their authors pack them, and read back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.core.errors import UserError
from bench.data.load import load
from tests.data.writers import picture, shades

RNG = np.random.default_rng(0)


def flowers102(root: Path) -> None:
    """102 flowers: image 1 is of class 0 …; numbers of the splits as in setid.mat."""
    from scipy.io import savemat

    folder = root / "flowers-102"
    labels = np.arange(1, 103)
    for number in range(1, 103):
        picture(folder / "jpg" / f"image_{number:05d}.jpg", number * 2)
    savemat(folder / "imagelabels.mat", {"labels": labels})
    ids = {"trnid": [3, 1], "valid": [5, 7], "tstid": np.setdiff1d(labels, [1, 3, 5, 7])}
    savemat(folder / "setid.mat", ids)


def test_flowers_by_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision checks the published checksums of the lists, which a miniature cannot have."""
    from torchvision.datasets import Flowers102

    flowers102(tmp_path)
    with pytest.raises(UserError, match="not found or corrupted"):
        load("flowers102", "train", root=tmp_path)
    monkeypatch.setattr(Flowers102, "_check_integrity", lambda self: True)
    train, test = load("flowers102:16px", "train", root=tmp_path), load("flowers102:16px", "test", root=tmp_path)
    assert train.labels_N.tolist() == [0, 2, 4, 6] and len(test) == 98  # train and val together
    assert train.images_NHWC.shape == (4, 16, 16, 3) and len(train.class_names) == 102
    assert train.class_names[0] == "pink primrose"
    assert np.abs(train.images_NHWC.mean(axis=(1, 2, 3)) - [2, 6, 10, 14]).max() < 2


def test_textures_by_torchvision(tmp_path: Path) -> None:
    labels = tmp_path / "dtd" / "dtd" / "labels"
    labels.mkdir(parents=True)
    for place, part in enumerate(("train", "val", "test")):
        names = [f"{name}/{name}_{part}.jpg" for name in ("banded", "zigzagged")]
        (labels / f"{part}1.txt").write_text("".join(f"{name}\n" for name in names))
        for kind, name in enumerate(names):
            picture(tmp_path / "dtd" / "dtd" / "images" / name, 100 * kind + 10 * place + 20)
    train, test = (load("dtd:16px:grey", split, root=tmp_path) for split in ("train", "test"))
    assert train.images_NHWC.shape == (4, 16, 16, 1) and train.class_names == ("banded", "zigzagged")
    assert list(zip(shades(train), train.labels_N, strict=True)) == [(20, 0), (120, 1), (30, 0), (130, 1)]
    assert list(zip(shades(test), test.labels_N, strict=True)) == [(40, 0), (140, 1)]


def test_pets_by_torchvision(tmp_path: Path) -> None:
    folder = tmp_path / "oxford-iiit-pet"
    (folder / "annotations").mkdir(parents=True)
    for part, row in (("trainval", 1), ("test", 2)):
        rows = [("Abyssinian", 1, 1), ("great_pyrenees", 2, 2)]
        (folder / "annotations" / f"{part}.txt").write_text(
            "".join(f"{name}_{row} {label} {kind} 1\n" for name, label, kind in rows)
        )
        for name, label, _ in rows:
            picture(folder / "images" / f"{name}_{row}.jpg", 100 * label + 10 * row)
    test = load("pets:16px", "test", root=tmp_path)
    assert test.class_names == ("Abyssinian", "Great Pyrenees")
    assert list(zip(shades(test), test.labels_N, strict=True)) == [(120, 0), (220, 1)]


def test_stl10_by_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import STL10

    monkeypatch.setattr(STL10, "_check_integrity", lambda self: True)
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    pixels = {split: RNG.integers(0, 256, (3, 3, 96, 96), dtype=np.uint8) for split in ("train", "test")}
    for split, images in pixels.items():
        images.transpose(0, 1, 3, 2).tofile(folder / f"{split}_X.bin")  # the files hold columns
        np.array([3, 1, 2], dtype=np.uint8).tofile(folder / f"{split}_y.bin")
    (folder / "class_names.txt").write_text("airplane\nbird\ncar\n")
    found = load("stl10", "test", root=tmp_path)
    np.testing.assert_array_equal(found.images_NHWC, pixels["test"].transpose(0, 2, 3, 1))
    assert found.labels_N.tolist() == [2, 0, 1] and found.class_names == ("airplane", "bird", "car")


def test_food_by_torchvision(tmp_path: Path) -> None:
    folder = tmp_path / "food-101"
    (folder / "meta").mkdir(parents=True)
    for place, split in enumerate(("train", "test")):
        listed = {name: [f"{name}/{10 * number + place}" for number in (3, 1)] for name in ("waffles", "apple_pie")}
        (folder / "meta" / f"{split}.json").write_text(json.dumps(listed))
        for kind, name in enumerate(listed):
            for number, image in enumerate(listed[name]):
                picture(folder / "images" / f"{image}.jpg", 100 * kind + 40 * number + 10 * place + 20)
    train, test = (load("food101:16px", split, root=tmp_path) for split in ("train", "test"))
    assert train.class_names == test.class_names == ("apple_pie", "waffles")
    assert list(zip(shades(train), train.labels_N, strict=True)) == [(160, 0), (120, 0), (60, 1), (20, 1)]
    assert list(zip(shades(test), test.labels_N, strict=True)) == [(170, 0), (130, 0), (70, 1), (30, 1)]


def test_aircraft_by_torchvision(tmp_path: Path) -> None:
    """Class names hold spaces and slashes; training is the published union of training and validation."""
    folder = tmp_path / "fgvc-aircraft-2013b" / "data"
    folder.mkdir(parents=True)
    (folder / "variants.txt").write_text("737-300\nF/A-18\nModel B200\n")
    rows = {"trainval": (("0000002", "Model B200"), ("0000001", "737-300")), "test": (("0000003", "F/A-18"),)}
    for part, images in rows.items():
        (folder / f"images_variant_{part}.txt").write_text("".join(f"{image} {name}\n" for image, name in images))
        for image, _ in images:
            picture(folder / "images" / f"{image}.jpg", 50 * int(image))
    train, test = (load("aircraft:16px", split, root=tmp_path) for split in ("train", "test"))
    assert train.class_names == test.class_names == ("737-300", "F/A-18", "Model B200")
    assert list(zip(shades(train), train.labels_N, strict=True)) == [(50, 0), (100, 2)]
    assert list(zip(shades(test), test.labels_N, strict=True)) == [(150, 1)]


def test_cars_by_torchvision(tmp_path: Path) -> None:
    """Annotations are MATLAB's structures, as published: classes count from 1, the test part's lie beside the kit."""
    from scipy.io import savemat

    folder = tmp_path / "stanford_cars"
    (folder / "devkit").mkdir(parents=True)
    names = np.array(["AM General Hummer SUV 2000", "Acura RL Sedan 2012", "smart fortwo"], dtype=object)
    savemat(folder / "devkit" / "cars_meta.mat", {"class_names": names})
    for place, (part, path) in enumerate(
        {"train": "devkit/cars_train_annos.mat", "test": "cars_test_annos_withlabels.mat"}.items()
    ):
        rows = [(1, 2, 3, 4, label, f"0000{number}.jpg") for number, label in ((1, 3), (2, 1))]
        fields = [(name, object) for name in ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname")]
        savemat(folder / path, {"annotations": np.array(rows, dtype=fields)})
        for *_, label, image in rows:
            picture(folder / f"cars_{part}" / image, 60 * label + 10 * place)
    train, test = (load("cars:16px", split, root=tmp_path) for split in ("train", "test"))
    assert train.class_names == tuple(names) and train.num_classes == 3
    assert list(zip(shades(train), train.labels_N, strict=True)) == [(180, 2), (60, 0)]
    assert list(zip(shades(test), test.labels_N, strict=True)) == [(190, 2), (70, 0)]


def test_sun397_by_torchvision(tmp_path: Path) -> None:
    folder = tmp_path / "SUN397"
    for shade, name in ((50, "a/abbey"), (150, "b/bar/indoor")):
        for number in range(10):
            picture(folder / name / f"sun_{shade}{number}.jpg", shade)
    (folder / "ClassName.txt").write_text("/a/abbey\n/b/bar/indoor\n")
    train, test = (load("sun397:16px", split, root=tmp_path) for split in ("train", "test"))
    assert train.class_names == ("abbey", "bar/indoor")
    assert shades(train) == [50] * 8 + [150] * 8 and train.labels_N.tolist() == [0] * 8 + [1] * 8
    assert shades(test) == [50] * 2 + [150] * 2


def test_patch_camelyon_by_torchvision(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    (tmp_path / "pcam").mkdir()
    pixels = {part: RNG.integers(0, 256, (2, 96, 96, 3), dtype=np.uint8) for part in ("train", "valid", "test")}
    for part, images in pixels.items():
        for what, array in (("x", images), ("y", np.array([1, 0], np.uint8).reshape(2, 1, 1, 1))):
            with h5py.File(tmp_path / "pcam" / f"camelyonpatch_level_2_split_{part}_{what}.h5", "w") as file:
                file[what] = array
    train = load("patch-camelyon", "train", root=tmp_path)
    np.testing.assert_array_equal(train.images_NHWC, np.concatenate([pixels["train"], pixels["valid"]]))
    assert train.labels_N.tolist() == [1, 0, 1, 0]
