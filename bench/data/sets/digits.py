"""scikit-learn's digits: 8 px handwritten digits, 1,797 images, 10 classes (UCI "Optical Recognition", its test part).

It is so small and easy that a classifier of raw pixels nearly solves it: use it as a smoke test, not as evidence.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from bench.data.data_set import DataSet
from bench.data.image_set import ImageSet
from bench.data.readable import in_package
from bench.data.subset import nested

NUM_TRAIN = 900


def available(root: Path | None) -> bool:
    return _file() is not None


def load(split: str, *, root: Path | None) -> ImageSet:
    path = _file()
    if path is None:
        raise DATASET.absent()
    with gzip.open(path, "rt") as file:
        rows = np.loadtxt(file, delimiter=",")
    images_NHWC = np.rint(rows[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    everything = ImageSet(
        name="digits",
        split=split,
        images_NHWC=images_NHWC,
        labels_N=rows[:, -1].astype(np.int64),
        class_names=tuple("0123456789"),
        kind=DATASET.kind,
        source="scikit-learn",
    )
    order_N = nested(everything.labels_N, None, keys_N=everything.content_keys_N)
    return everything.take(order_N[:NUM_TRAIN] if split == "train" else order_N[NUM_TRAIN:])


def _file() -> Path | None:
    """Return the path of the file inside scikit-learn; None if that is not installed. The package is not imported,
    because that takes a second."""
    return in_package("sklearn", "datasets/data/digits.csv.gz")


DATASET = DataSet(
    name="digits",
    kind="handwriting",
    description="8 px scanned handwritten digits, 10 classes, 900 + 897 images",
    licence="CC-BY-4.0 (UCI); shipped by scikit-learn, BSD-3-Clause",
    source="https://archive.ics.uci.edu/dataset/80 by way of scikit-learn",
    how_to_get="It comes with scikit-learn: install the package scikit-learn.",
    images=(900, 897),
    classes=10,
    side=8,
    load=load,
    available=available,
)
