"""A data set of drawn stripes in four directions, which are its classes."""

import numpy as np

from bench.data.data_set import DataSet
from bench.data.image_set import ImageSet


def load(split, *, root):  # "train" or "test"; `root` is --data-root. UserError: how to get missing data
    noise = np.random.default_rng(split == "test").normal(0, 20, (400, 28, 28))
    labels = np.arange(400) % 4
    angles = (labels * np.pi / 4)[:, None, None]
    y, x = np.mgrid[:28, :28]
    waves = 127 + 60 * np.sin(x * np.cos(angles) + y * np.sin(angles)) + noise
    return ImageSet(
        name="stripes",
        split=split,
        images_NHWC=waves.clip(0, 255).astype(np.uint8)[..., None],
        labels_N=labels,
        class_names=("0", "45", "90", "135"),
        kind=DATASET.kind,
    )


DATASET = DataSet(
    name="stripes",
    kind="rendered",  # or "photographs", "handwriting"
    description="stripes of four directions",
    licence="none needed",
    source="drawn by this file",
    how_to_get="Nothing to download.",
    images=(400, 400),
    classes=4,
    load=load,
)
