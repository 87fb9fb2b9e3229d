"""A suite, the options that it is asked with, and functions that suites share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from bench.core.errors import UserError
from bench.study import registry
from bench.study.cell import Cell, TaskSpec
from bench.study.names import ModelName

SCALES = ("cpu", "gpu", "paper")

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SuiteOptions:
    """Options of a suite. None leaves the suite's own choice for the scale.

    Attributes:
        scale: one of SCALES.
        models: names of models.
        data: names of upstream sets.
        sizes: numbers of images that an axis over images compares, ascending.
        seeds: number of seeds.
        image_size: pixels per side.
        hours: time on one data-centre GPU, at scale `gpu`; they also choose the size of images.
        num_images: name of a set that was named -> training images, at scale `paper`.
        data_root: folder with data sets that do not come with the installation.
    """

    scale: str = "cpu"
    models: tuple[str, ...] | None = None
    data: tuple[str, ...] | None = None
    sizes: tuple[int, ...] | None = None
    seeds: int | None = None
    image_size: int | None = None
    hours: float = 1.0
    num_images: Mapping[str, int] = field(default_factory=dict)
    data_root: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A design of a study. A file in this folder exports one as `SUITE`.

    Attributes:
        name: its file's name, with "-" for "_".
        question: what the study is to answer, for people.
        cells: options -> what is to be trained.
        figures: files of bench/report/figures/ that its report draws.
        questions: files of bench/questions/ that its report asks; None for all that there are.
        title: the file of bench/questions/ whose answer titles its report, decided or not; "" where the figures and the
            order of questions say which.
        headline: tasks (NAME:DATA) or downstream sets that answer its question; not the title of its report. "upstream"
            among them: where none of these is scored, the test images of the set that was trained on.
        far: downstream sets that are unlike the upstream set.
        downstream: all downstream sets, or those of each scale; None for the headline and the far ones.
        varies: axis -> fields of a recipe that its cells differ in on purpose. The others are equal along the axis.
        exclusive: cells measure time, so that one worker has the machine to itself.
        compares_changes: its models are baselines, each trained beside the same with every `--change`.
        advises: it says which model to take, so that a plan says which differences its test images can show.
        compares_finetuning: it compares fine-tuning with frozen features, which a plan leaves out where it takes long.
        purpose: "check" where its numbers mean nothing.
        takes: how long it took at scale `cpu` on two cores; "" where nobody measured it.
    """

    name: str
    question: str
    cells: Callable[[SuiteOptions], list[Cell]]
    figures: tuple[str, ...] = ()
    questions: tuple[str, ...] | None = None
    title: str = ""
    headline: tuple[str, ...] = ()
    far: tuple[str, ...] = ()
    downstream: tuple[str, ...] | Mapping[str, tuple[str, ...]] | None = None
    varies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclusive: bool = False
    compares_changes: bool = False
    advises: bool = False
    compares_finetuning: bool = False
    purpose: str = ""
    takes: str = ""

    def downstream_at(self, scale: str) -> tuple[str, ...]:
        """Downstream sets of a scale."""
        if self.downstream is None:
            return (*self.headline, *self.far)
        return self.downstream.get(scale, ()) if isinstance(self.downstream, Mapping) else self.downstream


def load(name: str) -> Suite:
    """The suite of this name.

    Raises:
        UserError: there is none; suggests the nearest.
    """
    suite: Suite = registry.load("suite", name)
    return suite


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


def trained_once(cells: Iterable[Cell]) -> list[Cell]:
    """The cells with every training once: those that differ in nothing but budgets, tasks and axes become one, which
    has all of these. Training is what costs, and none of the three changes it."""
    once: dict[Cell, Cell] = {}
    for cell in cells:
        training = replace(cell, horizons=(0,), tasks=())
        other = once.setdefault(training, cell)
        if other is not cell:
            once[training] = replace(
                other,
                horizons=tuple(sorted({*other.horizons, *cell.horizons})),
                tasks=tuple(dict.fromkeys(other.tasks + cell.tasks)),
                axes=tuple(dict.fromkeys(other.axes + cell.axes)),
            )
    return list(once.values())


def shortest_budget(cells: Iterable[Cell]) -> int:
    """Images of the shortest budget that is trained; 0 where nothing is."""
    return min((h for cell in cells if cell.job == "train" for h in cell.horizons if h), default=0)


def fitting(model: str, size: int) -> int:
    """The multiple of the model's patch size nearest to `size`: 14 px patches do not divide 64, 128 or 384."""
    patch = patch_of(model)
    return max(patch, round(size / patch) * patch)


def patched(model: str, size: int) -> str:
    """The model in the patch nearest to its own (by ratio, the larger of two) that divides `size`: at 64 px
    ViT-pico/7 -> ViT-pico/8. The model itself where none does, or where it has no patches."""
    patch, stem = patch_of(model), ModelName.parse(model).base.rpartition("/")[0]
    if size % patch == 0:
        return model
    divisors = [number for number in range(1, size + 1) if size % number == 0]
    nearest = sorted(divisors, key=lambda number: (abs(math.log(number / patch)), -number))
    offered = (model.replace(f"{stem}/{patch}", f"{stem}/{number}", 1) for number in nearest)
    families = tuple(registry.families())
    accepted = (name for name in offered if any(f.accepts(ModelName.parse(name).base) for f in families))
    return next(accepted, model)


def patch_of(model: str) -> int:
    """The total down-sampling in a model's name; 1 where it has none."""
    if model.startswith("R+"):
        return 32  # the stem-only hybrid: its name is not its down-sampling
    base = ModelName.parse(model).base
    last = base.rpartition("/")[2]
    return int(last) if "/" in base and ":" not in base and last.isdigit() else 1
