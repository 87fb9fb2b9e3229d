"""FractalDB: formula-driven images for pre-training without photographs (Kataoka et al., 2020, arXiv:2101.08515).

`fractaldb` is 100 classes x 100 images; `fractaldb:1000x1000` the paper's FractalDB-1k, a million images; any other
number of classes and images per class goes. A larger set holds every smaller one of the same size in pixels.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.data.generated import fractals
from bench.data.generated.drawn import Asked, image_set, numbered, parsed
from bench.data.image_set import ImageSet

REVISION, KIND = 1, "rendered"
LICENCE = "none needed"
SOURCE = "drawn by this file after arXiv:2101.08515"
HOW_TO_GET = "Nothing to get."
DESCRIPTION = "28 px drawings of random fractals, 100 classes, 10,000 + 2,500; any number of either"
OPTIONS = "fractaldb:CLASSESxIMAGES[:32px], for example fractaldb:1000x1000 (images are per class)"

USUAL = Asked(classes=100, per_class=100, side=28)


def available(root: Path | None) -> bool:
    return True


def look(option: str, *, root: Path | None) -> tuple[int, int]:
    """(pixels per side, channels); see `bench.data.load.look`."""
    return parsed("fractaldb", option, USUAL).side, 1


def size(option: str) -> dict[str, int]:
    """Numbers of images and classes, without drawing any."""
    return parsed("fractaldb", option, USUAL).size


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    asked = parsed("fractaldb", option, USUAL)
    return image_set(
        "fractaldb",
        option,
        split,
        asked,
        draw=draw,
        channels=1,
        revision=REVISION,
        class_names=numbered("system", asked),
    )


def draw(numbers_N: np.ndarray, *, classes: int, split: str, size: int) -> np.ndarray:
    """uint8 images (N, size, size, 1) by their numbers in the set."""
    systems = fractals.search(classes)
    return fractals.draw(systems, numbers_N % classes, numbers_N // classes, split=split, size=size)[..., None]
