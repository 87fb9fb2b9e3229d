"""Where along the width is the shape? Eight bins from left to right, among smaller specks."""

from __future__ import annotations

from pathlib import Path

from bench.data.generated import shapes
from bench.data.image_set import ImageSet

REVISION, KIND = 1, "rendered"
IMAGES = (2_000, 1_000, 8)
LICENCE, SOURCE, HOW_TO_GET = "none needed", "drawn by this file", "Nothing to get."
DESCRIPTION = "where along the width a shape is, 28 px, 8 classes, 2,000 + 1,000"

CLASSES = tuple(f"bin {number} of 8" for number in range(1, 9))
MARGIN = 4.0  # pixels at either side where no centre lies


def available(root: Path | None) -> bool:
    return True


def load(split: str, *, root: Path | None) -> ImageSet:
    return shapes.image_set("shapes-position", split, compose=scene, classes=CLASSES, revision=REVISION)


def scene(label: int, dice: shapes.Dice) -> list[shapes.Shape]:
    """The shape, its centre anywhere within the bin, and three specks that are no answer."""
    specks = []
    for _ in range(3):
        x, y = shapes.somewhere(dice, radius=0.9)
        specks.append(shapes.Shape(x=x, y=y, radius=0.9, **shapes.look(dice, ("disc",))))
    radius, width = dice.between(2.2, 4.0), (shapes.SIZE - 2 * MARGIN) / len(CLASSES)
    _, y = shapes.somewhere(dice, radius=radius)
    x = MARGIN + (label + dice.between(0, 1)) * width
    return [*specks, shapes.Shape(x=x, y=y, radius=radius, **shapes.look(dice))]
