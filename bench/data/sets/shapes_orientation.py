"""Which way does the shape point? Eight directions, each anywhere within its 45 degrees."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from bench.data.generated import shapes
from bench.data.image_set import ImageSet

REVISION, KIND = 1, "rendered"
IMAGES = (2_000, 1_000, 8)
LICENCE, SOURCE, HOW_TO_GET = "none needed", "drawn by this file", "Nothing to get."
DESCRIPTION = "which way a shape points, 28 px, 8 classes, 2,000 + 1,000"

CLASSES = ("east", "south-east", "south", "south-west", "west", "north-west", "north", "north-east")


def available(root: Path | None) -> bool:
    return True


def load(split: str, *, root: Path | None) -> ImageSet:
    return shapes.image_set("shapes-orientation", split, compose=scene, classes=CLASSES, revision=REVISION)


def scene(label: int, dice: shapes.Dice) -> list[shapes.Shape]:
    """One arrow or wedge anywhere; rows count downwards, so angles go clockwise."""
    radius = dice.between(3.5, 7.0)
    x, y = shapes.somewhere(dice, radius=radius)
    shape = shapes.Shape(x=x, y=y, radius=radius, **shapes.look(dice, shapes.POINTED))
    return [replace(shape, angle=(label + dice.between(-0.5, 0.5)) * math.tau / len(CLASSES))]
