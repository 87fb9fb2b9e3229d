"""CIFAR-10: 32 px colour photographs of 10 kinds of things (Krizhevsky, 2009)."""

from __future__ import annotations

from pathlib import Path

from bench.data import cifar
from bench.data.image_set import ImageSet

REVISION = 1
KIND = "photographs"
LICENCE = "none stated; free for research with a citation of Krizhevsky (2009)"
SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html"
HOW_TO_GET = (
    "Unpack cifar-10-binary.tar.gz (or cifar-10-python.tar.gz) from https://www.cs.toronto.edu/~kriz/cifar.html into "
    "<data root>/."
)
DESCRIPTION = "32 px colour photographs, 10 classes, 50,000 + 10,000"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

ROWS = {"train": 10_000, "test": 10_000}
LAYOUTS = (
    cifar.Layout(
        folder="cifar-10-batches-bin",
        files={"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
        rows=ROWS,
        label=0,
        label_bytes=1,
    ),
    cifar.Layout(
        folder="cifar-10-batches-py",
        files={"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
        rows=ROWS,
        label=b"labels",
    ),
)


def available(root: Path | None) -> bool:
    return all(cifar.find(root, "cifar10", LAYOUTS, split) for split in ("train", "test"))


def load(split: str, *, root: Path | None) -> ImageSet:
    images_NHWC, labels_N, version = cifar.read(
        root, "cifar10", LAYOUTS, split, num_classes=len(CLASSES), how_to_get=HOW_TO_GET
    )
    return ImageSet(
        name="cifar10",
        split=split,
        images_NHWC=images_NHWC,
        labels_N=labels_N,
        class_names=CLASSES,
        kind=KIND,
        source=version,
    )
