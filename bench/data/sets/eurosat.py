"""EuroSAT: Sentinel-2 pictures of land use in red, green and blue (Helber et al., 2019, arXiv:1709.00029).

No split is published. As in VTAB four fifths are for training (60 % and, for validation, 20 %); which images follows a
hash of the name.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.data import named
from bench.data.fetch import File
from bench.data.formats._source import Source
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "eurosat", 1, "photographs"
LICENCE = "MIT"
SOURCE = "https://github.com/phelber/EuroSAT (German Research Center for Artificial Intelligence)"
HOW_TO_GET = (
    "Unpack EuroSAT.zip (the RGB version, https://github.com/phelber/EuroSAT) into <data root>/eurosat/ (it makes "
    "the folder 2750). "
    "Or run: python -m bench.data eurosat --download --data-root <data root>"
)
DESCRIPTION = "64 px satellite pictures, 10 classes, 21,600 + 5,400"
SIDE, CHANNELS = 64, 3
OPTIONS = named.options(NAME, SIDE)
DOWNLOADS = (  # checksums as torchvision pins them
    File(
        url="https://huggingface.co/datasets/torchgeo/eurosat/resolve/c877bcd43f099cd0196738f714544e355477f3fd/EuroSAT.zip",
        checksum="md5:c8fa014336c82ac7804f0398fcb19387",
        folder="eurosat",
        makes=("2750",),
    ),
)


def available(root: Path | None) -> bool:
    return named.all_below(root, "eurosat/2750")


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    from torchvision.datasets import EuroSAT

    data = EuroSAT(root)
    paths, labels = zip(*sorted(data.samples), strict=True)
    source = named.part_of([Path(path) for path in paths], labels, keep=named.last_fifth(split))
    return source, data.classes
