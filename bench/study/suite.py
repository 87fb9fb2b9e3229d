"""`Suite`, the design of a study; the options that a suite is called with; and functions that suites share."""

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
    """Options that a suite is called with. None stands for the suite's own choice at that scale.

    Attributes:
        scale: one of SCALES.
        models: names of models.
        data: names of upstream (pre-training) sets.
        sizes: numbers of training images that a comparison over images has, ascending.
        seeds: number of seeds.
        image_size: pixels per side.
        hours: at scale `gpu`, hours on one data-centre GPU; budgets and the size of images are chosen to fit.
        num_images: at scale `paper`, name of a data set that the user named -> its number of training images.
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
    """The design of a study. A file in bench/suites/ exports one as `SUITE`.

    Attributes:
        name: the file's name, with "-" for "_".
        question: the question that the study answers, for people.
        cells: returns the cells to train for given options.
        figures: names of the figures in its report (files of bench/report/figures/).
        questions: names of the questions that its report answers (files of bench/questions/); None for all.
        title: name of the question whose answer is the title of its report, conclusive or not; "" if the figures and
            the order of questions decide which.
        headline: main tasks (NAME:DATA) or downstream sets, by which the question is answered; unrelated to `title`. If
            "upstream" is among them and no other of them is scored, the test images of the upstream set are used.
        far: downstream sets that are unlike the upstream set.
        downstream: all downstream sets, or scale -> those of that scale; None for `headline` and `far` together.
        varies: axis -> fields of a recipe in which its cells differ on purpose. All others are equal along the axis.
        exclusive: whether cells measure time, so that one worker must have the machine to itself.
        compares_changes: whether its models are baselines, each also trained with every `--change`.
        advises: whether it recommends a model; its plan then says which differences the test images can show.
        compares_finetuning: whether it compares fine-tuning with frozen features; a plan leaves fine-tuning out where
            it takes long.
        purpose: "check" if its numbers mean nothing and it only checks that everything runs.
        takes: how long it took at scale `cpu` on two cores; "" if that was not measured.
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
        """Return the downstream sets at a scale."""
        if self.downstream is None:
            return (*self.headline, *self.far)
        return self.downstream.get(scale, ()) if isinstance(self.downstream, Mapping) else self.downstream


def load(name: str) -> Suite:
    """Return the suite of this name.

    Raises:
        UserError: there is none; the nearest names are suggested.
    """
    suite: Suite = registry.load("suite", name)
    return suite


def pick(kind: str, scale: str, table: Mapping[str, T]) -> T:
    """Return the entry of a table for a scale. `kind`: what the table holds, for the error message.

    Raises:
        UserError: the suite has no such scale.
    """
    if scale not in table:
        raise UserError(f"This suite has no scale {scale!r} for its {kind}.", f"It has: {', '.join(table)}.")
    return table[scale]


def task(name: str, data: str, **options: Any) -> TaskSpec:
    """Return the evaluation of a task on a downstream data set, with the task's own options."""
    return TaskSpec(task=name, data=data, options=tuple(options.items()))


def merge(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells without duplicates: equal cells become one, with the axes (comparisons) of all of them."""
    merged: dict[Cell, Cell] = {}
    for cell in cells:
        other = merged.setdefault(cell, cell)
        if other is not cell:
            merged[cell] = replace(other, axes=tuple(dict.fromkeys(other.axes + cell.axes)))
    return list(merged.values())


def trained_once(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells with every training only once: cells that differ only in budgets, tasks and axes become one with
    all of these, because training is the expensive part and none of the three changes it."""
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
    """Return the shortest budget above 0 of all cells, in images seen; 0 if nothing is trained."""
    return min((h for cell in cells if cell.job == "train" for h in cell.horizons if h), default=0)


def fitting(model: str, size: int) -> int:
    """Return the multiple of the model's patch size that is nearest to `size`, in pixels per side: 14 px patches do not
    divide 64, 128 or 384."""
    patch = patch_of(model)
    return max(patch, round(size / patch) * patch)


def patched(model: str, size: int) -> str:
    """Return the name of the model with the patch size that divides `size` pixels and is nearest to its own by ratio
    (the larger of two equally near): at 64 px ViT-pico/7 -> ViT-pico/8. The name is unchanged if there is none, or if
    the model has no patches."""
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
    """Return the total down-sampling factor (the patch size in pixels) in a model's name; 1 if it has none."""
    if model.startswith("R+"):
        return 32  # the stem-only hybrid, whose name does not state its down-sampling
    base = ModelName.parse(model).base
    last = base.rpartition("/")[2]
    return int(last) if "/" in base and ":" not in base and last.isdigit() else 1
