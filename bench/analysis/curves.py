"""Learning curves of records: loss against images seen, the shared trunk and each horizon's cool-down apart."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """Points in the order of the work. `horizons` is NaN on a trunk that horizons share."""

    images: array[float]
    losses: array[float]
    horizons: array[float]

    def parts(self) -> list[tuple[int | None, list[float], list[float]]]:
        """(horizon or None, images, losses) of each stretch; a cool-down starts where its trunk was left."""
        found: list[tuple[int | None, list[float], list[float]]] = []
        trunk: list[tuple[float, float]] = []
        for images, loss, horizon in zip(self.images, self.losses, self.horizons, strict=True):
            owner = None if math.isnan(horizon) else int(horizon)
            if not found or found[-1][0] != owner:
                before = [point for point in trunk if point[0] <= images]
                left = before[-1:] if owner is not None or trunk else []
                found.append((owner, [x for x, _ in left], [y for _, y in left]))
            found[-1][1].append(images)
            found[-1][2].append(loss)
            if owner is None:
                trunk.append((images, loss))
        return found


def curve_of(record: Mapping[str, Any]) -> Curve | None:
    """The learning curve of a record; None where it holds none."""
    points = record.get("curve")
    if isinstance(points, Curve) or not points:
        return points or None
    return Curve(
        images=array("d", [point["images"] for point in points]),
        losses=array("d", [point["loss"] for point in points]),
        horizons=array("d", [math.nan if point["horizon"] is None else point["horizon"] for point in points]),
    )  # fmt: skip
