"""Oxford-IIIT Pets: photographs of 37 breeds of cats and dogs (Parkhi et al., 2012), by torchvision."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.data import named
from bench.data.fetch import File
from bench.data.formats._source import Source
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "pets", 1, "photographs"
LICENCE = "CC-BY-SA-4.0"
SOURCE = "https://www.robots.ox.ac.uk/~vgg/data/pets (Visual Geometry Group, Oxford)"
HOW_TO_GET = (
    "Unpack images.tar.gz and annotations.tar.gz from https://www.robots.ox.ac.uk/~vgg/data/pets into "
    "<data root>/oxford-iiit-pet/. Or run: python -m bench.data pets --download --data-root <data root>"
)
DESCRIPTION = "photographs of cats and dogs, 37 classes, 3,680 + 3,669"
SIDE, CHANNELS = 224, 3
OPTIONS = named.options(NAME, SIDE)
DOWNLOADS = (  # checksums as torchvision pins them
    File(
        url="https://www.robots.ox.ac.uk/~vgg/data/pets/data/images.tar.gz",
        checksum="md5:5c4f3ee8e5d25df40f4fd59a7f44e54c",
        folder="oxford-iiit-pet",
        makes=("images",),
    ),
    File(
        url="https://www.robots.ox.ac.uk/~vgg/data/pets/data/annotations.tar.gz",
        checksum="md5:95a8c909bbe2e81eed6a22bccdf3f68f",
        folder="oxford-iiit-pet",
        makes=("annotations",),
    ),
)


def available(root: Path | None) -> bool:
    return named.all_below(root, "oxford-iiit-pet/images", "oxford-iiit-pet/annotations")


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    from torchvision.datasets import OxfordIIITPet

    data = OxfordIIITPet(root, {"train": "trainval", "test": "test"}[split])
    return named.files(data._images, data._labels), data.classes
