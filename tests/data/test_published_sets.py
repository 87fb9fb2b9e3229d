"""Sets that are published as files: every one is laid out in miniature as its authors pack it, and read back."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.core import registry
from bench.core.errors import UserError
from bench.data.formats import tfrecord
from bench.data.load import load
from bench.data.sets import clevr_count, clevr_distance, kitti_distance
from tests.data.writers import picture, shades

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "name, folder, train, test",
    [
        ("caltech101", "caltech101/101_ObjectCategories", 30, 10),
        ("eurosat", "eurosat/2750", 32, 8),
        ("resisc45", "resisc45/NWPU-RESISC45", 32, 8),
    ],
)
def test_sets_without_a_published_split(tmp_path: Path, name: str, folder: str, train: int, test: int) -> None:
    kinds = ("BACKGROUND_Google", "Faces", "ant")
    for kind, label in enumerate(kinds):
        for number in range(40):
            picture(tmp_path / folder / label / f"image_{number:04d}.jpg", 60 * kind + number)
    parts = {split: load(f"{name}:16px", split, root=tmp_path) for split in ("train", "test")}
    assert parts["train"].class_names == kinds
    assert np.bincount(parts["train"].labels_N).tolist() == [train] * 3
    assert np.bincount(parts["test"].labels_N).tolist() == [test] * 3
    means = [set(np.round(part.images_NHWC.mean(axis=(1, 2, 3))).tolist()) for part in parts.values()]
    assert not means[0] & means[1] and len(means[0] | means[1]) == 120, "every image is in one split"


def test_retinopathy(tmp_path: Path) -> None:
    folder = tmp_path / "retinopathy"
    rows = {"train/10_left": 0, "train/10_right": 4, "test/1_left": 2, "test/1_right": 1}
    for place, name in enumerate(rows):
        picture(folder / f"{name}.jpeg", 40 * place + 40)
    (folder / "trainLabels.csv").write_text("image,level\n10_left,0\n10_right,4\n")
    (folder / "retinopathy_solution.csv").write_text("image,level,Usage\n1_left,2,Private\n1_right,1,Public\n")
    train, test = (load("retinopathy:16px", split, root=tmp_path) for split in ("train", "test"))
    assert list(zip(shades(train), train.labels_N, strict=True)) == [(40, 0), (80, 4), (160, 1)]
    assert list(zip(shades(test), test.labels_N, strict=True)) == [(120, 2)]
    (folder / "trainLabels.csv").write_text("image,level\n../../secret,0\n")
    with pytest.raises(UserError, match="not the name of an image"):
        load("retinopathy:16px", "train", root=tmp_path)


def scene(name: str, depths: Sequence[float]) -> dict:
    return {"image_filename": name, "objects": [{"pixel_coords": [1, 2, depth]} for depth in depths]}


def test_clevr(tmp_path: Path) -> None:
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


def vtab_bins(value: float, bounds: Sequence[float]) -> int:
    """As task_adaptation writes it: reduce_max(where((thrs - dist) < 0))."""
    return int(np.max(np.where((np.array(bounds) - value) < 0)))


@pytest.mark.parametrize("value", [0.1, 7.9, 8.0, 8.1, 8.5, 8.6, 9.2, 9.9, 10.0, 10.1, 50.0])
def test_bins_are_those_of_vtab(value: float) -> None:
    bounds = [0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0]
    assert clevr_distance.label([{"pixel_coords": [0, 0, value]}]) == vtab_bins(value, bounds)
    things = [{"type": "Car", "location": [0, 0, value]}, {"type": "Pedestrian", "location": [0, 0, 0.01]}]
    assert kitti_distance.label(things) == vtab_bins(value, [-100.0, 8.0, 20.0, 999.0])
    assert kitti_distance.label(things[1:]) == vtab_bins(1000.0, [-100.0, 8.0, 20.0, 999.0]) == 3
    assert clevr_count.label([{}] * 3) == 0


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
    parts = {split: load("kitti-distance:16px", split, root=tmp_path) for split in ("train", "test")}
    assert 1 <= len(parts["test"]) <= 10 and sum(map(len, parts.values())) == 40
    for split, part in parts.items():
        frames = np.round(part.images_NHWC.mean(axis=(1, 2, 3)) / 6).astype(int)
        assert part.labels_N.tolist() == [vtab_bins(frame, [-100.0, 8.0, 20.0, 999.0]) for frame in frames]
        held_out = [kitti_distance.is_for_testing(drives[order[frame]]) for frame in frames]
        assert set(held_out) == {split == "test"}


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


def write_tfrecord(path: Path, messages: Sequence[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(struct.pack("<Q4x", len(m)) + m + b"\0\0\0\0" for m in messages))


def test_dmlab(tmp_path: Path) -> None:
    for part, first in (("train", 0), ("validation", 2), ("test", 4)):
        messages = []
        for label in (first, first + 1):
            data = io.BytesIO()
            Image.new("RGB", (24, 18), (40 * label,) * 3).save(data, "PNG")
            messages.append(tf_example(data.getvalue(), label))
        write_tfrecord(tmp_path / "dmlab" / f"dmlab-{part}.tfrecord", messages)
    train, test = (load("dmlab:16px", split, root=tmp_path) for split in ("train", "test"))
    assert train.labels_N.tolist() == [0, 1, 2, 3] and shades(train) == [0, 40, 80, 120]
    assert test.labels_N.tolist() == [4, 5] and shades(test) == [160, 200]
    path = tmp_path / "dmlab" / "dmlab-test.tfrecord"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match="cut short"):
        load("dmlab:16px", "test", root=tmp_path)


@pytest.mark.parametrize("data", [b"\xff" * 12, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05abc", b"\x0b\x01"])
def test_damaged_examples_end_in_one_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="protocol buffer"):
        tfrecord.example(data)


def write_dsprites(root: Path) -> tuple[np.ndarray, np.ndarray]:
    grid = np.stack(np.meshgrid(np.arange(40), np.arange(32), indexing="ij"), axis=-1).reshape(-1, 2)
    classes = np.zeros((len(grid), 6), dtype=np.int64)
    classes[:, 3], classes[:, 4] = grid.T
    images = (RNG.random((len(grid), 64, 64)) < 0.1).astype(np.uint8)
    folder = root / "dsprites"
    folder.mkdir()
    np.savez_compressed(
        folder / "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz",
        imgs=images, latents_classes=classes, metadata=np.array({"a": 1}, dtype=object),
    )  # fmt: skip
    return images, classes


def test_dsprites(tmp_path: Path) -> None:
    images, classes = write_dsprites(tmp_path)
    for name, column, values in (("dsprites-location", 4, 32), ("dsprites-orientation", 3, 40)):
        parts = {split: load(name, split, root=tmp_path) for split in ("train", "test")}
        assert len(parts["test"]) == len(images) // 10 and len(parts["train"]) == len(images) - len(images) // 10
        place = {image.tobytes(): row for row, image in enumerate(images * np.uint8(255))}
        seen = []
        for part in parts.values():
            rows = [place[image.tobytes()] for image in part.images_NHWC]
            bins = np.floor(classes[rows, column] / (values / 16)).astype(int)  # VTAB's
            assert part.labels_N.tolist() == bins.tolist() and set(part.labels_N) == set(range(16))
            seen += rows
        assert sorted(seen) == list(range(len(images)))


def test_dsprites_cut_short(tmp_path: Path) -> None:
    write_dsprites(tmp_path)
    path = next((tmp_path / "dsprites").iterdir())
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
    from bench.data import norb

    folder = tmp_path / "smallnorb"
    folder.mkdir()
    facts = np.stack([np.arange(8), np.arange(8), 2 * np.arange(8)[::-1], np.zeros(8)], axis=1).astype(np.int32)
    pixels = RNG.integers(0, 256, (8, 2, 96, 96), dtype=np.uint8)
    for stem in norb.STEMS.values():
        (folder / f"{stem}-dat.mat.gz").write_bytes(gzip.compress(norb_matrix(pixels), 1))
        (folder / f"{stem}-info.mat").write_bytes(norb_matrix(facts))
    train, test = (load("smallnorb-azimuth", split, root=tmp_path) for split in ("train", "test"))
    np.testing.assert_array_equal(train.images_NHWC[..., 0], pixels[:, 0])
    assert train.labels_N.tolist() == [7, 6, 5, 4, 3, 2, 1, 0] and len(train.class_names) == 18
    np.testing.assert_array_equal(test.images_NHWC[..., 0], pixels[4:, 0])  # the second half
    elevation = load("smallnorb-elevation", "test", root=tmp_path)
    assert elevation.labels_N.tolist() == [4, 5, 6, 7] and len(elevation.class_names) == 9
    (folder / f"{norb.STEMS['test']}-info.mat").write_bytes(norb_matrix(facts)[:-4])
    with pytest.raises(UserError, match="promises"):
        load("smallnorb-azimuth", "test", root=tmp_path)


WITH_SIZES = [
    name
    for name in registry.names("data set")
    if all(hasattr(registry.load("data set", name), fact) for fact in ("NAME", "SIDE", "OPTIONS"))
]


@pytest.mark.parametrize("name", WITH_SIZES)
def test_options_and_absence(name: str, tmp_path: Path) -> None:
    module = registry.load("data set", name)
    for root in (None, tmp_path):
        with pytest.raises(UserError, match="not on this machine") as caught:
            load(name, "train", root=root)
        assert module.HOW_TO_GET in str(caught.value)
    for option in ("big", "4px", "5000px"):
        with pytest.raises(UserError):
            load(f"{name}:{option}", "train", root=tmp_path)
    assert name == module.NAME and f"default {module.SIDE}px" in module.OPTIONS


DAMAGE: dict[str, Callable[[Path], object]] = {
    "clevr-count": lambda root: (root / "clevr/CLEVR_v1.0/scenes/CLEVR_val_scenes.json").write_text("{"),
    "dtd": lambda root: (root / "dtd/dtd/labels/test1.txt").write_text("no slash\n"),
}


def test_damaged_lists_end_in_one_message(tmp_path: Path) -> None:
    for part in ("train", "val"):
        path = tmp_path / "clevr/CLEVR_v1.0/scenes" / f"CLEVR_{part}_scenes.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"scenes": []}')
    (tmp_path / "dtd/dtd/labels").mkdir(parents=True)
    (tmp_path / "dtd/dtd/images").mkdir()
    for name, damage in DAMAGE.items():
        damage(tmp_path)
        with pytest.raises(UserError, match="cannot be read"):
            load(name, "test", root=tmp_path)


def test_the_nineteen_tasks_of_vtab_are_here() -> None:
    """The names of task_adaptation's registry, in the spelling of this project."""
    natural = {"caltech101", "cifar100", "dtd", "flowers102", "pets", "sun397", "svhn"}
    specialised = {"patch-camelyon", "eurosat", "resisc45", "retinopathy"}
    structured = {"clevr-count", "clevr-distance", "dmlab", "dsprites-location", "dsprites-orientation"}
    structured |= {"kitti-distance", "smallnorb-azimuth", "smallnorb-elevation"}
    assert len(natural | specialised | structured) == 19
    assert natural | specialised | structured <= set(registry.names("data set"))
