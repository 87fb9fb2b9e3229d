"""How published data sets lie on the disk, set by set: functions that rows of `bench.data.public` name.

What lists image files takes (split, data root) and gives the images and the names of their classes. What reads arrays
takes (paths, split, option) and gives `images` (N, H, W, C) and `labels` (N,).
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import itertools
import json
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from bench.core.errors import UserError
from bench.data import cache
from bench.data.formats.tfrecord import read_records
from bench.data.idx import names_of_pair, read_idx_pair
from bench.data.rows import Arrays
from bench.data.source import SUFFIXES, Source, image_files, pixels
from bench.data.subset import mix

Listed = tuple[Source, Sequence[str]]
Scene = Sequence[Mapping[str, Any]]  # the things in a picture
TEST_SHARE = 0.2  # of every class, where no split is published: VTAB's 60/20/20 with its validation part in "train"


def by_hash(paths: Sequence[Path], labels: Sequence[int], *, split: str, train: int | None = None) -> Source:
    """The images of a split, where none is published: of every class `train` for training, or all but TEST_SHARE.

    Ranks follow a hash of the file's name, so the split is the same on every machine.
    """
    labels_N = np.array(labels, dtype=np.int64)
    place = [hashlib.sha256("/".join(path.parts[-2:]).encode(errors="surrogateescape")).digest() for path in paths]
    order = sorted(range(len(paths)), key=lambda i: (int(labels_N[i]), place[i]))
    counts = np.bincount(labels_N)
    rank_N = np.empty(len(paths), dtype=np.int64)
    rank_N[order] = np.concatenate([np.arange(count) for count in counts]) if len(paths) else 0
    last = [count - round(TEST_SHARE * count) if train is None else train for count in counts.tolist()]
    kept = [i for i in range(len(paths)) if (rank_N[i] >= last[labels_N[i]]) == (split == "test")]
    return image_files([paths[i] for i in kept], labels_N[kept])


Parts = Sequence[str | None]


def torchvision(split: str, root: Path, *, kind: str, train: Parts = ("train",), test: Parts = ("test",)) -> Listed:
    """What a class of torchvision lists, the parts of a split one after another.

    A loader that opens nothing makes the class give paths. Within a part they are sorted: some classes list a folder as
    the file system gives it. A class without parts (None) is divided by a hash.
    """
    from torchvision import datasets

    found: list[tuple[Path, int]] = []
    names: Sequence[str] = ()
    parts = {"train": train, "test": test}[split]
    for part in parts:
        about = {"split": part} if part else {}
        if kind == "OxfordIIITPet":  # takes no loader
            data = datasets.OxfordIIITPet(root, **about)
            found += zip(data._images, data._labels, strict=True)
        else:
            data = getattr(datasets, kind)(root, **about, loader=Path)
            found += sorted((data[i] for i in range(len(data))), key=lambda pair: pair[0].as_posix())
        names = tuple(map(str, data.classes))
    paths, labels = [path for path, _ in found], [label for _, label in found]
    return (image_files(paths, labels) if parts[0] else by_hash(paths, labels, split=split)), names


def class_folders(split: str, root: Path, *, folder: str, train: int | None = None) -> Listed:
    """A folder of images per class, divided by a hash."""
    classes = sorted(path for path in (root / folder).iterdir() if path.is_dir() and not path.name.startswith("."))
    found = [
        (path, label)
        for label, of_class in enumerate(classes)
        for path in sorted(of_class.iterdir())
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    ]
    paths, labels = [path for path, _ in found], [label for _, label in found]
    return by_hash(paths, labels, split=split, train=train), [path.name for path in classes]


def stl10(split: str, root: Path) -> Listed:
    """Binary files, by torchvision."""
    from torchvision.datasets import STL10

    data = STL10(root, split)
    files = tuple(root / data.base_folder / f"{split}_{what}.bin" for what in "Xy")
    return pixels(data.data.transpose(0, 2, 3, 1), data.labels.astype("int64"), files=files), data.classes


def patch_camelyon(split: str, root: Path) -> Listed:
    """HDF5 files, by torchvision; "train" is the training and the validation part."""
    import h5py
    from torchvision.datasets import PCAM

    data, labels, paths = [], [], []
    for part, stem in {"train": {"train": "train", "val": "valid"}, "test": {"test": "test"}}[split].items():
        data.append(PCAM(root, part))
        paths += [root / "pcam" / f"camelyonpatch_level_2_split_{stem}_{what}.h5" for what in "xy"]
        with h5py.File(paths[-1]) as file:
            labels.append(np.asarray(file["y"], dtype=np.int64).reshape(-1))
    rows = [(part, row) for part, labels_N in enumerate(labels) for row in range(len(labels_N))]
    source = Source(
        labels_N=np.concatenate(labels),
        files=tuple(paths),
        name=lambda number: f"{paths[2 * rows[number][0]].name}, image {rows[number][1]}",
        read=lambda number: np.asarray(data[rows[number][0]][rows[number][1]][0]),
    )
    return source, ("no tumour", "tumour")


def dmlab(split: str, root: Path) -> Listed:
    """TFRecords; "train" is the training and the validation part. They name no class: two things at three distances."""
    parts = {"train": ("train", "validation"), "test": ("test",)}[split]
    return read_records([root / "dmlab" / f"dmlab-{part}.tfrecord" for part in parts], num_classes=6), tuple("012345")


def vtab_1k(split: str, root: Path, *, folder: str, classes: int) -> Listed:
    """Lists of image files with the number of the class, in the order of the official split."""
    below = root / "vtab-1k" / folder
    path = below / {"train": "train800val200.txt", "test": "test.txt"}[split]
    paths, labels = list[Path](), list[int]()
    for line in path.read_text(encoding="utf-8").splitlines():
        name, _, label = line.strip().rpartition(" ")
        if not name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or not label.isdecimal():
            raise UserError(f"{path}: {line[:80]!r} is not the name of an image and a class.", "Get the file again.")
        if int(label) >= classes:
            raise UserError(f"{path} holds label {label}; classes are 0 to {classes - 1}.", "Get the file again.")
        paths.append(below / name)
        labels.append(int(label))
    return image_files(paths, labels), tuple(map(str, range(classes)))


RETINOPATHY = ("none", "mild", "moderate", "severe", "proliferative")


def retinopathy(split: str, root: Path) -> Listed:
    """Two lists with a level per image. "train" is the training part and the public half of Kaggle's test part, VTAB's
    validation; "test" is the private half."""

    def rows(name: str) -> list[dict[str, str]]:
        path = root / "retinopathy" / name
        with open(path, newline="", encoding="utf-8") as file:
            found = sorted(csv.DictReader(file), key=lambda row: row["image"])
        for row in found:
            if not row["image"].replace("_", "").isalnum():
                raise UserError(f"{path}: {row['image']!r} is not the name of an image.", "Get the file again.")
            if not 0 <= int(row["level"]) < len(RETINOPATHY):
                raise UserError(f"{path}: {row['image']} has level {row['level']}.", "Levels go from 0 to 4.")
        return found

    usage = {"train": "Public", "test": "Private"}[split]
    listed = [("train", row) for row in (rows("trainLabels.csv") if split == "train" else ())]
    listed += [("test", row) for row in rows("retinopathy_solution.csv") if row["Usage"] == usage]
    paths = [root / "retinopathy" / part / f"{row['image']}.jpeg" for part, row in listed]
    return image_files(paths, [int(row["level"]) for _, row in listed]), RETINOPATHY


def bin_of(value: float, bounds: Sequence[float]) -> int:
    """The last bound that lies below a value: VTAB's bins."""
    return max(place for place, bound in enumerate(bounds) if bound < value)


CLEVR_BOUNDS = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0)  # VTAB's, in the units of CLEVR's camera
CLEVR: dict[str, tuple[Callable[[Scene], int], tuple[str, ...]]] = {  # class of a scene, names of the classes
    "count": (lambda things: len(things) - 3, tuple(str(count) for count in range(3, 11))),  # VTAB's `count_all` less 3
    "distance": (
        lambda things: bin_of(min(float(thing["pixel_coords"][2]) for thing in things), CLEVR_BOUNDS),
        tuple(f"{low:g} to {high:g}" for low, high in itertools.pairwise(CLEVR_BOUNDS)),
    ),
}


def clevr(split: str, root: Path, *, task: str) -> Listed:
    """Scenes with what is in each. The published test part has none; VTAB judges on "val"."""
    part, folder = {"train": "train", "test": "val"}[split], root / "clevr" / "CLEVR_v1.0"
    with open(folder / "scenes" / f"CLEVR_{part}_scenes.json", encoding="utf-8") as file:
        scenes = sorted(json.load(file)["scenes"], key=lambda scene: scene["image_filename"])
    paths = [folder / "images" / part / Path(scene["image_filename"]).name for scene in scenes]
    label, names = CLEVR[task]
    return image_files(paths, [label(scene["objects"]) for scene in scenes]), names


KITTI_BOUNDS = (-100.0, 8.0, 20.0, 999.0)  # metres; VTAB's
KITTI = ("below 8 m", "8 to 20 m", "above 20 m", "no vehicle")


def kitti_distance(split: str, root: Path) -> Listed:
    """KITTI's object detection set by torchvision, labelled by the nearest car, van or truck ahead.

    Neighbouring frames of one drive show the same cars, so drives are not divided: a tenth of them, by a hash of their
    names, is for testing (TensorFlow Datasets holds out a tenth by drive too, in another order). Which drive a frame is
    from is stated in the development kit: line `train_rand[n]` of the mapping, counted from 1.
    """
    from torchvision.datasets import Kitti

    folder, data = root / "Kitti" / "raw" / "mapping", Kitti(root, train=True)
    lines = (folder / "train_mapping.txt").read_text().splitlines()
    numbers = [int(number) for number in (folder / "train_rand.txt").read_text().replace(",", " ").split()]
    if not numbers or max(numbers) > len(lines) or min(numbers) < 1:
        raise UserError(f"{folder} does not say which drive each frame is from.", "Get the development kit again.")
    for_testing = [kitti_for_testing(lines[number - 1].split()[1]) for number in numbers]
    order = sorted(range(len(data)), key=lambda i: str(data.images[i]))
    kept = [i for i in order if for_testing[int(Path(data.images[i]).stem)] == (split == "test")]
    labels = [kitti_label(data._parse_target(i)) for i in kept]
    return image_files([Path(data.images[i]) for i in kept], labels), KITTI


def kitti_label(things: Scene) -> int:
    """Class of a frame with these things; without a vehicle, the last."""
    ahead = (thing["location"][2] for thing in things if thing["type"] in ("Car", "Van", "Truck"))
    return bin_of(min([1000.0, *ahead]), KITTI_BOUNDS)


def kitti_for_testing(drive: str) -> bool:
    """Whether a drive is one of the tenth held out."""
    return int.from_bytes(hashlib.sha256(drive.encode()).digest()[:4], "big") < 2**32 // 10


def idx_places(
    split: str, option: str, *, folders: Sequence[str], prefix: str = "", test: str = "t10k"
) -> Iterable[Sequence[str]]:
    """MNIST's names for the two files of a split, plain or gzipped, in one of some folders."""
    stem = prefix.format(option) + {"train": "train", "test": test}[split]
    for folder in folders:
        yield from ((f"{folder}/{images}", f"{folder}/{labels}") for images, labels in names_of_pair(stem))


def idx(
    paths: Sequence[Path], split: str, option: str, *, names: Mapping[str, Sequence[str]], transposed: bool = False
) -> Arrays:
    """MNIST's format. EMNIST holds every image transposed, and counts its letters from 1."""
    first = 1 if option == "letters" else 0
    images_NHWC, labels_N = read_idx_pair(*paths, num_classes=len(names[option]), first_class=first)
    return {"images": images_NHWC.swapaxes(1, 2) if transposed else images_NHWC, "labels": labels_N}


def cifar_places(split: str, option: str, *, kind: str) -> Iterable[Sequence[str]]:
    """The files of CIFAR's binary version, else of the Python version, in its folder or one of the set's name."""
    folders, files, _, _ = CIFAR[kind]
    for folder, ending in zip(folders, (".bin", ""), strict=True):
        for below in (folder, f"{kind.lower()}/{folder}", kind.lower()):
            yield [f"{below}/{file}{ending}" for file in files[split]]


CIFAR_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
# Folders of the two versions; files by split, rows in each, label bytes of a row in the binary version.
CIFAR: dict[str, tuple[tuple[str, str], dict[str, tuple[str, ...]], dict[str, int], int]] = {
    "CIFAR10": (
        ("cifar-10-batches-bin", "cifar-10-batches-py"),
        {"train": CIFAR_BATCHES, "test": ("test_batch",)},
        {"train": 10_000, "test": 10_000},
        1,
    ),
    "CIFAR100": (
        ("cifar-100-binary", "cifar-100-python"),
        {"train": ("train",), "test": ("test",)},
        {"train": 50_000, "test": 10_000},
        2,
    ),
}


def cifar_version(paths: Sequence[Path]) -> str:
    return "binary version" if paths[0].suffix else "Python version"


def cifar(paths: Sequence[Path], split: str, option: str, *, kind: str, coarse: Sequence[int] = ()) -> Arrays:
    """CIFAR (Krizhevsky, 2009): label bytes, of which the last counts, and the red, green and blue planes of 32 px.

    The Python version is read by torchvision, which unpickles nothing whose checksum is not the published one.

    Args:
        coarse: superclass of each class, for the option of that name.
    """
    if paths[0].suffix:
        _, _, rows, label_bytes = CIFAR[kind]
        shape = (rows[split], label_bytes + 3 * 32 * 32)
        for path in paths:
            if (size := path.stat().st_size) != prod(shape):
                raise UserError(f"{path} has {size:,} bytes; {prod(shape):,} were expected.", "Get the file again.")
        stored = np.concatenate([np.fromfile(path, dtype=np.uint8).reshape(shape) for path in paths])
        images_NHWC = stored[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        labels_N = stored[:, label_bytes - 1].astype(np.int64)
    else:
        from torchvision import datasets

        here = type(kind, (getattr(datasets, kind),), {"base_folder": paths[0].parent.name})
        data = here(paths[0].parent.parent, train=split == "train")
        images_NHWC, labels_N = data.data, np.array(data.targets)
    return {"images": images_NHWC, "labels": np.array(coarse)[labels_N] if option == "coarse" else labels_N}


def svhn(paths: Sequence[Path], split: str, option: str) -> Arrays:
    """MATLAB files, by torchvision, which reads nothing whose checksum is not the published one."""
    from torchvision.datasets import SVHN

    data = SVHN(paths[0].parent, split)
    return {"images": data.data.transpose(0, 2, 3, 1), "labels": data.labels}


NORB = {"train": "smallnorb-5x46789x9x18x6x2x96x96-training", "test": "smallnorb-5x01235x9x18x6x2x96x96-testing"}
NORB_DTYPES: dict[int, np.dtype[Any]] = {0x1E3D4C55: np.dtype("uint8"), 0x1E3D4C54: np.dtype("<i4")}
NORB_MAX_BYTES = 2 << 30


def norb_places(split: str, option: str) -> Iterable[Sequence[str]]:
    stem = f"smallnorb/{NORB[split]}"
    return itertools.product(*([f"{stem}-{what}.mat{end}" for end in (".gz", "")] for what in ("dat", "info")))


def norb(paths: Sequence[Path], split: str, option: str, *, column: int, step: int) -> Arrays:
    """The left pictures of Small NORB's pairs, labelled by a column of (instance, elevation, azimuth, lighting).

    VTAB judges on the second half of the published test part (five toys of each kind that the training part has not),
    in the order of the file; "train" is the published training part.
    """
    pairs, facts_NF = norb_matrix(paths[0], dimensions=4), norb_matrix(paths[1], dimensions=2)
    if len(pairs) != len(facts_NF) or pairs.shape[1] != 2 or facts_NF.shape[1] != 4:
        raise UserError(f"{paths[0]} has shape {pairs.shape}, {paths[1]} {facts_NF.shape}.", "Get the files again.")
    first = len(pairs) // 2 if split == "test" else 0
    return {"images": pairs[first:, 0, :, :, None], "labels": facts_NF[first:, column] // step}


def norb_matrix(path: Path, *, dimensions: int) -> np.ndarray:
    """A matrix of NORB's own binary format: magic number, number of dimensions, at least three sizes, the values.

    Raises:
        UserError: it is another kind of file, or cut short.
    """
    with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
        magic, count = struct.unpack("<ii", file.read(8))
        if magic not in NORB_DTYPES or count != dimensions:
            raise UserError(f"{path} is no matrix of {dimensions} dimensions (magic {magic:#x}).", "Get it again.")
        sizes = struct.unpack(f"<{max(3, count)}i", file.read(4 * max(3, count)))[:count]
        size = prod(sizes) * NORB_DTYPES[magic].itemsize
        if min(sizes) < 1 or size > NORB_MAX_BYTES:
            raise UserError(f"{path} promises a matrix of shape {sizes}.", "Get the file again.")
        data = file.read(size + 1)
    if len(data) != size:
        raise UserError(f"{path} promises {size:,} bytes of values and holds {len(data):,}.", "Get the file again.")
    return np.frombuffer(data, dtype=NORB_DTYPES[magic]).reshape(sizes)


DSPRITES_BINS = 16


def dsprites(paths: Sequence[Path], split: str, option: str, *, column: int, values: int) -> Arrays:
    """dSprites' pictures of zeros and ones, here 0 and 255 as in VTAB; the label is a latent class in VTAB's bins.

    The last tenth in a fixed random order is for testing; VTAB divides 80/10/10, "train" is the first two.

    Args:
        column: of `latents_classes` (colour, shape, scale, orientation, x, y), which has `values` values.
    """
    (path,) = paths
    with np.load(path, allow_pickle=False) as archive:
        classes_NF = archive["latents_classes"]
    if classes_NF.ndim != 2 or classes_NF.shape[1] != 6 or classes_NF[:, column].max() != values - 1:
        raise UserError(f"{path} holds other latents than dSprites.", "Get the file again.")
    order_N = np.argsort(mix(np.arange(len(classes_NF), dtype=np.uint64), "dsprites/split"), kind="stable")
    for_testing_N = np.zeros(len(classes_NF), dtype=bool)
    for_testing_N[order_N[: len(classes_NF) // 10]] = True
    kept_N = for_testing_N == (split == "test")
    pictures = partial(_sprites, path, kept_N)
    return {
        "images": cache.Chunks(shape=(int(kept_N.sum()), 64, 64, 1), dtype="uint8", make=pictures),
        "labels": classes_NF[kept_N, column] * DSPRITES_BINS // values,
    }


def _sprites(path: Path, kept_N: np.ndarray) -> Iterator[np.ndarray]:
    """The pictures that are kept, in the file's order; 3 GB of them are never in memory together."""
    from bench.data.decode import Progress
    from bench.data.formats.arrays import guarded, unpacked

    progress, done = Progress("unpacking dSprites", len(kept_N)), 0
    with guarded(path), zipfile.ZipFile(path) as archive:
        shape, dtype, by_column, pieces = unpacked(archive, "imgs")
        if shape != (len(kept_N), 64, 64) or dtype != np.uint8 or by_column:
            raise UserError(f"{path}: the pictures are {dtype} of shape {shape}.", "Get the file again.")
        for piece in pieces:
            pixels_NHW = piece.reshape(-1, 64, 64)
            yield pixels_NHW[kept_N[done : done + len(pixels_NHW)], ..., None] * np.uint8(255)
            done += len(pixels_NHW)
            progress.step(len(pixels_NHW))
