"""Shapes-position: the class is the horizontal position of a shape among smaller specks, in eight bins from left to
right."""

from __future__ import annotations

from bench.data.generated import shapes

CLASSES = tuple(f"bin {number} of 8" for number in range(1, 9))
MARGIN = 4.0  # pixels at the left and right border in which no centre lies


def scene(label: int, dice: shapes.Dice) -> list[shapes.Shape]:
    """Return the shapes of a scene: three small specks that distract, and one larger shape, whose centre has a random
    horizontal position in the bin `label` (0 to 7)."""
    specks = []
    for _ in range(3):
        x, y = shapes.somewhere(dice, radius=0.9)
        specks.append(shapes.Shape(x=x, y=y, radius=0.9, **shapes.look(dice, ("disc",))))
    radius, width = dice.between(2.2, 4.0), (shapes.SIZE - 2 * MARGIN) / len(CLASSES)
    _, y = shapes.somewhere(dice, radius=radius)
    x = MARGIN + (label + dice.between(0, 1)) * width
    return [*specks, shapes.Shape(x=x, y=y, radius=radius, **shapes.look(dice))]


DATASET = shapes.data_set("shapes-position", "where along the width a shape is, 28 px", compose=scene, classes=CLASSES)
