"""A pass for --grid: keeps the part of a suite's grid that is listed in a study file, in lines of the form MODEL=H1,H2
xN or MODEL@IMAGES=H xN.

    grid = ["ViT-pico/14=4000,16000 x3", "ViT-pico/14@1000=32000 x1"]

H1, H2, … are budgets in images, among the suite's own, and N is the number of seeds. The untrained network is evaluated
where the suite evaluates it. Cells that train nothing stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.core.errors import UserError, nearest
from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study.cell import Cell

LINE = re.compile(
    r"(?P<model>.+?)(?:@(?P<images>[1-9][0-9]{0,11}))?=(?P<horizons>[0-9]+(?:,[0-9]+)*) x(?P<seeds>[1-9][0-9]{0,2})"
)


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the part of the study that --grid names.

    Raises:
        UserError: a line cannot be parsed, or names what the suite does not train.
    """
    cells = within(study.cells, request.overrides.grid, own_budgets=request.keeps_fitted_budgets)
    return replace(study, cells=tuple(cells))


@dataclass(frozen=True, kw_only=True)
class GridLine:
    """One line of a grid.

    Attributes:
        model: name of the model.
        images: number of images that it is trained on; None: all.
        horizons: budgets in images, ascending.
        seeds: number of seeds.
    """

    model: str
    images: int | None
    horizons: tuple[int, ...]
    seeds: int

    @property
    def unit(self) -> tuple[str, int | None]:
        return self.model, self.images

    def __str__(self) -> str:
        images = "" if self.images is None else f"@{self.images}"
        return f"{self.model}{images}={','.join(map(str, self.horizons))} x{self.seeds}"


def parse(text: str) -> GridLine:
    """Parse one line of a grid, such as "ViT-pico/14=4000,16000 x2".

    Raises:
        UserError: the line has another form.
    """
    match = LINE.fullmatch(text.strip())
    if match is None:
        raise UserError(f"{text!r} is no line of a grid.", "For example 'ViT-pico/14=4000,16000 x2'.")
    images = None if match["images"] is None else int(match["images"])
    horizons = tuple(sorted({int(number) for number in match["horizons"].split(",")}))
    return GridLine(model=match["model"], images=images, horizons=horizons, seeds=int(match["seeds"]))


def within(cells: Sequence[Cell], lines: Sequence[str], *, own_budgets: bool = False) -> list[Cell]:
    """Return the cells that lines of a grid name, at the budgets of the lines; all cells if there are no lines.

    Args:
        lines: lines such as "ViT-pico/14=4000,16000 x2".
        own_budgets: whether the lines' budgets replace those of the suite. Budgets that are fitted to hours depend on
            all that is trained, and so change when the grid becomes smaller.

    Raises:
        UserError: a line cannot be parsed, or names what the suite does not train.
    """
    if not lines:
        return list(cells)
    wanted = {line.unit: line for line in map(parse, lines)}
    kept, used = [], set()
    for cell in cells:
        line = wanted.get((cell.model, cell.num_images))
        if cell.job != "train" or cell.horizons == (0,):
            kept.append(cell)
        elif line is not None:
            used.add(line.unit)
            if own_budgets:
                cell = replace(cell, horizons=(*({0} & set(cell.horizons)), *line.horizons))
            horizons = tuple(h for h in cell.horizons if h == 0 or h in line.horizons)
            if missing := set(line.horizons) - set(cell.horizons):
                raise UserError(
                    f"{line}: the suite does not read {cell.model} at {min(missing)} images.",
                    f"It has {', '.join(str(h) for h in cell.horizons if h)}.",
                )
            if cell.seed < line.seeds:
                kept.append(replace(cell, horizons=horizons))
    if strange := [line for unit, line in wanted.items() if unit not in used]:
        names = list(dict.fromkeys(cell.model for cell in cells))
        close = nearest(strange[0].model, names)
        raise UserError(
            f"{strange[0]}: the suite has no such run.",
            f"Did you mean {close[0]}?" if close else f"Models: {', '.join(names)}.",
        )
    return kept


PASS = Pass(apply=apply, needed=lambda r: bool(r.overrides.grid), after=("equal-training",))
