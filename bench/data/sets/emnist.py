"""EMNIST: 28 px handwritten letters and digits (Cohen et al., 2017, arXiv:1702.05373). `emnist:letters` names a split.

The published splits: `balanced` (the default), `letters`, `digits`, `mnist`, `bymerge`, `byclass`.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.core.errors import UserError, unknown
from bench.data.fetch import File
from bench.data.idx import read_idx_pair
from bench.data.image_set import ImageSet

REVISION = 1
KIND = "handwriting"
LICENCE = "public domain (NIST Special Database 19)"
SOURCE = "https://www.nist.gov/itl/products-and-services/emnist-dataset"
HOW_TO_GET = (
    "Put the IDX files (emnist-letters-train-images-idx3-ubyte.gz, …, from "
    "https://www.nist.gov/itl/products-and-services/emnist-dataset) into <data root>/emnist/. "
    "Or run: python -m bench.data emnist --download --data-root <data root>"
)
DESCRIPTION = "28 px scanned handwritten letters and digits, 10 to 62 classes"
OPTIONS = "emnist:SPLIT with SPLIT one of balanced (default), letters, digits, mnist, bymerge, byclass"
DOWNLOADS = (  # checksums as torchvision pins them
    File(
        url="https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        checksum="md5:58c8d27c78d21e728a6bc7b3cc06412e",
        folder="emnist",
        makes=("gzip",),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Split:
    """A published split: the names of its classes, and the label of the first (`letters` counts from 1)."""

    classes: tuple[str, ...]
    first: int = 0


_MERGED = tuple(string.digits + string.ascii_uppercase + "abdefghnqrt")  # letters whose cases look alike are one class
SPLITS = {
    "balanced": Split(classes=_MERGED),
    "letters": Split(classes=tuple(string.ascii_lowercase), first=1),
    "digits": Split(classes=tuple(string.digits)),
    "mnist": Split(classes=tuple(string.digits)),
    "bymerge": Split(classes=_MERGED),
    "byclass": Split(classes=tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)),
}


def available(root: Path | None) -> bool:
    return all(_pair(root, "balanced", split) for split in ("train", "test"))


def load(split: str, *, root: Path | None, option: str = "balanced") -> ImageSet:
    if option not in SPLITS:
        raise unknown("split of EMNIST", option, SPLITS)
    kind = SPLITS[option]
    pair = _pair(root, option, split)
    if pair is None:
        raise UserError(f"Data set 'emnist:{option}' is not on this machine.", HOW_TO_GET)
    images_NHWC, labels_N = read_idx_pair(*pair, num_classes=len(kind.classes) + kind.first)
    if int(labels_N.min()) < kind.first:
        raise UserError(f"{pair[1]} holds label {labels_N.min()}.", f"The labels of {option} count from {kind.first}.")
    return ImageSet(
        name="emnist" if option == "balanced" else f"emnist:{option}",
        split=split,
        images_NHWC=np.ascontiguousarray(images_NHWC.swapaxes(1, 2)),  # the files hold every image transposed
        labels_N=labels_N - kind.first,
        class_names=kind.classes,
        kind=KIND,
        source="IDX files",
    )


def _pair(root: Path | None, option: str, split: str) -> tuple[Path, Path] | None:
    for folder in (root / "emnist", root / "emnist" / "gzip", root / "EMNIST" / "raw") if root else ():
        for ending in (".gz", ""):
            images, labels = (
                folder / f"emnist-{option}-{split}-{what}-ubyte{ending}" for what in ("images-idx3", "labels-idx1")
            )
            if images.is_file() and labels.is_file():
                return images, labels
    return None
