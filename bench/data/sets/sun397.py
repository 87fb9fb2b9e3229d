"""SUN397: photographs of scenes (Xiao et al., 2010), by torchvision.

The archive has no single split, and VTAB's is a list that only TensorFlow Datasets ships. Here four fifths of every
class are for training and one for testing, by a hash of the name: VTAB's proportions (70 + 10 and 20 %), other images.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.data import named
from bench.data.formats._source import Source
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "sun397", 1, "photographs"
LICENCE = "none stated; for research"
SOURCE = "https://vision.princeton.edu/projects/2010/SUN (Princeton University)"
HOW_TO_GET = "Unpack SUN397.tar.gz from https://vision.princeton.edu/projects/2010/SUN into <data root>/."
DESCRIPTION = "photographs of scenes, 397 classes, about 87,000 + 21,750"
SIDE, CHANNELS = 224, 3
OPTIONS = named.options(NAME, SIDE)


def available(root: Path | None) -> bool:
    return named.all_below(root, "SUN397/ClassName.txt")


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    whole, names = named.torchvision("SUN397", root)
    return named.part_of(whole.files, whole.labels_N.tolist(), keep=named.last_fifth(split)), names
