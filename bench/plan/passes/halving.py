"""Half of a sweep of learning rates: hopeless rates are never begun.

Accuracy has one peak over the logarithm of the rate. So the rate in the middle is trained first, then the next higher
ones while each gains more than the margin within which a lower rate is chosen anyway; else the next lower ones while
they stay within it. On a single peak whose best rate is among those tried that ends at the rate which the whole sweep
chooses. Where the peak rises by less than the margin at each step above the middle, the best rate is not tried, and
a lower one than the whole sweep's may be chosen. The search is cut off after half of the rates, and the report then
says that the best one lies at the end of what was tried. Accuracy is that on the upstream set's test images, as in the
choice itself, at the longest budget; downstream scores are never looked at. The report fits a curve through what was
tried, and chooses no rate where the best one lies at its end.

Nine of the ten models at hand, six rates each, keep the rate that the whole sweep chooses, at half of the images
(tests/plan/test_halving.py); ten without the cut-off, at 58 %. They were known when the rule was made, and the start
matters: from the lower of the two middle rates seven keep theirs. An eleventh, swept afterwards, keeps its rate. All
eleven were swept again with a shorter warm-up: nine keep theirs.
Stopping early did worse: after an eighth of the budget (cooled down) the loss on test images ranked them so that three
of six in full kept nine of ten at 62 % of the images, two in full seven at 46 %.

The next step follows from the records alone: the same command goes on where it was stopped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.core.cell_state import CellState
from bench.core.errors import UserError
from bench.core.record import Record
from bench.core.spec import Cell, is_rate_enough
from bench.plan.changed import changes
from bench.plan.study_cells import StudyCells, StudyRequest
from bench.store.study import Study, state_of

MIN_RATES = 6  # rates of a sweep that is worth halving: the peak and a neighbour on either side are three


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """The study up to its next round, as the records that there are decide.

    Raises:
        UserError: no sweep of enough rates; a store from a newer version.
    """
    store = Study(request.store)
    store.check()
    now = next_round(study.chosen, store, other_code=request.options.changed == "keep", root=request.options.data_root)
    return replace(
        study,
        cells=now.cells,
        chosen=now.cells,
        notes=(*study.notes, now.note),
        waiting=now.waiting,
        side_by_side=now.at_once,
    )


@dataclass(frozen=True, kw_only=True)
class Round:
    """The cells of a search so far.

    Attributes:
        cells: trained, or to be trained next.
        waiting: sweeps that may go on afterwards.
        at_once: most cells of any round that are trained side by side, so that every round has the same workers.
        note: on the search, a sentence.
    """

    cells: tuple[Cell, ...]
    waiting: int
    at_once: int
    note: str


def following(rates: Sequence[float], accuracies: Mapping[float, float]) -> float | None:
    """The rate to train next; None where the search is over.

    Args:
        rates: of the whole sweep, ascending.
        accuracies: of those that were trained, in [0, 1]; of a training that diverged, minus infinity.
    """
    tried = [place for place, rate in enumerate(rates) if rate in accuracies]
    start = len(rates) // 2
    if not tried:
        return rates[start]
    if len(tried) >= len(rates) // 2:
        return None
    low, high = tried[0], tried[-1]
    best, top = max(accuracies.values()), accuracies[rates[high]]
    climbs = math.isfinite(top) and (high == start or not is_rate_enough(lacks=top - accuracies[rates[high - 1]]))
    if climbs and low == start and high + 1 < len(rates):
        return rates[high + 1]
    lowest = accuracies[rates[low]]
    if low > 0 and (lowest == best or is_rate_enough(lacks=best - lowest)):
        return rates[low - 1]
    return None


def next_round(cells: Sequence[Cell], study: Study, *, other_code: bool = False, root: Path | None = None) -> Round:
    """The cells that were trained so far, and those that follow. Writes nothing: a plan is no run.

    Args:
        other_code: results of code, or images, that have changed since count too (`--changed keep`).
        root: folder with data sets that do not come with the installation.

    Raises:
        UserError: no sweep of enough rates.
    """
    sweeps: dict[Cell, dict[float, list[Cell]]] = {}  # seeds of a rate are trained together
    for cell in cells:
        sweep = sweeps.setdefault(replace(cell, recipe=replace(cell.recipe, lr=0.0), seed=0), {})
        sweep.setdefault(cell.recipe.lr, []).append(cell)
    if any(len(sweep) < MIN_RATES for cell, sweep in sweeps.items()):
        raise UserError(
            f"--halving is for sweeps of {MIN_RATES} learning rates and more.",
            "Use it with --suite rates, or with --sweep lr=….",
        )
    begun, waiting = list[Cell](), 0
    for sweep in sweeps.values():
        accuracies: dict[float, float] = {}
        while (rate := following(sorted(sweep), accuracies)) is not None:
            begun += sweep[rate]
            accuracy = _accuracy(sweep[rate], study, other_code=other_code, root=root)
            if accuracy is None:
                waiting += 1
                break
            accuracies[rate] = accuracy
    rates = max(map(len, sweeps.values()))
    note = (
        f"At most {rates // 2} of {rates} learning rates are trained, one after the other, from the middle one "
        "towards the best by upstream accuracy."
    )
    at_once = sum(max(map(len, sweep.values())) for sweep in sweeps.values())
    return Round(cells=tuple(begun), waiting=waiting, at_once=at_once, note=note)


def _accuracy(cells: Sequence[Cell], study: Study, *, other_code: bool, root: Path | None) -> float | None:
    """Mean over the seeds of a rate; minus infinity where one diverged; None where one is not done."""
    directories = [study.cell(cell) for cell in cells]
    states = [state_of(directory) for directory in directories]
    if any(state.name != CellState.DONE for state in states):
        return None
    if not other_code and changes(cells, directories, states, root=root):
        return None
    done = [record for directory in directories if (record := directory.read_record()) is not None]
    return math.fsum(map(_upstream, done)) / len(done) if len(done) == len(cells) else None


def _upstream(record: Record) -> float:
    if record.status != "complete" or not record.horizons:
        return -math.inf
    scores = [score.value for score in record.horizons[-1].scores if score.task == "upstream"]
    return max((value for value in scores if value is not None), default=-math.inf)
