"""Find cells that see each training image many times: how often they do, and which fraction of a plan's time they
take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from bench.core.by_key import by_key
from bench.laws.forms import MAX_EPOCHS
from bench.study.cell import Cell


class Planned(Protocol):
    """The attributes of a planned cell that are needed here; see `bench.plan.plan.PlannedCell`."""

    @property
    def cell(self) -> Cell: ...
    @property
    def epochs(self) -> float: ...
    @property
    def seconds(self) -> float | None: ...


@dataclass(frozen=True, kw_only=True)
class RepeatedImages:
    """Cells that see each image of one set, or of one part of it, more than `MAX_EPOCHS` times.

    Attributes:
        data: the set, as NAME or NAME@N.
        cells: number of these cells.
        least: smallest number of epochs (passes over the images) among these cells.
        most: largest number of epochs among these cells.
        share: fraction of the remaining time of all cells that these take.
    """

    data: str
    cells: int
    least: float
    most: float
    share: float


def find(planned: Iterable[Planned]) -> tuple[RepeatedImages, ...]:
    """Return, for each data set, the cells that see its images more than `MAX_EPOCHS` times; the set whose images are
    seen most often comes first."""
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
