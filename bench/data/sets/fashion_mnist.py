"""Fashion-MNIST: 28 px grey photographs of clothing, 10 classes (Xiao et al., 2017, arXiv:1708.07747).

A part of 10,000 training and 2,000 test images comes with the project. The full set (60,000 + 10,000) is read instead
when its IDX files are found. The part was chosen by `subset.nested` with seed 0, so "fashion-mnist@1000" is the same
1,000 images either way, and so are the 2,000 test images that the few-shot probe scores. "fashion-mnist:part" is the
part on every machine, so that a study of it has the same images and the same cost wherever it runs.
"""

from __future__ import annotations

import io
import lzma
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bench.core.errors import UserError
from bench.core.files import file_sha256
from bench.data import cache
from bench.data.data_set import DataSet, Download
from bench.data.idx import find_pair, read_full_set
from bench.data.image_set import ImageSet

CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
EMBEDDED = Path(__file__).parent.parent / "embedded" / "fashion_mnist.npz.xz"
PART = "part"
OPTIONS = "fashion-mnist:part, the 10,000 + 2,000 images that come with the project"
SYSTEM_FOLDER = Path("/usr/share/datasets/fashion-mnist")


def available(root: Path | None) -> bool:
    return EMBEDDED.is_file() or find_pair(_folders(root), "train") is not None


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    if option not in ("", PART):
        raise UserError(f"fashion-mnist:{option} is not understood.", f"It takes: {OPTIONS}.")
    full = None if option == PART else read_full_set(_folders(root), split, num_classes=len(CLASSES))
    if full is None:
        arrays = cache.arrays(f"fashion-mnist-part-{file_sha256(EMBEDDED)[:16]}", _unpack)
    images_NHWC, labels_N = full or (arrays[f"{split}_images"], arrays[f"{split}_labels"])
    return ImageSet(
        name=f"fashion-mnist:{PART}" if option == PART else "fashion-mnist",
        split=split,
        images_NHWC=images_NHWC,
        labels_N=labels_N,
        class_names=CLASSES,
        kind=DATASET.kind,
        source="full set, IDX files" if full else "embedded part",
    )


def _folders(root: Path | None) -> list[Path]:
    """Return the folders in which the full set may lie: some below the data root `root` (also in torchvision's layout),
    then the system's folder."""
    below = [root / "fashion-mnist", root / "fashion_mnist", root / "FashionMNIST" / "raw"] if root else []
    return [*below, SYSTEM_FOLDER]


def _unpack() -> Mapping[str, np.ndarray]:
    with np.load(io.BytesIO(lzma.decompress(EMBEDDED.read_bytes())), allow_pickle=False) as stored:
        images = {f"{split}_images": stored[f"{split}_images"][..., None] for split in ("train", "test")}
        return images | {f"{split}_labels": stored[f"{split}_labels"].astype(np.int64) for split in ("train", "test")}


def _download(option: str) -> Download:
    from bench.data.torchvision_sets import fetched_below  # imported here, because studies do not need it

    return fetched_below(DATASET, of="FashionMNIST", archive_bytes=31_000_000)


DATASET: DataSet = DataSet(
    name="fashion-mnist",
    kind="photographs",
    description="28 px grey photographs of clothing, 10 classes",
    licence="MIT",
    source="https://github.com/zalandoresearch/fashion-mnist (Zalando SE)",
    how_to_get="A part of it comes with the project. For all of it: Debian's package dataset-fashion-mnist, or put the "
    "four IDX files (train-images-idx3-ubyte.gz, …) into <data root>/fashion-mnist/. "
    "Or run: vit-bench data fashion-mnist --download --data-root <data root>",
    options=OPTIONS,
    images=(60_000, 10_000),
    classes=10,
    side=28,
    carried_in_part=True,
    load=load,
    available=available,
    places=lambda option, *, root: None if option == PART else _folders(root),
    download=_download,
)
