"""A pass for --rehearse: cuts all cells down so that each takes seconds and what would break after a week breaks now.

These are cut: the depth of networks, and the width of the widest, as their family says (`ModelFamily.rehearsed`); the
number of images (`bench.data.rehearsed`); the size of images, unless the user asked for one or a network is made for
one; budgets, batches and the warm-up; the steps of tasks, as each says (`Task.rehearsed`). Values that differ between
cells still differ: of several sizes, budgets, batches or numbers of images, the smallest gets the smallest cut value,
the next the next. Names, learning rates, losses, schedules, augmentation, tasks, seeds and comparisons stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from bench.core.by_key import by_key
from bench.core.formatting import join
from bench.data import rehearsed
from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study import registry
from bench.study.cell import Cell, Recipe, TaskSpec
from bench.study.names import ModelName
from bench.study.suite import patch_of
from bench.train import schedule

SIDE = 32  # pixels per side of the smallest image; more where patches would leave fewer than two rows
NEXT_SIDE = 16  # least difference between two sizes, in pixels per side
BATCH, NEXT_BATCH = 16, 8  # the smallest batch size, and the difference to each larger one
STEPS, NEXT_STEPS = 4, 2  # steps of the shortest budget, and the difference to each longer one
MIN_IMAGES, NEXT_IMAGES = 2 * rehearsed.CLASSES, 4  # the shortest budget sees all images of such a part


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study with every cell cut down, and with a note on what a rehearsal is."""
    cut = _Cuts.of(study.cells, keeps_sizes=request.what.image_size is not None)
    cells = tuple(cut.cell(cell) for cell in study.cells)
    names = dict.fromkeys(name for cell in cells for name in (cell.data, *(task.data for task in cell.tasks)))
    root = request.sizes.root
    made_up = [name for name in names if not rehearsed.is_real(name, root=root)]
    notes = [
        "A rehearsal, whose numbers mean nothing: networks of a block or a few, at most "
        f"{rehearsed.TRAIN:,} images of a set, budgets from {STEPS} steps of {BATCH} images. Its cost is not measured."
    ]
    if made_up:
        notes.append(f"Generated, since these sets are not on this machine: {join(made_up)}.")
    return replace(study, cells=cells, notes=(*notes, *study.notes))


@dataclass(frozen=True, kw_only=True)
class _Cuts:
    """What each value of a study becomes in its rehearsal.

    Attributes:
        sides: (model, pixels per side of its images) -> pixels per side in the rehearsal.
        batches: batch size -> batch size in the rehearsal.
        steps: (model, budget in images) -> steps in the rehearsal.
        images: (data set, number of its images that are trained on) -> number in the rehearsal.
    """

    sides: Mapping[tuple[str, int], int]
    batches: Mapping[int, int]
    steps: Mapping[tuple[str, int], int]
    images: Mapping[tuple[str, int], int]

    @classmethod
    def of(cls, cells: Iterable[Cell], *, keeps_sizes: bool) -> _Cuts:
        every = list(cells)
        sides = by_key((cell.model, side) for cell in every for side in _sides(cell))
        budgets = by_key((cell.model, horizon) for cell in every for horizon in cell.horizons if horizon)
        parts = by_key((cell.data, cell.num_images) for cell in every if cell.num_images is not None)
        return cls(
            sides={
                (model, old): old if keeps_sizes else new
                for model, values in sides.items()
                for old, new in _cut_sides(model, values).items()
            },
            batches=_ranked((cell.recipe.batch for cell in every), lambda rank: BATCH + rank * NEXT_BATCH),
            steps={
                (model, old): STEPS + rank * NEXT_STEPS
                for model, values in budgets.items()
                for rank, old in enumerate(sorted(set(values)))
            },
            images={
                (data, old): min(old, MIN_IMAGES + rank * NEXT_IMAGES)
                for data, values in parts.items()
                for rank, old in enumerate(sorted({number for number in values if number is not None}))
            },
        )

    def cell(self, cell: Cell) -> Cell:
        """Return the cell, cut down for a rehearsal."""
        family = registry.family_of(cell.model)
        named = ModelName.parse(cell.model).options
        options = {**dict(cell.model_options)}
        options |= {
            name: min(options.get(name, named.get(name, most)), most) for name, most in family.rehearsed.items()
        }
        recipe = self._recipe(cell.recipe)
        horizons = tuple(h and self.steps[cell.model, h] * recipe.batch for h in cell.horizons)
        if recipe.decay in schedule.SHAPES:  # the decay spans the whole training, as before
            recipe = replace(recipe, timescale_images=horizons[-1])
        return replace(
            cell,
            rehearsal=True,
            num_images=None if cell.num_images is None else self.images[cell.data, cell.num_images],
            image_size=self.sides[cell.model, cell.image_size],
            recipe=recipe,
            horizons=horizons,
            tasks=tuple(self._task(task, cell.model) for task in cell.tasks),
            model_options=tuple(options.items()),
        )

    def _recipe(self, recipe: Recipe) -> Recipe:
        batch = self.batches[recipe.batch]
        return replace(
            recipe,
            batch=batch,
            micro_batch=batch // 2 if recipe.micro_batch else 0,
            warmup_images=batch if recipe.warmup_images else 0,
            timescale_images=2 * batch if recipe.timescale_images else 0,
        )

    def _task(self, task: TaskSpec, model: str) -> TaskSpec:
        options = task.kwargs
        if (cut := registry.load("task", task.task).rehearsed) is not None:
            number = rehearsed.training_images(task.data) or rehearsed.TRAIN
            options |= cut(num_train=number, num_classes=rehearsed.CLASSES, **options)
        if options.get("image_size"):
            options["image_size"] = self.sides[model, options["image_size"]]
        return replace(task, options=tuple(options.items()))


def _sides(cell: Cell) -> list[int]:
    """Return the sizes of images, in pixels per side, at which a cell's network is used."""
    return [cell.image_size, *(size for task in cell.tasks if (size := task.kwargs.get("image_size")))]


def _cut_sides(model: str, sides: Iterable[int]) -> dict[int, int]:
    """Return size of images -> size in the rehearsal, in pixels per side. The new size is at least two rows of the
    model's patches, and whole patches; a model that takes only one size keeps it."""
    if registry.own_image_size(model) is not None:
        return {side: side for side in sides}
    patch = patch_of(model)
    first, step = max(2, -(-SIDE // patch)), -(-NEXT_SIDE // patch)
    return _ranked(sides, lambda rank: (first + rank * step) * patch)


def _ranked(values: Iterable[int], cut: Callable[[int], int]) -> dict[int, int]:
    """Return value -> cut value. The cut value is what `cut` gives for the value's rank (0 for the smallest), or the
    value itself if that is less. Different values stay different."""
    return {value: min(value, cut(rank)) for rank, value in enumerate(sorted(set(values)))}


PASS = Pass(apply=apply, needed=lambda r: r.what.rehearse, after=("changes",))
