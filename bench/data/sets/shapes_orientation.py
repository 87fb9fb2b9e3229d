"""Shapes-orientation: the class is the direction in which a shape points, in eight sectors of 45 degrees."""

from __future__ import annotations

import math
from dataclasses import replace

from bench.data.generated import shapes

CLASSES = ("east", "south-east", "south", "south-west", "west", "north-west", "north", "north-east")


def scene(label: int, dice: shapes.Dice) -> list[shapes.Shape]:
    """Return the only shape of a scene, an arrow or a wedge in a random place, with a random angle in the sector
    `label` (an index of CLASSES). Angles increase clockwise, because rows are counted downwards."""
    radius = dice.between(3.5, 7.0)
    x, y = shapes.somewhere(dice, radius=radius)
    shape = shapes.Shape(x=x, y=y, radius=radius, **shapes.look(dice, shapes.POINTED))
    return [replace(shape, angle=(label + dice.between(-0.5, 0.5)) * math.tau / len(CLASSES))]


DATASET = shapes.data_set("shapes-orientation", "which way a shape points, 28 px", compose=scene, classes=CLASSES)
