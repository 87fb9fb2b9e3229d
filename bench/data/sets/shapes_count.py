"""Shapes-count: the class is the number of shapes in a scene, one to six; no two touch."""

from __future__ import annotations

import itertools
import math

from bench.data.generated import shapes

CLASSES = ("1", "2", "3", "4", "5", "6")
TRIES = 40  # attempts to place a shape before all shapes are placed anew


def scene(label: int, dice: shapes.Dice) -> list[shapes.Shape]:
    """Return the shapes of a scene, `label + 1` of them, at random places. Their common size is random, so that the
    area they cover does not tell their number by itself."""
    common = dice.between(1.8, 2.9)
    placed: list[shapes.Shape] = []
    for attempt in itertools.count():
        if attempt % TRIES == 0:
            placed = []
        radius = common * dice.between(0.8, 1.1)
        x, y = shapes.somewhere(dice, radius=radius)
        if all(math.hypot(x - other.x, y - other.y) > 1.3 * (radius + other.radius) + 0.7 for other in placed):
            placed.append(shapes.Shape(x=x, y=y, radius=radius, **shapes.look(dice)))
        if len(placed) == label + 1:
            break
    return placed


DATASET = shapes.data_set("shapes-count", "how many shapes, 1 to 6, 28 px", compose=scene, classes=CLASSES)
