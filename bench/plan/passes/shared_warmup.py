"""A pass that gives all cells whose budgets were fitted to hours one warm-up, which the shortest budget allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study.cell import Cell
from bench.train.schedule import longest_warmup, warmup_steps


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study with warm-ups that the shortest budget of all cells allows."""
    cells, notes = with_one_warmup(study.cells)
    return replace(study, cells=tuple(cells), notes=(*study.notes, *notes))


def with_one_warmup(cells: Sequence[Cell]) -> tuple[list[Cell], tuple[str, ...]]:
    """Return the cells with warm-ups cut, in images, to a quarter of the shortest budget of all cells, so that they
    stay equal where the suite's are; and a note if a warm-up is shorter than the suite's."""
    trained = [c for c in cells if c.job == "train" and longest_warmup(c.horizons, c.recipe.batch) is not None]
    limits = ((longest_warmup(c.horizons, c.recipe.batch) or 0) * c.recipe.batch for c in trained)
    most = min(limits, default=0)
    longer = [c.recipe.warmup_images for c in trained if warmup_steps(c.recipe) * c.recipe.batch > most]
    if not longer:
        return list(cells), ()
    at_most = {
        c: replace(c, recipe=replace(c.recipe, warmup_images=min(c.recipe.warmup_images, most))) for c in trained
    }
    note = (
        f"Warm-up is {most:,} images for every model, a quarter of the shortest budget, instead of the suite's "
        f"{max(longer):,}."
    )
    return [at_most.get(cell, cell) for cell in cells], (note,)


PASS = Pass(
    apply=apply,
    needed=lambda r: r.scale == "gpu" and not (r.suite.exclusive or r.gives_budgets or r.overrides.chooses_warmup),
    after=("chosen-grid",),
)
