"""Finds the ladders in a study's records, and computes their statistics.

A ladder compares a change (of a recipe, say) with a baseline at several amounts of compute, its rungs. The gain is the
change's accuracy minus the baseline's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from bench.analysis.begun import loss_of_guessing, not_begun
from bench.analysis.evidence import UPSTREAM, Evidence
from bench.stats.ladder import FEWEST_RUNGS, LEVEL, VERDICTS, Ladders, LadderVerdict, verdicts
from bench.stats.levels import holm
from bench.study.ladder import BASELINE, place_of
from bench.study.record import Record

FEWEST_SEEDS = 2
FIRST = 4  # trials of learning rates that a new rung begins with, as in `bench.plan.tuning`
POINTS = 100.0  # percentage points per unit of accuracy


@dataclass(frozen=True, kw_only=True)
class PairedRun:
    """One finished run of a ladder, with the change or with the baseline.

    Attributes:
        accuracy: accuracy on the test images of the pre-training set, in percentage points.
        flops: training compute in FLOP, as the ViT paper counts it.
        images: images trained on.
        seconds: training time, on one device.
        rate: learning rate.
        begun: whether the network has begun to learn, by the rule of `bench.analysis.begun`, but with chance in place
            of the untrained network, which is not evaluated in ladders.
    """

    accuracy: float
    flops: float
    images: int
    seconds: float
    rate: float
    begun: bool


@dataclass(frozen=True, kw_only=True)
class ChangeLadder:
    """A change and its baseline on all rungs (amounts of compute).

    Attributes:
        change: the change as the user typed it.
        flops_R: the baseline's training compute on each rung, in FLOP, ascending.
        pairs_R: for each rung, seed -> (run with the change, run with the baseline).
        found: statistics of the gains, in percentage points.
        verdict: what happens to the gain as compute grows (it grows, keeps, fades, reverses, or this is inconclusive),
            corrected for testing all changes of the study (Holm).
    """

    change: str
    flops_R: tuple[float, ...]
    pairs_R: tuple[dict[int, tuple[PairedRun, PairedRun]], ...]
    found: Ladders
    verdict: LadderVerdict

    @property
    def seeds(self) -> int:
        """The number of seeds of the rung that has the fewest."""
        return min(map(len, self.pairs_R))

    @property
    def next_flops(self) -> float:
        """Compute of a next rung above all others, in FLOP: its ratio to the highest rung is that of the highest to the
        second highest."""
        return self.flops_R[-1] ** 2 / self.flops_R[-2]

    @property
    def seconds(self) -> float:
        """Seconds that one more seed on every rung takes, change and baseline together."""
        return sum(self.seconds_R)

    @property
    def seconds_R(self) -> tuple[float, ...]:
        """Seconds that one more seed takes on each rung, change and baseline together."""
        return tuple(
            float(np.median([change.seconds + base.seconds for change, base in pairs.values()]))
            for pairs in self.pairs_R
        )

    @property
    def opening_seconds(self) -> float:
        """Seconds that a new rung above all others takes in addition to its own pairs of runs: for trials of learning
        rates on it, and for repeating the rungs between the lowest and the new one, whose learning rates then
        change."""
        above = self.seconds_R[-1] ** 2 / self.seconds_R[-2] if self.seconds_R[-2] else 0.0
        again = zip(self.seconds_R[1:], self.pairs_R[1:], strict=True)
        return FIRST * above + sum(each * len(pairs) for each, pairs in again)

    @property
    def is_blind(self) -> bool:
        """Whether some rung cannot show a gain, because its baseline has not begun to learn or is nearly perfect."""
        means = [float(np.mean([base.accuracy for _, base in pairs.values()])) for pairs in self.pairs_R]
        return not all(base.begun for pairs in self.pairs_R for _, base in pairs.values()) or max(means) > 99.5


@lru_cache(maxsize=4)
def arms(evidence: Evidence) -> tuple[ChangeLadder, ...]:
    """Return the ladder of every change that has at least `FEWEST_RUNGS` rungs, each with at least `FEWEST_SEEDS` pairs
    of runs."""
    runs = _runs(evidence)
    baseline = runs.pop(BASELINE, {})
    made = []
    for change, of_change in runs.items():
        pairs_R, flops_R = [], []
        for rung in sorted(of_change.keys() & baseline.keys()):
            mine, base = of_change[rung], baseline[rung]
            if len(seeds := sorted(mine.keys() & base.keys())) >= FEWEST_SEEDS:
                pairs_R.append({seed: (mine[seed], base[seed]) for seed in seeds})
                flops_R.append(base[seeds[0]].flops)
        if len(pairs_R) >= FEWEST_RUNGS and all(a < b for a, b in pairwise(flops_R)):
            made.append((change, tuple(flops_R), tuple(pairs_R), _ladders(flops_R, pairs_R)))
    stands = holm([float(found.slope().p[0]) for *_, found in made], share=LEVEL)
    return tuple(
        ChangeLadder(
            change=change,
            flops_R=flops_R,
            pairs_R=pairs_R,
            found=found,
            verdict=VERDICTS[int(verdicts(found, stands_T=np.array([stand]))[0])],
        )
        for (change, flops_R, pairs_R, found), stand in zip(made, stands, strict=True)
    )


def is_ladder(evidence: Evidence) -> bool:
    """Return whether some records are of a ladder, a comparison of changes with a baseline at several amounts of
    compute."""
    return any(place_of(record.cell.axes) for record in evidence.records.records)


def compared(evidence: Evidence) -> Evidence:
    """Return the evidence of a ladder without its trials of learning rates; other evidence unchanged. Trials only serve
    to choose rates; they are evaluated on held-out images, and cannot be compared with the ladder's other runs."""
    if not is_ladder(evidence):
        return evidence
    trials = frozenset(r.directory for r in evidence.records.records if place_of(r.cell.axes) is None)
    kept = tuple(r for r in evidence.records.records if r.directory not in trials)
    scores = evidence.scores[~evidence.scores["directory"].isin(trials)].reset_index(drop=True)
    records = replace(evidence.records, records=kept)
    aside = {name: pairs for name, pairs in evidence.set_aside.items() if name not in trials}
    return replace(evidence.without(trials), records=records, scores=scores, set_aside=aside, swept=None)


def _ladders(flops_R: list[float], pairs_R: list[dict[int, tuple[PairedRun, PairedRun]]]) -> Ladders:
    gains_RN = np.full((len(pairs_R), max(map(len, pairs_R))), math.nan)
    for rung, pairs in enumerate(pairs_R):
        gains_RN[rung, : len(pairs)] = [change.accuracy - base.accuracy for change, base in pairs.values()]
    return Ladders.of(np.log2(flops_R), gains_RN[None])


def _runs(evidence: Evidence) -> dict[str, dict[int, dict[int, PairedRun]]]:
    """Return change -> rung -> seed -> run, for complete runs; if there is a current grid of cells, only for runs in
    it."""
    wanted = evidence.records.wanted
    names = frozenset(wanted.names) if wanted else None
    made: dict[str, dict[int, dict[int, PairedRun]]] = {}
    for record in evidence.records.records:
        place = place_of(record.cell.axes)
        if place is None or record.status != "complete" or (names is not None and record.directory not in names):
            continue
        for run in _read(record):
            made.setdefault(place.change, {}).setdefault(place.rung, {})[record.cell.seed] = run
    return made


def _read(record: Record) -> Iterator[PairedRun]:
    last = record.horizons[-1]
    for score in last.scores:
        if score.task == UPSTREAM and score.metric == "accuracy" and score.value is not None:
            error = math.sqrt(score.value * (1 - score.value) / max(1, score.num_test)) if score.num_test else 0.0
            guessing = loss_of_guessing(score.num_classes or 0, sigmoid=record.cell.recipe.loss == "sigmoid")
            loss = math.nan if last.final_train_loss is None else last.final_train_loss
            learns = not_begun(loss=loss, guessing=guessing, gain=None) is None
            yield PairedRun(
                accuracy=POINTS * score.value,
                flops=float(last.train_flops.paper or 0),
                images=last.images_trained or last.images_seen,
                seconds=last.seconds.train or 0.0,
                rate=record.cell.recipe.lr,
                begun=learns and score.value > (score.chance or 0.0) + 4 * error,
            )
            return
