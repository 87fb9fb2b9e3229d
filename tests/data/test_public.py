"""The table of public sets: every row laid out in miniature as its authors pack it, and read back."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from bench.core import registry
from bench.core.errors import UserError
from bench.data import readers
from bench.data.formats import tfrecord
from bench.data.image_set import ImageSet
from bench.data.load import load
from bench.data.public import CIFAR100, EMNIST, TABLE
from bench.data.rows import ImageFiles, PublicSet, Tiles
from tests.data import writers
from tests.data.writers import SPLITS, picture, shades

RNG = np.random.default_rng(0)
ROWS = 20
PUBLISHED = {kind: (rows, label_bytes) for kind, (_, _, rows, label_bytes) in readers.CIFAR.items()}
COLOUR = {
    split: writers.make(ROWS, classes=10, side=32, channels=3, seed=seed)["train"] for seed, split in enumerate(SPLITS)
}


def both(name: str, root: Path) -> tuple[ImageSet, ImageSet]:
    return load(name, "train", root=root), load(name, "test", root=root)


def check(images: ImageSet, *expected: tuple[int, int]) -> None:
    """The shade and the label of every image, in order."""
    assert list(zip(shades(images), images.labels_N.tolist(), strict=True)) == list(expected)


def test_names_are_found_once_and_files_say_the_same() -> None:
    names = [row.NAME for row in TABLE]
    assert len(set(names)) == len(names) and set(names) < set(registry.names("data set"))
    for row in TABLE:
        assert registry.load("data set", row.NAME) is row
    later = {row.NAME: row.REVISION for row in TABLE if row.REVISION > 1}
    assert later == {"imagenet": 2, "imagenet-21k": 2}  # streamed since


def test_the_nineteen_tasks_of_vtab_are_here() -> None:
    """The names of task_adaptation's registry, in the spelling of this project."""
    natural = {"caltech101", "cifar100", "dtd", "flowers102", "pets", "sun397", "svhn"}
    specialised = {"patch-camelyon", "eurosat", "resisc45", "retinopathy"}
    structured = {"clevr-count", "clevr-distance", "dmlab", "dsprites-location", "dsprites-orientation"}
    structured |= {"kitti-distance", "smallnorb-azimuth", "smallnorb-elevation"}
    assert len(natural | specialised | structured) == 19
    assert natural | specialised | structured <= set(registry.names("data set"))


@pytest.mark.parametrize("row", [row for row in TABLE if not isinstance(row, Tiles)], ids=lambda row: row.NAME)
def test_absence_and_options(row: PublicSet, tmp_path: Path) -> None:
    for root in (None, tmp_path):
        assert not row.available(root)
        with pytest.raises(UserError) as caught:
            load(row.NAME, "train", root=root)
        assert row.HOW_TO_GET in str(caught.value)
    if isinstance(row, ImageFiles):
        assert f"default {row.SIDE}px" in str(row.OPTIONS)
        for option in ("big", "4px", "5000px"):
            with pytest.raises(UserError, match=row.NAME):
                load(f"{row.NAME}:{option}", "train", root=tmp_path)


# Listed by torchvision's own classes.


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
    from torchvision.datasets import STL10

    monkeypatch.setattr(STL10, "_check_integrity", lambda self: True)
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    pixels = {split: RNG.integers(0, 256, (3, 3, 96, 96), dtype=np.uint8) for split in SPLITS}
    for split, images in pixels.items():
        images.transpose(0, 1, 3, 2).tofile(folder / f"{split}_X.bin")  # the files hold columns
        np.array([3, 1, 2], dtype=np.uint8).tofile(folder / f"{split}_y.bin")
    (folder / "class_names.txt").write_text("airplane\nbird\ncar\n")
    found = load("stl10", "test", root=tmp_path)
    np.testing.assert_array_equal(found.images_NHWC, pixels["test"].transpose(0, 2, 3, 1))
    assert found.labels_N.tolist() == [2, 0, 1] and found.class_names == ("airplane", "bird", "car")


def test_food(tmp_path: Path) -> None:
    folder = tmp_path / "food-101"
    (folder / "meta").mkdir(parents=True)
    for place, split in enumerate(SPLITS):
        listed = {name: [f"{name}/{10 * number + place}" for number in (3, 1)] for name in ("waffles", "apple_pie")}
        (folder / "meta" / f"{split}.json").write_text(json.dumps(listed))
        for kind, name in enumerate(listed):
            for number, image in enumerate(listed[name]):
                picture(folder / "images" / f"{image}.jpg", 100 * kind + 40 * number + 10 * place + 20)
    train, test = both("food101:16px", tmp_path)
    assert train.class_names == test.class_names == ("apple_pie", "waffles")
    check(train, (160, 0), (120, 0), (60, 1), (20, 1))
    check(test, (170, 0), (130, 0), (70, 1), (30, 1))


def test_aircraft(tmp_path: Path) -> None:
    """Class names hold spaces and slashes; training is the published union of training and validation."""
    folder = tmp_path / "fgvc-aircraft-2013b" / "data"
    folder.mkdir(parents=True)
    (folder / "variants.txt").write_text("737-300\nF/A-18\nModel B200\n")
    rows = {"trainval": (("0000002", "Model B200"), ("0000001", "737-300")), "test": (("0000003", "F/A-18"),)}
    for part, images in rows.items():
        (folder / f"images_variant_{part}.txt").write_text("".join(f"{image} {name}\n" for image, name in images))
        for image, _ in images:
            picture(folder / "images" / f"{image}.jpg", 50 * int(image))
    train, test = both("aircraft:16px", tmp_path)
    assert train.class_names == test.class_names == ("737-300", "F/A-18", "Model B200")
    check(train, (50, 0), (100, 2))
    check(test, (150, 1))


def test_cars(tmp_path: Path) -> None:
    """Annotations are MATLAB's structures, as published: classes count from 1, the test part's lie beside the kit."""
    folder = tmp_path / "stanford_cars"
    (folder / "devkit").mkdir(parents=True)
    names = np.array(["AM General Hummer SUV 2000", "Acura RL Sedan 2012", "smart fortwo"], dtype=object)
    savemat(folder / "devkit" / "cars_meta.mat", {"class_names": names})
    lists = {"train": "devkit/cars_train_annos.mat", "test": "cars_test_annos_withlabels.mat"}
    for place, (part, path) in enumerate(lists.items()):
        rows = [(1, 2, 3, 4, label, f"0000{number}.jpg") for number, label in ((1, 3), (2, 1))]
        fields = [(name, object) for name in ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname")]
        savemat(folder / path, {"annotations": np.array(rows, dtype=fields)})
        for *_, label, image in rows:
            picture(folder / f"cars_{part}" / image, 60 * label + 10 * place)
    train, test = both("cars:16px", tmp_path)
    assert train.class_names == tuple(names)
    check(train, (180, 2), (60, 0))
    check(test, (190, 2), (70, 0))


def test_patch_camelyon(tmp_path: Path) -> None:
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


# Without a published split.


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


def test_retinopathy(tmp_path: Path) -> None:
    folder = tmp_path / "retinopathy"
    for place, name in enumerate(("train/10_left", "train/10_right", "test/1_left", "test/1_right")):
        picture(folder / f"{name}.jpeg", 40 * place + 40)
    (folder / "trainLabels.csv").write_text("image,level\n10_left,0\n10_right,4\n")
    (folder / "retinopathy_solution.csv").write_text("image,level,Usage\n1_left,2,Private\n1_right,1,Public\n")
    train, test = both("retinopathy:16px", tmp_path)
    check(train, (40, 0), (80, 4), (160, 1))
    check(test, (120, 2))
    for row, match in (("../../secret,0", "not the name of an image"), ("10_left,5", "has level 5")):
        (folder / "trainLabels.csv").write_text(f"image,level\n{row}\n")
        with pytest.raises(UserError, match=match):
            load("retinopathy:16px", "train", root=tmp_path)


# Tasks of VTAB: labels computed from what a picture shows.


def vtab_bins(value: float, bounds: Sequence[float]) -> int:
    """As task_adaptation writes it: reduce_max(where((thrs - dist) < 0))."""
    return int(np.max(np.where((np.array(bounds) - value) < 0)))


@pytest.mark.parametrize("value", [0.1, 7.9, 8.0, 8.1, 8.5, 8.6, 9.2, 9.9, 10.0, 10.1, 50.0])
def test_bins_are_those_of_vtab(value: float) -> None:
    bounds = [0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0]
    assert readers.CLEVR["distance"][0]([{"pixel_coords": [0, 0, value]}]) == vtab_bins(value, bounds)
    things = [{"type": "Car", "location": [0, 0, value]}, {"type": "Pedestrian", "location": [0, 0, 0.01]}]
    assert readers.kitti_label(things) == vtab_bins(value, [-100.0, 8.0, 20.0, 999.0])
    assert readers.kitti_label(things[1:]) == vtab_bins(1000.0, [-100.0, 8.0, 20.0, 999.0]) == 3


def test_clevr(tmp_path: Path) -> None:
    def scene(name: str, depths: Sequence[float]) -> dict:
        return {"image_filename": name, "objects": [{"pixel_coords": [1, 2, depth]} for depth in depths]}

    folder = tmp_path / "clevr" / "CLEVR_v1.0"
    (folder / "scenes").mkdir(parents=True)
    scenes = {
        "train": [scene("b.png", [12.0, 8.2, 11.0]), scene("a.png", [9.7, 9.6, 12, 13])],
        "val": [scene("c.png", [7.5] * 10)],
    }
    for part, rows in scenes.items():
        (folder / "scenes" / f"CLEVR_{part}_scenes.json").write_text(json.dumps({"scenes": rows}))
        for row in rows:
            picture(folder / "images" / part / row["image_filename"], 50 * ord(row["image_filename"][0]) % 251)
    count, distance = (load(f"clevr-{what}:16px", "train", root=tmp_path) for what in ("count", "distance"))
    assert count.labels_N.tolist() == [1, 0] and distance.labels_N.tolist() == [4, 1]
    np.testing.assert_array_equal(count.images_NHWC, distance.images_NHWC)
    assert load("clevr-count:16px", "test", root=tmp_path).labels_N.tolist() == [7]
    assert load("clevr-distance:16px", "test", root=tmp_path).labels_N.tolist() == [0]
    (folder / "scenes" / "CLEVR_val_scenes.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        load("clevr-count", "test", root=tmp_path)


def test_kitti(tmp_path: Path) -> None:
    raw = tmp_path / "Kitti" / "raw"
    for folder in ("training/label_2", "mapping"):
        (raw / folder).mkdir(parents=True)
    drives = [f"2011_09_26_drive_{number:04d}_sync" for number in range(40)]
    (raw / "mapping" / "train_mapping.txt").write_text("".join(f"2011_09_26 {drive} 0000000001\n" for drive in drives))
    order = RNG.permutation(40)
    (raw / "mapping" / "train_rand.txt").write_text(",".join(str(number + 1) for number in order))
    for frame in range(40):
        picture(raw / "training" / "image_2" / f"{frame:06d}.png", 6 * frame, size=(60, 20))
        line = f"Van 0.00 0 0.0 0 0 1 1 1 1 1 0 0 {frame:.2f} 0.0\n"
        (raw / "training" / "label_2" / f"{frame:06d}.txt").write_text(line)
    parts = dict(zip(SPLITS, both("kitti-distance:16px", tmp_path), strict=True))
    assert 1 <= len(parts["test"]) <= 10 and sum(map(len, parts.values())) == 40
    for split, part in parts.items():
        frames = np.round(part.images_NHWC.mean(axis=(1, 2, 3)) / 6).astype(int)
        assert part.labels_N.tolist() == [vtab_bins(frame, [-100.0, 8.0, 20.0, 999.0]) for frame in frames]
        assert {readers.kitti_for_testing(drives[order[frame]]) for frame in frames} == {split == "test"}


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def message(*fields: tuple[int, bytes]) -> bytes:
    return b"".join(varint(number << 3 | 2) + varint(len(value)) + value for number, value in fields)


def tf_example(image: bytes, label: int) -> bytes:
    entries = [("image", message((1, message((1, image))))), ("label", message((3, message((1, varint(label))))))]
    return message((1, b"".join(message((1, message((1, key.encode()), (2, value)))) for key, value in entries)))


def test_dmlab(tmp_path: Path) -> None:
    for part, first in (("train", 0), ("validation", 2), ("test", 4)):
        path = tmp_path / "dmlab" / f"dmlab-{part}.tfrecord"
        path.parent.mkdir(exist_ok=True)
        messages = []
        for label in (first, first + 1):
            data = io.BytesIO()
            Image.new("RGB", (24, 18), (40 * label,) * 3).save(data, "PNG")
            messages.append(tf_example(data.getvalue(), label))
        path.write_bytes(b"".join(struct.pack("<Q4x", len(m)) + m + b"\0\0\0\0" for m in messages))
    train, test = both("dmlab:16px", tmp_path)
    check(train, (0, 0), (40, 1), (80, 2), (120, 3))
    check(test, (160, 4), (200, 5))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match="cut short"):
        load("dmlab:16px", "test", root=tmp_path)


@pytest.mark.parametrize("data", [b"\xff" * 12, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05abc", b"\x0b\x01"])
def test_damaged_examples_end_in_one_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="protocol buffer"):
        tfrecord.example(data)


def test_dsprites(tmp_path: Path) -> None:
    grid = np.stack(np.meshgrid(np.arange(40), np.arange(32), indexing="ij"), axis=-1).reshape(-1, 2)
    classes = np.zeros((len(grid), 6), dtype=np.int64)
    classes[:, 3], classes[:, 4] = grid.T
    images = (RNG.random((len(grid), 64, 64)) < 0.1).astype(np.uint8)
    path = tmp_path / "dsprites" / "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
    path.parent.mkdir()
    np.savez_compressed(path, imgs=images, latents_classes=classes, metadata=np.array({"a": 1}, dtype=object))
    for name, column, values in (("dsprites-location", 4, 32), ("dsprites-orientation", 3, 40)):
        train, test = both(name, tmp_path)
        assert len(test) == len(images) // 10 and len(train) == len(images) - len(images) // 10
        place = {image.tobytes(): row for row, image in enumerate(images * np.uint8(255))}
        seen = []
        for part in (train, test):
            rows = [place[image.tobytes()] for image in part.images_NHWC]
            bins = np.floor(classes[rows, column] / (values / 16)).astype(int)  # VTAB's
            assert part.labels_N.tolist() == bins.tolist() and set(part.labels_N) == set(range(16))
            seen += rows
        assert sorted(seen) == list(range(len(images)))
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["imgs.npy"] = members["imgs.npy"][:-5000]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(UserError, match="cut short"):
        load("dsprites-location", "test", root=tmp_path)


def norb_matrix(array: np.ndarray) -> bytes:
    magic = {"uint8": 0x1E3D4C55, "int32": 0x1E3D4C54}[str(array.dtype)]
    sizes = (*array.shape, 1, 1)[: max(3, array.ndim)]
    return struct.pack(f"<ii{len(sizes)}i", magic, array.ndim, *sizes) + array.tobytes()


def test_smallnorb(tmp_path: Path) -> None:
    folder = tmp_path / "smallnorb"
    folder.mkdir()
    facts = np.stack([np.arange(8), np.arange(8), 2 * np.arange(8)[::-1], np.zeros(8)], axis=1).astype(np.int32)
    pixels = RNG.integers(0, 256, (8, 2, 96, 96), dtype=np.uint8)
    for stem in readers.NORB.values():
        (folder / f"{stem}-dat.mat.gz").write_bytes(gzip.compress(norb_matrix(pixels), 1))
        (folder / f"{stem}-info.mat").write_bytes(norb_matrix(facts))
    train, test = both("smallnorb-azimuth", tmp_path)
    np.testing.assert_array_equal(train.images_NHWC[..., 0], pixels[:, 0])
    assert train.labels_N.tolist() == [7, 6, 5, 4, 3, 2, 1, 0] and train.class_names[1] == "20°"
    np.testing.assert_array_equal(test.images_NHWC[..., 0], pixels[4:, 0])  # the second half
    elevation = load("smallnorb-elevation", "test", root=tmp_path)
    assert elevation.labels_N.tolist() == [4, 5, 6, 7] and len(elevation.class_names) == 9
    (folder / f"{readers.NORB['test']}-info.mat").write_bytes(norb_matrix(facts)[:-4])
    with pytest.raises(UserError, match="promises"):
        load("smallnorb-azimuth", "test", root=tmp_path)


# Arrays in a few files.


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision checks checksums, and the reader of the binary version counts rows: neither fits a miniature."""
    from torchvision.datasets import SVHN, cifar

    monkeypatch.setattr(cifar, "check_integrity", lambda *_: True)
    monkeypatch.setattr(SVHN, "_check_integrity", lambda self: True)
    for kind, (folders, files, _, label_bytes) in readers.CIFAR.items():
        monkeypatch.setitem(readers.CIFAR, kind, (folders, files, dict.fromkeys(SPLITS, ROWS), label_bytes))


def planes(images_NHWC: np.ndarray) -> np.ndarray:
    return images_NHWC.transpose(0, 3, 1, 2).reshape(len(images_NHWC), -1)


def write_cifar10(root: Path, version: str, protocol: int = 2) -> Path:
    folder = root / {"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"}[version]
    folder.mkdir(parents=True)
    for split, (images, labels) in COLOUR.items():
        for number in range(1, 6) if split == "train" else (0,):
            name = f"data_batch_{number}" if number else "test_batch"
            rolled = np.roll(labels, number)
            if version == "binary":
                rows = np.concatenate([rolled[:, None].astype(np.uint8), planes(images)], axis=1)
                (folder / f"{name}.bin").write_bytes(rows.tobytes())
            else:
                batch = {"data": planes(images), "labels": rolled.tolist()}
                (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    return folder


def write_cifar100(root: Path, version: str = "binary") -> Path:
    folder = root / {"binary": "cifar-100-binary", "python": "cifar-100-python"}[version]
    folder.mkdir(parents=True)
    for split, (images, labels) in COLOUR.items():
        fine = labels.astype(np.uint8) * 7
        if version == "binary":
            rows = np.concatenate([fine[:, None] // 5, fine[:, None], planes(images)], axis=1)
            (folder / f"{split}.bin").write_bytes(rows.tobytes())
        else:
            batch = {"data": planes(images), "fine_labels": fine.tolist()}
            (folder / split).write_bytes(pickle.dumps(batch, protocol=2))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": list(range(100))}))
    return folder


def test_the_published_sizes_of_cifar() -> None:
    """30,730,000 bytes per file of CIFAR-10; 153,700,000 and 30,740,000 of CIFAR-100, as the archives unpack."""
    sizes = {kind: [rows[split] * (header + 3072) for split in SPLITS] for kind, (rows, header) in PUBLISHED.items()}
    assert sizes == {"CIFAR10": [30_730_000] * 2, "CIFAR100": [153_700_000, 30_740_000]}


@pytest.mark.parametrize("version", ["binary", "python"])
def test_cifar10(tmp_path: Path, version: str, unchecked: None) -> None:
    write_cifar10(tmp_path, version)
    train, test = both("cifar10", tmp_path)
    np.testing.assert_array_equal(train.images_NHWC, np.concatenate([COLOUR["train"][0]] * 5))
    np.testing.assert_array_equal(train.labels_N, np.concatenate([np.roll(COLOUR["train"][1], i) for i in range(1, 6)]))
    np.testing.assert_array_equal(test.images_NHWC, COLOUR["test"][0])
    assert version in train.source.lower() and train.class_names[0] == "airplane"


@pytest.mark.parametrize("place", ["", "cifar10", "cifar10/cifar-10-batches-py"])
def test_the_python_version_as_python_2_wrote_it(tmp_path: Path, unchecked: None, place: str) -> None:
    """Opcodes of the published files: strings without an encoding, numpy under its old name."""
    images, labels = COLOUR["test"]
    data = planes(images)
    program = b"".join(
        [
            b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R",
            b"(K\x01",
            b"M" + struct.pack("<H", ROWS),
            b"M" + struct.pack("<H", 3072),
            b"\x86",
            b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89",
            b"T" + struct.pack("<I", data.size) + data.tobytes(),
            b"tb",
            b"U\x06labels](",
            b"".join(b"K" + bytes([label]) for label in labels),
            b"eu.",
        ]
    )
    folder = write_cifar10(tmp_path, "python")
    (folder / "test_batch").write_bytes(program)
    if place:
        (tmp_path / place).parent.mkdir(exist_ok=True)
        folder.rename(tmp_path / place)
    np.testing.assert_array_equal(load("cifar10", "test", root=tmp_path).images_NHWC, images)


@pytest.mark.parametrize("version", ["binary", "python"])
def test_cifar100_fine_and_coarse(tmp_path: Path, version: str, unchecked: None) -> None:
    write_cifar100(tmp_path, version)
    images, labels = COLOUR["train"]
    fine, coarse = load("cifar100", "train", root=tmp_path), load("cifar100:coarse", "train", root=tmp_path)
    np.testing.assert_array_equal(fine.labels_N, labels * 7)
    np.testing.assert_array_equal(coarse.images_NHWC, images)
    assert (fine.num_classes, coarse.num_classes, coarse.name) == (100, 20, "cifar100:coarse")
    for one, many in zip(fine.labels_N, coarse.labels_N, strict=True):
        assert fine.class_names[one] in CIFAR100[coarse.class_names[many]].split()
    with pytest.raises(UserError, match="coarse"):
        load("cifar100:corse", "train", root=tmp_path)


def test_superclasses_are_published_as_five_classes_each() -> None:
    assert all(len(names.split()) == 5 for names in CIFAR100.values()) and len(CIFAR100) == 20


class Evil:
    def __reduce__(self) -> tuple:
        return os.mkdir, ("was-run",)


def test_a_pickle_that_is_not_the_published_one_is_not_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither code nor a bomb: a reader's table of two thousand million notes; one note encoded again and again."""
    monkeypatch.chdir(tmp_path)
    folder = write_cifar10(tmp_path, "python")
    text = b"X\x00\x00\x10\x00" + b"a" * (1 << 20)
    bomb = b"\x80\x02](" + b"c_codecs\nencode\nq\x01" + text + b"q\x02" + b"\x85R" + b"h\x01h\x02\x85R" * 10_000 + b"e."
    for program in (pickle.dumps({"data": Evil()}), bomb, b"K\x01r\xff\xff\xff\x7f."):
        for path in (folder / "data_batch_1", folder / "batches.meta"):
            path.write_bytes(program)
        with pytest.raises(UserError, match="corrupted"):
            load("cifar10", "train", root=tmp_path)
    assert not Path("was-run").exists()


def write_svhn(root: Path) -> Path:
    (root / "svhn").mkdir(parents=True, exist_ok=True)
    for split, (images, labels) in COLOUR.items():
        stored = {"X": images.transpose(1, 2, 3, 0), "y": np.where(labels == 0, 10, labels)[:, None].astype(float)}
        savemat(root / "svhn" / f"{split}_32x32.mat", stored, do_compression=True)
    return root / "svhn"


def test_svhn_must_have_the_published_checksum(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    with pytest.raises(UserError, match="corrupted"):
        load("svhn", "train", root=tmp_path)


def test_svhn(tmp_path: Path, unchecked: None) -> None:
    write_svhn(tmp_path)
    found = load("svhn", "train", root=tmp_path)
    np.testing.assert_array_equal(found.images_NHWC, COLOUR["train"][0])
    np.testing.assert_array_equal(found.labels_N, COLOUR["train"][1])


def write_kmnist(root: Path) -> Path:
    writers.as_idx(root / "kmnist", writers.make(30, classes=10, side=28))
    return root / "kmnist"


def test_kmnist(tmp_path: Path) -> None:
    write_kmnist(tmp_path)
    images, labels = writers.make(30, classes=10, side=28)["test"]
    found = load("kmnist", "test", root=tmp_path)
    np.testing.assert_array_equal(found.images_NHWC, images)
    np.testing.assert_array_equal(found.labels_N, labels)


def test_emnist_splits_are_upright_and_count_from_zero(tmp_path: Path) -> None:
    published = {"balanced": 47, "letters": 26, "digits": 10, "mnist": 10, "bymerge": 47, "byclass": 62}
    assert {option: len(names) for option, names in EMNIST.items()} == published
    for option, count in published.items():
        parts = writers.make(count, classes=count, side=28, seed=count)
        stored = {split: (x.swapaxes(1, 2), y + (option == "letters")) for split, (x, y) in parts.items()}
        writers.as_idx(tmp_path / "emnist", stored, prefix=f"emnist-{option}-", test="test")
        found = load(f"emnist:{option}", "train", root=tmp_path)
        np.testing.assert_array_equal(found.images_NHWC, parts["train"][0])
        np.testing.assert_array_equal(found.labels_N, parts["train"][1])
    plain, named = load("emnist", "test", root=tmp_path), load("emnist:balanced", "test", root=tmp_path)
    assert plain.content_hash == named.content_hash and plain.name == named.name == "emnist"
    with pytest.raises(UserError, match="'letters'"):
        load("emnist:leters", "train", root=tmp_path)


WRITERS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "cifar10": (lambda root: write_cifar10(root, "binary"), "test_batch.bin"),
    "cifar100": (write_cifar100, "test.bin"),
    "svhn": (write_svhn, "test_32x32.mat"),
    "kmnist": (write_kmnist, "t10k-images*"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_is_cut_short_or_missing(tmp_path: Path, name: str, unchecked: None) -> None:
    write, pattern = WRITERS[name]
    path = next(write(tmp_path).glob(pattern))
    row = registry.load("data set", name)
    assert row.available(tmp_path)
    whole = path.read_bytes()
    for kept in (len(whole) - 1, len(whole) // 2, 10, 0):
        path.write_bytes(whole[:kept])
        with pytest.raises(UserError, match=rf"{path.name}|'{name}' below"):
            load(name, "test", root=tmp_path)
    path.unlink()
    assert not row.available(tmp_path)
    with pytest.raises(UserError, match="not on this machine"):
        load(name, "test", root=tmp_path)


def test_labels_out_of_range(tmp_path: Path, unchecked: None) -> None:
    folder = write_cifar10(tmp_path, "binary")
    rows = np.concatenate([np.full((ROWS, 1), 10, np.uint8), planes(COLOUR["test"][0])], axis=1)
    (folder / "test_batch.bin").write_bytes(rows.tobytes())
    with pytest.raises(UserError, match="label 10"):
        load("cifar10", "test", root=tmp_path)
