"""A pass that fits budgets to --hours: it multiplies all horizons (budgets) of a study by one factor, so that the study
takes about that long.

The factor follows from FLOPs, a device's published peak, and the utilisation that training at these sizes is taken to
reach, never from a measurement: the same command is the same study on every day, so that a run can go on. The plan,
which measures, says what the study will really take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.core.errors import UserError
from bench.core.formatting import compact, join, significant
from bench.cost import flops
from bench.cost.peaks import TERA, Accelerator, accelerator
from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study import registry
from bench.study.cell import Cell
from bench.train.schedule import images_trained

UTILISATION = {"ViT": 0.25, "Hybrid": 0.12, "ResNet": 0.10}
"""Family -> fraction of the bfloat16 peak that training is taken to reach. It is assumed, for images of 64 to 224 px,
below what large models reach at 224 px."""
OTHER_UTILISATION = 0.10  # the same for a family that is not in the table
TRAINING_SHARE = 0.75  # fraction of the hours that is training; the rest is evaluation, starts and opening of data
MIN_BUDGET_SHARE = 0.25  # the largest model is left out rather than cut budgets below this fraction
ASSUMED_CLASSES = 1_000  # classes of the head that FLOPs are counted with
ALLOWED_HOURS = (0.05, 10_000.0)  # least and most


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study with budgets that fit --hours.

    Raises:
        UserError: budgets are also given by --horizons; the suite has no budgets to fit; the hours are out of range.
    """
    what = request.what
    if what.hours is not None and request.gives_budgets:
        raise UserError(
            "--hours chooses the budgets that --horizons gives.",
            "Give one of them; --image-size sets the size of images.",
        )
    if request.fits_budgets_to_hours:
        asked = request.suite_options.hours
        within = within_hours(study.cells, hours=asked, device=request.device_name, keep=what.models or ())
        return replace(study, cells=within.cells, notes=(*study.notes, within.note))
    if not request.keeps_fitted_budgets:
        raise UserError(
            f"--hours chooses budgets of scale gpu, and {request.suite.name} at scale {what.scale} has none such.",
            "Give --scale gpu, or --horizons.",
        )
    return study


@dataclass(frozen=True, kw_only=True)
class InHours:
    """Cells whose budgets fit the hours, and a note on how the budgets were chosen."""

    cells: tuple[Cell, ...]
    note: str


def within_hours(cells: Sequence[Cell], *, hours: float, device: str, keep: Sequence[str] = ()) -> InHours:
    """Return the cells with budgets that together take about so many hours on one device, and a note on how they were
    chosen. If budgets would become too short, the largest models are left out.

    Args:
        device: name of the device in the table of `bench.cost.peaks`.
        keep: models that are never left out, because the user named them.

    Raises:
        UserError: the device is not known; the hours are out of range.
    """
    if not ALLOWED_HOURS[0] <= hours <= ALLOWED_HOURS[1]:
        raise UserError(
            f"--hours {compact(hours)} is out of range.", f"From {ALLOWED_HOURS[0]:g} to {ALLOWED_HOURS[1]:,.0f}."
        )
    row, seconds = accelerator(device), hours * 3600 * TRAINING_SHARE
    cost = {(c.model, c.image_size, c.channels): 0.0 for c in cells if c.job == "train" and c.horizons != (0,)}
    for model, side, channels in cost:
        cost[model, side, channels] = _seconds_per_image(model, side, channels, row)
    left, dropped = list(cells), []
    while (total := sum(_seconds(cell, cost) for cell in left)) * MIN_BUDGET_SHARE > seconds:
        models = {cell.model: cost.get((cell.model, cell.image_size, cell.channels), 0.0) for cell in left}
        largest = _largest(models, keep)
        if largest is None:
            break
        left = [cell for cell in left if cell.model != largest]
        dropped.append(largest)
    factor = float(f"{seconds / total:.1g}") if total else 1.0
    note = (
        f"Budgets are for about {significant(hours)} h on one {row.name}: the suite's x {compact(factor)}, from FLOPs "
        f"and the utilisation assumed for each family ({', '.join(f'{k} {v:.0%}' for k, v in UTILISATION.items())})."
    )
    if dropped:
        note += f" Left out for want of time: {join(dropped)}."
    return InHours(cells=tuple(_scaled(cell, factor) for cell in left), note=note)


def _largest(models: dict[str, float], keep: Sequence[str]) -> str | None:
    """Return the costliest model that may be left out; None if there is none. A model may be left out if its family has
    others, and if it is not in `keep`.

    Args:
        models: model -> seconds per image.
    """
    families = {model: registry.family_of(model).label for model in models}
    spare = [
        model
        for model in models
        if models[model] and model not in keep and list(families.values()).count(families[model]) > 1
    ]
    return max(spare, key=models.__getitem__, default=None)


def _scaled(cell: Cell, factor: float) -> Cell:
    horizons = tuple(sorted({round(horizon * factor) for horizon in cell.horizons}))
    return cell if cell.job != "train" or horizons == (0,) else replace(cell, horizons=horizons)


def _seconds(cell: Cell, cost: dict[tuple[str, int, int], float]) -> float:
    if cell.job != "train" or cell.horizons == (0,):
        return 0.0
    return images_trained(cell.recipe, cell.horizons) * cost[cell.model, cell.image_size, cell.channels]


def _seconds_per_image(model: str, side: int, channels: int, row: Accelerator) -> float:
    count = flops.count(model, image_size=side, channels=channels, num_classes=ASSUMED_CLASSES, activations=False)
    used = UTILISATION.get(registry.family_of(model).label, OTHER_UTILISATION)
    return count.train_flops_per_image["dense"] / (used * row.tera["bfloat16"] * TERA)


PASS = Pass(apply=apply, needed=lambda r: r.fits_budgets_to_hours or r.what.hours is not None, after=("images",))
