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
    """The options that a suite's function `cells` is called with. None stands for the suite's own choice at that scale.

    Attributes:
        scale: one of SCALES.
        models: names of models.
        data: names of upstream (pre-training) data sets.
        sizes: numbers of training images that are compared in a comparison over numbers of images, ascending.
        seeds: number of seeds, that is of repetitions of each training run.
        image_size: pixels per side of the model's input.
        hours: (scale `gpu` only) hours on one data-centre GPU, which budgets and image size are chosen to fit.
        num_images: (scale `paper` only) name of each data set that the user named -> its number of training images.
        data_root: folder with data sets that do not come with the installation; None for none.
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
        cells: function that returns the cells (training runs with their evaluations) for given options.
        figures: names of the figures in its report (files of bench/report/figures/).
        questions: names of the questions that its report answers (files of bench/questions/); None for all.
        title: name of the question whose answer, conclusive or not, is the title of the report; "" if the figures and
            the order of questions decide which answer is the title.
        headline: main tasks (NAME:DATA) or downstream data sets, by whose mean score the question is answered;
            unrelated to `title`. If "upstream" is among them and none of the others is scored, the score on the test
            images of the upstream set is used.
        far: downstream data sets that are unlike the upstream set.
        downstream: all downstream data sets, or scale -> those of that scale; None for `headline` and `far` together.
        varies: axis (comparison) -> fields of a recipe in which the axis' cells differ on purpose. All other fields are
            equal along the axis.
        exclusive: whether the cells measure time, so that one worker must have the machine to itself.
        compares_changes: whether the suite's models are baselines, each of which is also trained with every `--change`.
        advises: whether the suite recommends a model. Its plan then says which differences in accuracy the number of
            test images can show.
        compares_finetuning: whether the suite compares fine-tuning with frozen features. A plan leaves fine-tuning out
            where it takes long.
        purpose: "check" if the suite only checks that everything runs, and its numbers mean nothing; else "".
        takes: how long the suite took at scale `cpu` on two cores, in words; "" if that was not measured.
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
        """Return the names of the downstream data sets at a scale."""
        if self.downstream is None:
            return (*self.headline, *self.far)
        return self.downstream.get(scale, ()) if isinstance(self.downstream, Mapping) else self.downstream


def load(name: str) -> Suite:
    """Return the suite of this name.

    Raises:
        UserError: there is no such suite; the message suggests the nearest names.
    """
    suite: Suite = registry.load("suite", name)
    return suite


def pick(kind: str, scale: str, table: Mapping[str, T]) -> T:
    """Return the entry for a scale in a table: scale -> entry. `kind`: what the entries are, for the error message.

    Raises:
        UserError: the table has no such scale.
    """
    if scale not in table:
        raise UserError(f"This suite has no scale {scale!r} for its {kind}.", f"It has: {', '.join(table)}.")
    return table[scale]


def task(name: str, data: str, **options: Any) -> TaskSpec:
    """Return the specification of one evaluation: the task `name` on the downstream data set `data`, with these options
    of the task."""
    return TaskSpec(task=name, data=data, options=tuple(options.items()))


def merge(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells without duplicates: equal cells become one cell that has the axes (comparisons) of all."""
    merged: dict[Cell, Cell] = {}
    for cell in cells:
        other = merged.setdefault(cell, cell)
        if other is not cell:
            merged[cell] = replace(other, axes=tuple(dict.fromkeys(other.axes + cell.axes)))
    return list(merged.values())


def trained_once(cells: Iterable[Cell]) -> list[Cell]:
    """Return cells that do every training only once: cells that differ only in horizons (budgets), tasks and axes
    (comparisons) become one cell with all of these. Training is expensive, and none of these three changes it."""
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
    """Return the shortest budget above 0 of all cells that train, in images seen; 0 if no cell trains."""
    return min((h for cell in cells if cell.job == "train" for h in cell.horizons if h), default=0)


def fitting(model: str, size: int) -> int:
    """Return the multiple of the model's patch size that is nearest to `size`, in pixels per side. It is needed where
    patches do not divide the image, such as patches of 14 px and images of 64, 128 or 384 px."""
    patch = patch_of(model)
    return max(patch, round(size / patch) * patch)


def patched(model: str, size: int) -> str:
    """Return the name of the model with another patch size: the one that divides `size` pixels and is nearest to the
    model's own by ratio (the larger of two that are equally near). For 64 px, ViT-pico/7 becomes ViT-pico/8. The name
    is unchanged if its patch size divides `size`, no other name is accepted, or the model has no patches."""
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
    """Return the total down-sampling factor (the patch size in pixels) that a model's name states; 1 if the name states
    none."""
    if model.startswith("R+"):
        return 32  # the stem-only hybrid, whose name does not state its down-sampling
    base = ModelName.parse(model).base
    last = base.rpartition("/")[2]
    return int(last) if "/" in base and ":" not in base and last.isdigit() else 1
