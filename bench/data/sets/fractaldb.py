"""FractalDB: formula-driven images for pre-training without photographs (Kataoka et al., 2020, arXiv:2101.08515).

`fractaldb` is 100 classes x 100 images; `fractaldb:1000x1000` the paper's FractalDB-1k, a million images; any other
number of classes and images per class goes. A larger set holds every smaller one of the same size in pixels.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from bench.core.errors import UserError
from bench.data import cache
from bench.data.decode import Progress
from bench.data.generated import fractals
from bench.data.image_set import ImageSet

REVISION, KIND = 1, "rendered"
LICENCE = "none needed"
SOURCE = "drawn by this file after arXiv:2101.08515"
HOW_TO_GET = "Nothing to get."
DESCRIPTION = "28 px drawings of random fractals, 100 classes, 10,000 + 2,500; any number of either"
OPTIONS = "fractaldb:CLASSESxIMAGES[:32px], for example fractaldb:1000x1000 (images are per class)"

DEFAULT = (100, 100, 28)  # classes, images of each, pixels per side
PER_CLASS_TEST = 25
MAX_IMAGES = 100_000_000


def available(root: Path | None) -> bool:
    return True


def look(option: str, *, root: Path | None) -> tuple[int, int]:
    """(pixels per side, channels); see `bench.data.load.look`."""
    return _parsed(option)[2], 1


def _parsed(option: str) -> tuple[int, int, int]:
    """ "100x50:32px" -> (100, 50, 32): classes, images of each, pixels per side."""
    match = re.fullmatch(r"(?:(\d{1,6})x(\d{1,7}))?(?:(?:^|:)(\d{2,3})px)?", option)
    if match is None:
        raise UserError(f"fractaldb:{option} is not understood.", OPTIONS + ".")
    classes, per_class, size = (int(number or usual) for number, usual in zip(match.groups(), DEFAULT, strict=True))
    if classes < 2 or per_class < 1 or classes * per_class > MAX_IMAGES or not 16 <= size <= 256:
        raise UserError(
            f"fractaldb:{option} is out of range.", f"2 classes or more, 16 to 256 px, {MAX_IMAGES:,} images at most."
        )
    return classes, per_class, size


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    classes, per_class, size = _parsed(option)
    per_class = per_class if split == "train" else min(PER_CLASS_TEST, per_class)
    key = f"fractaldb-r{REVISION}-{split}-{classes}x{per_class}-{size}px"
    progress = Progress(f"drawing fractaldb:{option}, {split}", classes * per_class)
    stored = cache.arrays(
        key,
        lambda: {
            "images": fractals.images(classes=classes, per_class=per_class, split=split, size=size, progress=progress)
        },
    )
    return ImageSet(
        name="fractaldb" if (classes, per_class, size) == DEFAULT else f"fractaldb:{option}",
        split=split,
        images_NHWC=stored["images"],
        labels_N=np.arange(classes * per_class, dtype=np.int64) % classes,
        class_names=tuple(f"system {number}" for number in range(classes)),
        kind=KIND,
        source="drawn",
    )
