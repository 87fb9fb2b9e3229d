"""Show how each cell of a study is really trained, such as its warm-up in steps, in images and as a fraction of the
shortest budget: one table for each axis, which is a comparison of the suite, such as over compute.

Models that are compared along an axis have to be trained alike but for the axis; the line below its table says whether
they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Console
from rich.text import Text

from bench.core.console import add_row, make_table, show_table, write
from bench.core.device import find_device
from bench.core.formatting import count, join
from bench.cost import peaks
from bench.plan import preflight
from bench.plan.expand import expand
from bench.plan.sizes import DataSizes
from bench.study import suite as suites
from bench.study.cell import Cell
from bench.study.options import StudyOptions
from bench.train.effective import WORDS, EffectiveRecipe, TrainingOnAxis, differences, effective_recipe
from bench.train.schedule import total_steps

COLUMNS = ("model", "upstream", "warm-up", "images", "of shortest budget", "batch", "rate", "cool-down", "augmentation")
NUMBERS = ("warm-up", "images", "of shortest budget", "batch", "rate", "cool-down")


@dataclass(frozen=True, kw_only=True)
class RecipeRow:
    """The cells that train one model on one data set by one recipe.

    Attributes:
        model: name of the model.
        data: the upstream (pre-training) set, as NAME or NAME@N.
        shortest: images of their shortest budget.
        recipe: how they are trained.
    """

    model: str
    data: str
    shortest: int
    recipe: EffectiveRecipe

    @property
    def share(self) -> float:
        """The fraction of the shortest budget that is warm-up."""
        return self.recipe.warmup_steps / total_steps(self.shortest, self.recipe.batch)


@dataclass(frozen=True, kw_only=True)
class RecipeAxis:
    """How the cells of one axis (a comparison of the suite) are trained.

    Attributes:
        name: name of the axis; "" for cells that are on none.
        rows: the trainings on the axis.
        differ: field of the recipe -> its values, for each field in which rows differ and should not.
        varies: fields in which rows differ on purpose.
    """

    name: str
    rows: tuple[RecipeRow, ...]
    differ: dict[str, tuple[str, ...]]
    varies: tuple[str, ...]

    def json(self) -> dict[str, Any]:
        """Return the recipes as JSON types."""
        rows = [
            {"model": r.model, "data": r.data, "shortest": r.shortest, "share": r.share, **asdict(r.recipe)}
            for r in self.rows
        ]
        return {"axis": self.name, "equal": not self.differ, "differ": self.differ, "varies": self.varies, "rows": rows}


def axes(options: StudyOptions) -> tuple[RecipeAxis, ...]:
    """Return how the cells of each axis of a study are trained. Nothing is measured.

    Raises:
        UserError: as `bench.plan.expand.expand` raises it.
    """
    suite = suites.load(options.what.suite)
    device, reason = find_device(options.machine.device)
    what = replace(options.what, scale=preflight.resolve_scale(options.what.scale, device))
    row, named = peaks.accelerator_of(reason), options.pricing.accelerator
    sizes = DataSizes(root=options.where.data_root, published=what.scale == "paper")
    only, there = options.selection.only, named or (row.name if row else "H100")
    grid = expand(suite, what, options.overrides, sizes, only=only, device_name=there)
    return by_axis(grid.chosen, suite.varies)


def by_axis(cells: tuple[Cell, ...], varied: Mapping[str, tuple[str, ...]]) -> tuple[RecipeAxis, ...]:
    """Return how the cells that train something are trained, grouped by axis.

    Args:
        varied: axis -> fields of a recipe in which its cells differ on purpose.
    """
    grouped: dict[str, dict[RecipeRow, None]] = {}
    for cell in cells:
        if cell.job == "train" and any(cell.horizons):
            shortest = min(h for h in cell.horizons if h)
            row = RecipeRow(model=cell.model, data=cell.data_name, shortest=shortest, recipe=effective_recipe(cell))
            for axis in cell.axes or ("",):
                grouped.setdefault(axis, {})[row] = None
    made = []
    for name, rows in grouped.items():
        varies = varied.get(name, ())
        compared = (TrainingOnAxis(model=r.model, data=r.data.partition("@")[0], recipe=r.recipe) for r in rows)
        made.append(RecipeAxis(name=name, rows=tuple(rows), differ=differences(compared, varies=varies), varies=varies))
    return tuple(made)


def show(axes: tuple[RecipeAxis, ...], console: Console) -> None:
    """Print a table for each axis, and below it whether its models are trained alike."""
    if not axes:
        write(console, "This study trains nothing.")
    for axis in axes:
        title = f"{axis.name.replace('_', ' ') or 'no'} axis"
        console.print(Text(title, style="bold"), soft_wrap=True)
        table = make_table(*COLUMNS, right=NUMBERS)
        for row in axis.rows:
            used = row.recipe
            images = count(used.warmup_steps * used.batch)
            add_row(
                table,
                *(row.model, row.data, f"{count(used.warmup_steps)} steps", images, f"{row.share:.1%}"),
                *(str(used.batch), f"{used.lr:g}", f"{used.cooldown:g}", used.augmentation),
            )
        show_table(table, console, spare=("augmentation", "cool-down", "batch", "rate"))
        write(console, _sentence(axis))


def _sentence(axis: RecipeAxis) -> str:
    title = axis.name.replace("_", " ") or "no"
    purpose = f" The suite varies {join([v.replace('_', ' ') for v in axis.varies])} on purpose." if axis.varies else ""
    if axis.differ:
        apart = "; ".join(f"{WORDS[name]} {join(values)}" for name, values in axis.differ.items())
        return f"Not equal along the {title} axis: {apart}.{purpose}"
    steps = sorted({row.recipe.warmup_steps for row in axis.rows})
    return f"Equal along the {title} axis: warm-up of {join([count(n) for n in steps])} steps.{purpose}"
