"""Find the settings by which a cell (one training run) is actually trained, apart from its budgets. Cells that are
compared with each other must agree in these settings."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bench.study.cell import RECIPE_REVISION, Cell
from bench.train.schedule import longest_warmup, warmup_steps

LAST_CAPPED_REVISION = (
    2  # up to this revision of the recipe, warm-up was capped at a quarter of the cell's own shortest budget
)


@dataclass(frozen=True, kw_only=True)
class EffectiveRecipe:
    """The settings by which a cell (one training run) is actually trained.

    Attributes:
        warmup_steps: steps of warm-up that were really done.
        batch: images per step.
        lr: peak learning rate.
        cooldown: fraction of a budget over which the learning rate is cooled down to zero.
        augmentation: augmentation of training images, in words.
    """

    warmup_steps: int
    batch: int
    lr: float
    cooldown: float
    augmentation: str


WORDS = {
    "warmup_steps": "warm-up steps",
    "batch": "batch",
    "lr": "learning rate",
    "cooldown": "cool-down share",
    "augmentation": "augmentation",
}
"""Field of `EffectiveRecipe` -> its name in texts."""


@dataclass(frozen=True, kw_only=True)
class TrainingOnAxis:
    """One training run of a comparison (an axis of a study): the names of its model and of its training data, and the
    settings by which it is actually trained."""

    model: str
    data: str
    recipe: EffectiveRecipe


def effective_recipe(cell: Cell, *, revision: int = RECIPE_REVISION) -> EffectiveRecipe:
    """Return the settings by which a cell (training run) is actually trained. Its budgets matter only up to
    `LAST_CAPPED_REVISION`.

    Args:
        revision: revision of recipes with which the cell was trained. Up to `LAST_CAPPED_REVISION`, recipes capped the
            warm-up at a quarter of the cell's shortest budget.
    """
    recipe, steps = cell.recipe, warmup_steps(cell.recipe)
    most = longest_warmup(cell.horizons, recipe.batch)
    if revision <= LAST_CAPPED_REVISION and most is not None:
        steps = min(steps, most)
    used = {"shift": recipe.shift, "flip": recipe.flip, "crop": recipe.crop}
    words = [f"{name} {value:g}" for name, value in used.items() if value]
    augmentation = ", ".join(words + [recipe.augmentation] * (recipe.augmentation != "none")) or "none"
    return EffectiveRecipe(
        warmup_steps=steps, batch=recipe.batch, lr=recipe.lr, cooldown=recipe.cooldown, augmentation=augmentation
    )


def differences(compared: Iterable[TrainingOnAxis], *, varies: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """Return the settings in which trainings that are compared differ, but should not: field of `EffectiveRecipe` ->
    its different values, as texts.

    Warm-up, batch and cool-down must be the same for all; augmentation for all on one data set (letters are not
    mirrored); the learning rate for all of one model on one data set.

    Args:
        compared: the trainings.
        varies: fields that differ on purpose, which are left out.
    """
    all_of_them = list(compared)
    values: dict[str, dict[tuple[str, ...], set[str | float]]] = {}
    for one in all_of_them:
        within = {"augmentation": (one.data,), "lr": (one.data, one.model)}
        for field in WORDS:
            mine = values.setdefault(field, {}).setdefault(within.get(field, ()), set())
            mine.add(getattr(one.recipe, field))
    return {
        field: tuple(
            f"{value:g}" if not isinstance(value, str) else value
            for value in sorted(apart, key=lambda value: (isinstance(value, str), value))
        )
        for field, groups in values.items()
        if field not in varies and (apart := set().union(*(fields for fields in groups.values() if len(fields) > 1)))
    }
