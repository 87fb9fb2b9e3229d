"""Made-up pixels with made-up labels: what the speed suite runs on. There is nothing to learn in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.data.image_set import ImageSet

REVISION, KIND = 1, "rendered"
LICENCE, SOURCE, HOW_TO_GET = "none needed", "drawn by this file", "Nothing to get."
DESCRIPTION = "random pixels and labels, 28 px, 1000 classes, 1,000 + 1,000 images; for measuring speed only"

SIZE = {"train": 1_000, "test": 1_000, "classes": 1_000}


def available(root: Path | None) -> bool:
    return True


def load(split: str, *, root: Path | None) -> ImageSet:
    count, classes = SIZE[split], SIZE["classes"]
    random = np.random.default_rng(0 if split == "train" else 1)
    return ImageSet(
        name="noise",
        split=split,
        images_NHWC=random.integers(0, 256, (count, 28, 28, 3), dtype=np.uint8),
        labels_N=np.arange(count, dtype=np.int64) % classes,
        class_names=tuple(str(number) for number in range(classes)),
        kind=KIND,
    )
