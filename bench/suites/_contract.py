"""The interface of a suite, and helpers that suites share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from bench.core import registry
from bench.core.errors import UserError
from bench.core.spec import Cell, TaskSpec

SCALES = ("cpu", "gpu", "paper")

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SuiteOptions:
    """Options of a suite. None leaves the suite's own choice for the scale.

    `hours` on one data-centre GPU are for scale `gpu`, where they also choose the size of images. `num_images`, of the
    sets that were named, are for scale `paper`.
    """

    scale: str = "cpu"
    models: tuple[str, ...] | None = None
    data: tuple[str, ...] | None = None
    seeds: int | None = None
    image_size: int | None = None
    hours: float = 1.0
    num_images: Mapping[str, int] = field(default_factory=dict)
    data_root: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A named question: the constants and the function of one file in this folder.

    Attributes:
        question: QUESTION.
        figures: FIGURES, names of files in bench/report/figures/.
        headline, far: HEADLINE and FAR, the tasks (NAME:DATA) or downstream sets that answer it; optional.
        downstream: DOWNSTREAM, all downstream sets by scale, or of every scale; where a file has none, the headline and
            far ones.
        varies: VARIES, by axis the fields of a recipe that its cells differ in on purpose; the others are equal along
            the axis; optional.
        exclusive: EXCLUSIVE, whether cells measure time, so that they have the machine to themselves; optional.
        cells: what is to be trained.
    """

    name: str
    question: str
    figures: tuple[str, ...]
    headline: tuple[str, ...]
    far: tuple[str, ...]
    downstream: Mapping[str, tuple[str, ...]]
    exclusive: bool
    varies: Mapping[str, tuple[str, ...]]
    cells: Callable[[SuiteOptions], list[Cell]]


def load(name: str) -> Suite:
    """The suite of this name.

    Raises:
        UserError: there is none; suggests the nearest.
    """
    module = registry.load("suite", name)
    headline, far = getattr(module, "HEADLINE", ()), getattr(module, "FAR", ())
    downstream = getattr(module, "DOWNSTREAM", (*headline, *far))
    if not isinstance(downstream, Mapping):
        downstream = dict.fromkeys(SCALES, downstream)
    return Suite(
        name=name,
        question=module.QUESTION,
        figures=module.FIGURES,
        headline=headline,
        far=far,
        downstream=downstream,
        exclusive=getattr(module, "EXCLUSIVE", False),
        varies=getattr(module, "VARIES", {}),
        cells=module.cells,
    )


def pick(kind: str, scale: str, table: Mapping[str, T]) -> T:
    """The entry of a table for a scale.

    Raises:
        UserError: the suite has no such scale.
    """
    if scale not in table:
        raise UserError(f"This suite has no scale {scale!r} for its {kind}.", f"It has: {', '.join(table)}.")
    return table[scale]


def task(name: str, data: str, **options: Any) -> TaskSpec:
    """One evaluation with its options."""
    return TaskSpec(task=name, data=data, options=tuple(options.items()))


def merge(cells: Iterable[Cell]) -> list[Cell]:
    """Merge equal cells of several axes into one that carries all axis labels."""
    merged: dict[Cell, Cell] = {}
    for cell in cells:
        other = merged.setdefault(cell, cell)
        if other is not cell:
            merged[cell] = replace(other, axes=tuple(dict.fromkeys(other.axes + cell.axes)))
    return list(merged.values())


def fitting(model: str, size: int) -> int:
    """The multiple of the model's patch size nearest to `size`: 14 px patches do not divide 64, 128 or 384."""
    patch = _patch(model)
    return max(patch, round(size / patch) * patch)


def patched(model: str, size: int) -> str:
    """The model in the patch nearest to its own (by ratio, the larger of two) that divides `size`: at 64 px
    ViT-pico/7 -> ViT-pico/8. The model itself where none does, or where it has no patches."""
    patch, stem = _patch(model), registry.split_options(model)[0].rpartition("/")[0]
    if size % patch == 0:
        return model
    divisors = [number for number in range(1, size + 1) if size % number == 0]
    nearest = sorted(divisors, key=lambda number: (abs(math.log(number / patch)), -number))
    offered = (model.replace(f"{stem}/{patch}", f"{stem}/{number}", 1) for number in nearest)
    families = tuple(registry.families())
    accepted = (name for name in offered if any(f.accepts(registry.split_options(name)[0]) for f in families))
    return next(accepted, model)


def _patch(model: str) -> int:
    """The total down-sampling in a model's name; 1 where it has none."""
    if model.startswith("R+"):
        return 32  # the stem-only hybrid: its name is not its down-sampling
    base, _ = registry.split_options(model)
    last = base.rpartition("/")[2]
    return int(last) if "/" in base and ":" not in base and last.isdigit() else 1
