"""Random pixels, each image with a class of its own, for the suite that measures speed. There is nothing to learn in
them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.data.data_set import DataSet
from bench.data.image_set import ImageSet

COUNT = 1_000  # number of images of each split, and of classes


def load(split: str, *, root: Path | None) -> ImageSet:
    """Return COUNT images of random pixels, each of which is a class of its own; they differ between the splits."""
    random = np.random.default_rng(0 if split == "train" else 1)
    return ImageSet(
        name="noise",
        split=split,
        images_NHWC=random.integers(0, 256, (COUNT, 28, 28, 3), dtype=np.uint8),
        labels_N=np.arange(COUNT, dtype=np.int64),
        class_names=tuple(str(number) for number in range(COUNT)),
        kind=DATASET.kind,
    )


DATASET = DataSet(
    name="noise",
    kind="rendered",
    description="random pixels and labels, 28 px, 1000 classes, 1,000 + 1,000 images; for measuring speed only",
    licence="none needed",
    source="drawn by this file",
    how_to_get="Nothing to get.",
    images=(COUNT, COUNT),
    classes=COUNT,
    unopened=True,
    load=load,
)
