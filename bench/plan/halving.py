"""Successive halving of a sweep of learning rates: hopeless rates are stopped early (Jamieson and Talwalkar 2016).

Every rate of a sweep is first trained for an eighth of the budget, cooled down; the three of least loss on the upstream
set's test images are then trained in full, from the start. Downstream scores are never looked at. Of ten models whose
six rates were all trained in full, nine keep the rate that is chosen then, at 62 % of the images (tests/plan/
test_halving.py); with two instead of three, within half of them, six to eight do.

What is to be done next follows from the records alone: the same command goes on where it was stopped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.core.errors import UserError
from bench.core.record import Record
from bench.core.spec import Cell
from bench.store.study import Study

PART = 8  # of the budget: 1 / PART
FINALISTS = 3
LEAST = 4  # rates of a sweep that is worth halving


@dataclass(frozen=True, kw_only=True)
class Round:
    """What is to be trained so far. `waiting`: sweeps whose finalists are not known yet."""

    cells: tuple[Cell, ...]
    waiting: int
    note: str


def finalists(losses: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    """Rates that are trained in full, of (rate, loss after the first round) pairs; a loss that is not finite is out."""
    good = sorted((pair for pair in losses if math.isfinite(pair[1])), key=lambda pair: (pair[1], pair[0]))
    return tuple(sorted(rate for rate, _ in good[:FINALISTS]))


def next_round(cells: Sequence[Cell], study: Study) -> Round:
    """The cells of a sweep's first round, and of the second where the first is done.

    Raises:
        UserError: no sweep of enough rates, each read at one budget.
    """
    groups: dict[Cell, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(replace(cell, recipe=replace(cell.recipe, lr=0.0)), []).append(cell)
    if any(len(group) < LEAST or len(group[0].horizons) != 1 for group in groups.values()):
        raise UserError(f"--halving is for sweeps of {LEAST} learning rates and more, at one budget.",
                        "Use it with --suite rates, or with --sweep lr=… --horizons N.")  # fmt: skip
    found, waiting = list[Cell](), 0
    for group in groups.values():
        short = [replace(cell, horizons=(max(1, cell.horizons[0] // PART),)) for cell in group]
        found += short
        records = [study.cell(cell).read_record() if study.cell(cell).is_done() else None for cell in short]
        if any(record is None for record in records):
            waiting += 1
            continue
        losses = [(cell.recipe.lr, _loss(record)) for cell, record in zip(group, records, strict=True) if record]
        chosen = finalists(losses)
        found += [cell for cell in group if cell.recipe.lr in chosen]
    rates = max(len(group) for group in groups.values())
    share = 1 / PART + FINALISTS / rates
    note = (f"Rates are halved: all for 1/{PART} of the budget, then {FINALISTS} of {rates} in full by upstream loss; "
            f"{share:.0%} of the images.")  # fmt: skip
    return Round(cells=tuple(found), waiting=waiting, note=note)


def _loss(record: Record) -> float:
    """On the upstream set's test images; infinite where the training diverged or said none."""
    if record.status != "complete" or not record.horizons:
        return math.inf
    scores = [score for score in record.horizons[-1].scores if score.task == "upstream"]
    return min((float(score.detail.get("loss", math.inf)) for score in scores), default=math.inf)
