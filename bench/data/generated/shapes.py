"""Rendered scenes of a few shapes, for classification tasks about structure: how many, where, at which angle, how far
apart.

The property to classify is balanced over the classes; everything else about a scene (shape, size, brightness,
background, noise) is random and independent of it. Every scene is a pure function of (task, split, index).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, __version__

from bench.core.seeds import uniforms
from bench.data import cache
from bench.data.data_set import DataSet
from bench.data.image_set import ImageSet

REVISION = 1
SIZE = 28
OVERSAMPLE = 4
NOISE = 8  # largest noise in grey levels, in either direction
NUMBERS = 64  # random numbers that are hashed at a time
COUNTS = {"train": 2_000, "test": 1_000}

# Corners of shapes that point to the right, in units of the radius. The last two have no rotational symmetry.
OUTLINES: dict[str, tuple[tuple[float, float], ...]] = {
    "disc": tuple((math.cos(k * math.pi / 12), math.sin(k * math.pi / 12)) for k in range(24)),
    "square": ((0.9, 0.9), (-0.9, 0.9), (-0.9, -0.9), (0.9, -0.9)),
    "triangle": ((1.1, 0.0), (-0.6, 0.95), (-0.6, -0.95)),
    "cross": (
        (1, 0.35),
        (0.35, 0.35),
        (0.35, 1),
        (-0.35, 1),
        (-0.35, 0.35),
        (-1, 0.35),
        (-1, -0.35),
        (-0.35, -0.35),
        (-0.35, -1),
        (0.35, -1),
        (0.35, -0.35),
        (1, -0.35),
    ),
    "arrow": ((1.2, 0.0), (0.0, 0.95), (0.0, 0.35), (-1.1, 0.35), (-1.1, -0.35), (0.0, -0.35), (0.0, -0.95)),
    "wedge": ((1.3, 0.0), (-0.8, 0.75), (-0.35, 0.0), (-0.8, -0.75)),
}
ANY = ("disc", "square", "triangle", "cross")
POINTED = ("arrow", "wedge")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One shape of a scene.

    Attributes:
        outline: a key of `OUTLINES`.
        x, y, radius: centre and radius, in pixels of the finished image.
        angle: rotation in radians.
        ink: grey levels by which the shape is brighter than the background.
    """

    outline: str
    x: float
    y: float
    radius: float
    angle: float
    ink: float


class Dice:
    """An endless source of random numbers for one scene. They depend only on `address`, the scene's name."""

    def __init__(self, address: str) -> None:
        blocks = (uniforms(f"{address}/{block}", count=NUMBERS).tolist() for block in itertools.count())
        self._numbers = itertools.chain.from_iterable(blocks)

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * next(self._numbers)

    def pick(self, options: tuple[str, ...]) -> str:
        return options[int(next(self._numbers) * len(options))]


Compose = Callable[[int, Dice], list[Shape]]


def data_set(name: str, description: str, *, compose: Compose, classes: tuple[str, ...]) -> DataSet:
    """Return the description of a data set of rendered scenes, in which one property of the scene is classified.

    Args:
        compose: (label, random numbers) -> shapes of a scene with this label.
        classes: names of the classes, in label order.
    """
    train, test = COUNTS.values()
    return DataSet(
        name=name,
        revision=REVISION,
        kind="rendered",
        description=f"{description}, {len(classes)} classes, {train:,} + {test:,}",
        licence="none needed",
        source="drawn by its file",
        how_to_get="Nothing to get.",
        images=(train, test),
        classes=len(classes),
        load=partial(image_set, name, compose=compose, classes=classes, revision=REVISION),
    )


def image_set(
    name: str,
    split: str,
    *,
    root: Path | None = None,
    compose: Compose,
    classes: tuple[str, ...],
    revision: int = REVISION,
) -> ImageSet:
    """Return one split of the scenes of the data set `name`, rendered once and cached. COUNTS gives their number;
    labels cycle through the classes.

    Args:
        root: ignored, because scenes are rendered.
        compose: (label, random numbers) -> shapes of a scene with this label.
        classes: names of the classes, in label order.
    """
    count = COUNTS[split]
    labels_N = np.arange(count, dtype=np.int64) % len(classes)

    def build() -> dict[str, np.ndarray]:
        images_NHW = np.empty((count, SIZE, SIZE), dtype=np.uint8)
        for index, label in enumerate(labels_N.tolist()):
            dice = Dice(f"{name}/{revision}/{split}/{index}")
            shapes = compose(label, dice)
            images_NHW[index] = draw(
                shapes, ground=dice.between(10, 70), noise=f"{name}/{revision}/{split}/{index}/noise"
            )
        return {"images": images_NHW[..., None]}

    stored = cache.arrays(f"{name}-r{revision}-{split}-{count}-pillow{__version__}", build)
    return ImageSet(
        name=name,
        split=split,
        images_NHWC=stored["images"],
        labels_N=labels_N,
        class_names=classes,
        kind="rendered",
        source="drawn",
    )


def draw(shapes: list[Shape], *, ground: float, noise: str) -> np.ndarray:
    """Render shapes on a plain background, with antialiased edges and noise; return uint8 (28, 28).

    Args:
        ground: grey level of the background, 0 to 255.
        noise: name of the random stream of the noise.
    """
    side = SIZE * OVERSAMPLE
    canvas = Image.new("L", (side, side), round(ground))
    pen = ImageDraw.Draw(canvas)
    for shape in shapes:
        pen.polygon(corners(shape), fill=round(min(255.0, ground + shape.ink)))
    smooth_HW = np.asarray(canvas.reduce(OVERSAMPLE), dtype=np.int16)
    noise_HW = (uniforms(noise, count=SIZE * SIZE).reshape(SIZE, SIZE) * (2 * NOISE + 1)).astype(np.int16) - NOISE
    return np.clip(smooth_HW + noise_HW, 0, 255).astype(np.uint8)


def corners(shape: Shape) -> list[tuple[int, int]]:
    """Return the corners (x, y) of a shape in pixels of the oversampled picture. They are integers, so that no machine
    rounds an edge differently."""
    cos, sin = math.cos(shape.angle), math.sin(shape.angle)
    return [
        (
            round((shape.x + shape.radius * (cos * u - sin * v)) * OVERSAMPLE),
            round((shape.y + shape.radius * (sin * u + cos * v)) * OVERSAMPLE),
        )
        for u, v in OUTLINES[shape.outline]
    ]


def somewhere(dice: Dice, *, radius: float, margin: float = 0.5) -> tuple[float, float]:
    """Return a random centre (x, y) in pixels such that a shape of this radius lies inside the picture, at least
    `margin` pixels from its border."""
    reach = 1.3 * radius + margin
    return dice.between(reach, SIZE - reach), dice.between(reach, SIZE - reach)


def look(dice: Dice, outlines: tuple[str, ...] = ANY) -> dict[str, Any]:
    """Return random values, as arguments of `Shape`, for three properties of a shape: its outline (one of `outlines`),
    angle and brightness."""
    return {"outline": dice.pick(outlines), "angle": dice.between(0, 2 * math.pi), "ink": dice.between(90, 185)}
