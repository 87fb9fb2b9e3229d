"""Lettering: the characters of `glyphs` in more sizes, weights and places, in any number of images.

`lettering` has 100 classes x 100 images; `lettering:100x3000` has 300,000 images. An image of a split depends only on
(class, index), so a larger set contains every smaller one. Each is deformed by 26 random numbers of its own, so no two
are copies; test images have other fonts, characters and random streams (`tests/data/test_generated.py`).

The strength of the deformation was chosen by looking at results: with almost twice as much, a ResNet had learned
nothing after 14,000 images, while a ViT had. So this set does not compare the two families neutrally
(`docs/limits.md`).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from bench.core.errors import UserError
from bench.core.seeds import uniforms
from bench.data.data_set import DataSet, Numbers
from bench.data.generated import drawn
from bench.data.generated.drawn import Asked, parsed
from bench.data.generated.render import NUMBERS, SIZE, Variation, draw, faces, fingerprint, groups_N
from bench.data.image_set import ImageSet
from bench.data.sets import glyphs

REVISION = 2  # 2: images of one letter in one family are a group
DRAWN_SINCE = 1  # the revision since which the pixels are unchanged
CLASSES = glyphs.CLASSES
USUAL = Asked(classes=len(CLASSES), per_class=100, side=SIZE)
VARIATION = Variation(
    rotation=8.0, shear=0.15, scale=0.15, aspect=0.15, shift=1.5, warp=0.75, strokes=(1, 3, 5), contrast=0.6
)


def look(option: str, *, root: Path | None) -> tuple[int, int]:
    """Return (pixels per side, channels). `option`: the size after the colon of the set's name, "100x3000"; `root` is
    ignored."""
    return _asked(option).side, 1


def size(option: str) -> Numbers:
    """Return the numbers of images and classes that `option` (such as "100x3000") asks for, without rendering any."""
    return _asked(option).size


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    asked = _asked(option)
    made_of = fingerprint(CLASSES, VARIATION, fonts=glyphs.fonts(split))
    numbers_N = np.arange(asked.size["train" if split == "train" else "test"])
    return drawn.image_set(
        "lettering",
        option,
        split,
        asked,
        draw=drawn_by_number,
        channels=1,
        revision=REVISION,
        class_names=CLASSES[: asked.classes],
        made_of=made_of,
        groups_N=groups_N(
            split,
            CLASSES[: asked.classes],
            partial(glyphs.fonts, split),
            numbers_N % asked.classes,
            numbers_N // asked.classes,
        ),
    )


def _asked(option: str) -> Asked:
    asked = parsed("lettering", option, USUAL)
    if asked.side != SIZE or asked.classes > len(CLASSES):
        raise UserError(f"lettering:{option} is out of range.", f"{SIZE} px and at most {len(CLASSES)} classes.")
    return asked


def drawn_by_number(numbers_N: np.ndarray, *, classes: int, split: str, size: int) -> np.ndarray:
    """Render the images at positions `numbers_N` of a split, uint8 (N, 28, 28, 1). Image i is of class i %
    `classes`."""
    images_NHW = np.empty((len(numbers_N), size, size), dtype=np.uint8)
    for label in np.unique(numbers_N % classes):  # class by class, so that cached drawings are reused
        rows_M = np.flatnonzero(numbers_N % classes == label)
        for row in rows_M:
            images_NHW[row] = _image(CLASSES[label], int(numbers_N[row]) // classes, split)
    return images_NHW[..., None]


def _image(characters: str, index: int, split: str) -> np.ndarray:
    of_class = faces(characters, partial(glyphs.fonts, split))
    numbers_1U = uniforms(f"lettering/{DRAWN_SINCE}/{split}/{characters}/{index}", count=NUMBERS)[None]
    return next(draw([of_class[index % len(of_class)]], numbers_1U, VARIATION))


DATASET = DataSet(
    name="lettering",
    revision=REVISION,
    kind="rendered",
    description="28 px rendered letters and symbols, more varied, 100 classes, 10,000 + 2,500; any number of images",
    licence=glyphs.DATASET.licence,
    source=glyphs.DATASET.source,
    how_to_get=glyphs.DATASET.how_to_get,
    options="lettering:100xIMAGES, for example lettering:100x3000 (images are per class; of fewer, the first classes)",
    side=SIZE,
    load=load,
    available=glyphs.DATASET.available,
    look=look,
    size=size,
)
