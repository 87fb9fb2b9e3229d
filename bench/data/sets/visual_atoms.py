"""Visual atoms: formula-driven colour images for pre-training without photographs (Takashima et al., CVPR 2023,
arXiv:2303.01112; `bench.data.generated.atoms` says what differs).

`visual-atoms` has 100 classes x 100 images at 64 px; `visual-atoms:1000x1000` has a million images.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.data.data_set import DataSet, Numbers
from bench.data.generated import atoms
from bench.data.generated.drawn import Asked, image_set, numbered, parsed
from bench.data.image_set import ImageSet

REVISION = 1
USUAL = Asked(classes=100, per_class=100, side=64)


def look(option: str, *, root: Path | None) -> tuple[int, int]:
    """Return (pixels per side, channels). `option`: the size after the colon of the set's name, such as
    "1000x1000:32px"; `root` is ignored."""
    return parsed("visual-atoms", option, USUAL).side, 3


def size(option: str) -> Numbers:
    """Return the numbers of images and classes that `option` (such as "1000x1000") asks for, without rendering any."""
    return parsed("visual-atoms", option, USUAL).size


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    asked = parsed("visual-atoms", option, USUAL)
    return image_set(
        "visual-atoms",
        option,
        split,
        asked,
        draw=draw,
        channels=3,
        revision=REVISION,
        class_names=numbered("atom", asked),
    )


def draw(numbers_N: np.ndarray, *, classes: int, split: str, size: int) -> np.ndarray:
    """Render the images at positions `numbers_N` of a split, uint8 (N, size, size, 3). Image i is of class i %
    `classes`."""
    parts = np.array_split(numbers_N, max(1, len(numbers_N) // atoms.AT_ONCE))
    return np.concatenate([atoms.draw(part % classes, part // classes, split=split, size=size) for part in parts])


DATASET = DataSet(
    name="visual-atoms",
    revision=REVISION,
    kind="rendered",
    description="64 px colour drawings of waves round a circle, 100 classes, 10,000 + 2,500; any number of either",
    licence="none needed",
    source="drawn by this file after arXiv:2303.01112",
    how_to_get="Nothing to get.",
    options="visual-atoms:CLASSESxIMAGES[:32px], for example visual-atoms:1000x1000 (images are per class)",
    takes_side=True,
    load=load,
    look=look,
    size=size,
)
