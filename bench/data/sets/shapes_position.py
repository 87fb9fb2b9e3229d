"""Where along the width is the shape? Eight bins from left to right, among smaller specks."""

from __future__ import annotations

from bench.data.generated import shapes

CLASSES = tuple(f"bin {number} of 8" for number in range(1, 9))
MARGIN = 4.0  # pixels at either side where no centre lies


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


DATASET = shapes.data_set("shapes-position", "where along the width a shape is, 28 px", compose=scene, classes=CLASSES)
