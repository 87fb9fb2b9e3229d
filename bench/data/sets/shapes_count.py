"""How many shapes are there? One to six, none touching another."""

from __future__ import annotations

import itertools
import math

from bench.data.generated import shapes

CLASSES = ("1", "2", "3", "4", "5", "6")
TRIES = 40  # places before all shapes are placed anew


def scene(label: int, dice: shapes.Dice) -> list[shapes.Shape]:
    """`label + 1` shapes. Their common size does not depend on how many they are, so ink alone does not tell."""
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
