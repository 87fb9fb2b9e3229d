"""How a cell is really trained, apart from its budgets: what cells that are compared with each other must share."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bench.study.cell import RECIPE_REVISION, Cell
from bench.train.schedule import longest_warmup, warmup_steps

LAST_CAPPED_REVISION = (
    2  # last revision of the recipe whose warm-up was capped at a quarter of a cell's own shortest budget
)


@dataclass(frozen=True, kw_only=True)
class EffectiveRecipe:
    """`warmup_steps` are those that were done. `cooldown`: share of a budget. `augmentation`: of training images."""

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
"""Field -> what it is called."""


@dataclass(frozen=True, kw_only=True)
class TrainingOnAxis:
    """One training of an axis."""

    model: str
    data: str
    recipe: EffectiveRecipe


def effective_recipe(cell: Cell, *, revision: int = RECIPE_REVISION) -> EffectiveRecipe:
    """The effective recipe of a cell. Budgets do not change it.

    Args:
        revision: of the recipe that trained it; old ones capped the warm-up.
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
    """Field -> its values, of every field in which trainings that are compared differ and should not.

    Warm-up, batch and cool-down are one for all. Augmentation is one for each data set: letters are not mirrored. The
    learning rate is one for each model on each data set.

    Args:
        varies: fields that differ on purpose.
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
