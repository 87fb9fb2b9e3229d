"""STL-10: 96 px photographs of 10 kinds of things (Coates et al., 2011), by torchvision."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.data import named
from bench.data.formats._source import Source
from bench.data.formats.arrays import source_of
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "stl10", 1, "photographs"
LICENCE = "none stated; images from ImageNet"
SOURCE = "https://cs.stanford.edu/~acoates/stl10 (Stanford University)"
HOW_TO_GET = "Unpack stl10_binary.tar.gz from https://cs.stanford.edu/~acoates/stl10 into <data root>/."
DESCRIPTION = "96 px colour photographs, 10 classes, 5,000 + 8,000"
SIDE, CHANNELS = 96, 3
OPTIONS = named.options(NAME, SIDE)


def available(root: Path | None) -> bool:
    return named.all_below(root, "stl10_binary/train_X.bin", "stl10_binary/test_X.bin")


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    from torchvision.datasets import STL10

    data = STL10(root, split)
    files = tuple(root / data.base_folder / f"{split}_{what}.bin" for what in "Xy")
    images_NHWC = data.data.transpose(0, 2, 3, 1)
    return source_of(images_NHWC, data.labels.astype("int64"), files=files, where=files[0]), data.classes
