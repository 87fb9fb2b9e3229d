"""Shapes-distance: the class is the distance between the centres of two shapes, in six bins."""

from __future__ import annotations

import math

from bench.data.generated import shapes

NEAREST, FURTHEST = 5.5, 20.5  # pixels between the centres
CLASSES = ("5.5 to 8 px", "8 to 10.5 px", "10.5 to 13 px", "13 to 15.5 px", "15.5 to 18 px", "18 to 20.5 px")


def scene(label: int, dice: shapes.Dice) -> list[shapes.Shape]:
    """Return the two shapes of a scene, at a random distance within the bin `label` (an index of CLASSES), in a random
    direction and place; both lie inside the picture."""
    distance = NEAREST + (label + dice.between(0, 1)) * (FURTHEST - NEAREST) / len(CLASSES)
    sizes = (dice.between(1.5, 2.3), dice.between(1.5, 2.3))
    looks = (shapes.look(dice), shapes.look(dice))
    while True:
        direction = dice.between(0, math.tau)
        x, y = shapes.somewhere(dice, radius=sizes[0])
        x_2, y_2 = x + distance * math.cos(direction), y + distance * math.sin(direction)
        reach = 1.3 * sizes[1] + 0.5
        if all(reach <= place <= shapes.SIZE - reach for place in (x_2, y_2)):
            break
    return [
        shapes.Shape(x=x, y=y, radius=sizes[0], **looks[0]),
        shapes.Shape(x=x_2, y=y_2, radius=sizes[1], **looks[1]),
    ]


DATASET = shapes.data_set("shapes-distance", "how far apart two shapes are, 28 px", compose=scene, classes=CLASSES)
