"""Finds cells that see their images many times: how often, and which fraction of a plan's time they take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from bench.core.by_key import by_key
from bench.laws.forms import MAX_EPOCHS
from bench.study.cell import Cell


class Planned(Protocol):
    """The part of a planned cell that tells of its images; see `bench.plan.plan.PlannedCell`."""

    @property
    def cell(self) -> Cell: ...
    @property
    def epochs(self) -> float: ...
    @property
    def seconds(self) -> float | None: ...


@dataclass(frozen=True, kw_only=True)
class RepeatedImages:
    """Cells that see each image of one set, or of one part of it, more often than `MAX_EPOCHS`.

    Attributes:
        data: the set, as NAME or NAME@N.
        cells: number of these cells.
        least: the fewest times that one of them sees each image.
        most: the most times that one of them sees each image.
        share: fraction of the remaining time of all cells that these take.
    """

    data: str
    cells: int
    least: float
    most: float
    share: float


def find(planned: Iterable[Planned]) -> tuple[RepeatedImages, ...]:
    """Return, for each data set, the cells that see its images more often than `MAX_EPOCHS` times; the set whose images
    are seen most often comes first."""
    everything = list(planned)
    total = sum(each.seconds or 0.0 for each in everything)
    parts = by_key((each.cell.data_name, each) for each in everything if each.epochs > MAX_EPOCHS)
    made = [
        RepeatedImages(
            data=name,
            cells=len(part),
            least=min(each.epochs for each in part),
            most=max(each.epochs for each in part),
            share=sum(each.seconds or 0.0 for each in part) / total if total else 0.0,
        )
        for name, part in parts.items()
    ]
    return tuple(sorted(made, key=lambda part: -part.most))
