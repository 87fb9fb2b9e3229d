"""Learning rates: of a sweep, the one each model is to be trained with, by accuracy on the upstream test images alone.

The rule: the lowest rate within two points of the best, since higher ones vary more between seeds. A rate at which any
run diverged is not chosen. No downstream score is looked at: choosing on what is reported flatters the choice. Upstream
accuracy is flattered therefore, and where the upstream set is judged downstream too, its scores; `mixing` says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from bench.analysis.answers.answer import Answer
from bench.analysis.compare import Verdict
from bench.analysis.evidence import UPSTREAM, Evidence, family_rank
from bench.analysis.study_data import variant_of
from bench.core.formatting import count, interval, plural
from bench.core.record import Record
from bench.report.layout import Column, Table
from bench.stats.intervals import Estimate

MARGIN = 0.02  # accuracy that a lower rate may lack and still be chosen
QUESTION = "Which learning rate does each model train best with, by upstream accuracy, and is it in the sweep?"


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One rate. `accuracy` is None where no run finished; `diverged` counts runs whose loss stopped being finite.

    `cells` names every run at this rate by its directory.
    """

    rate: float
    accuracy: Estimate | None
    diverged: int = 0
    cells: tuple[str, ...] = ()

    @property
    def eligible(self) -> bool:
        return self.accuracy is not None and not self.diverged


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One model trained alike but for its rate, read after `images_seen` images: the longest budget of every rate.

    `tried` is ascending and holds at least two rates.
    """

    model: str
    family: str
    data: str
    num_images: int | None
    images_seen: int
    tried: tuple[Tried, ...]

    @cached_property
    def best(self) -> Tried:
        """The highest accuracy; the lowest of equal ones."""
        return max((t for t in self.tried if t.eligible), key=_accuracy)

    @cached_property
    def chosen(self) -> Tried:
        """The lowest rate within `MARGIN` of the best."""
        enough = _accuracy(self.best) - MARGIN - 1e-9  # two points, whatever their rounding
        return next(t for t in self.tried if t.eligible and _accuracy(t) >= enough)

    @property
    def edge(self) -> str | None:
        """ "lowest" or "highest" where the best is the end of the sweep: beyond it may lie a better one."""
        ends = {self.tried[0].rate: "lowest", self.tried[-1].rate: "highest"}
        return ends.get(self.best.rate)

    @property
    def range(self) -> str:
        return f"{self.tried[0].rate:g} to {self.tried[-1].rate:g}"


def sweeps(evidence: Evidence) -> tuple[Sweep, ...]:
    """Every model that was tried at two or more rates and finished at one of them; families and models in order."""
    evidence = evidence.swept or evidence
    if "rates" not in evidence.cache:
        groups = [_sweep(evidence, group) for group in _swept(evidence.records.records)]
        made = [sweep for sweep in groups if sweep is not None]
        order = {s.last.model: number for number, s in enumerate(evidence.series)}
        made.sort(key=lambda s: (family_rank(s.family), order.get(s.model, 0), s.data, s.num_images or math.inf))
        evidence.cache["rates"] = tuple(made)
    found: tuple[Sweep, ...] = evidence.cache["rates"]
    return found


def standing(evidence: Evidence, sweep: Sweep) -> Tried:
    """The rate that stands for the model in everything but the sweep's own table: where the grid asked for last holds
    runs at one of the rates, that one; else the chosen one."""
    wanted = evidence.records.wanted
    names = frozenset(wanted.names) if wanted else frozenset()
    asked = [t for t in sweep.tried if t.accuracy is not None and not names.isdisjoint(t.cells)]
    return asked[0] if len(asked) == 1 else sweep.chosen


def rejected(evidence: Evidence) -> frozenset[str]:
    """Directories of the runs that do not stand for their model, since a sweep tried them at another rate."""
    return frozenset(
        name for s in sweeps(evidence) for t in s.tried if t is not standing(evidence, s) for name in t.cells
    )


def answers(evidence: Evidence) -> list[Answer]:
    """What was chosen for each model, as an option to train with. "yes": the best rate lies inside the sweep."""
    made = []
    several = len({(s.data, s.num_images) for s in sweeps(evidence)}) > 1
    for sweep in sweeps(evidence):
        verdict: Verdict = "no" if sweep.edge else "yes"
        if sum(t.eligible for t in sweep.tried) < 2:
            verdict = "cannot tell"
        accuracy = _accuracy(sweep.chosen)
        made.append(Answer(
            question=QUESTION, subject=f"{sweep.model} on {_data(sweep)}" if several else sweep.model, verdict=verdict,
            sentence=_sentence(sweep), estimate=sweep.chosen.rate, unit="learning rate", n=len(sweep.tried),
            basis=f"upstream accuracy {accuracy:.4f} after {sweep.images_seen} images",
        ))  # fmt: skip
    return made


def _sentence(sweep: Sweep) -> str:
    best, chosen = sweep.best, sweep.chosen
    assert chosen.accuracy is not None
    seeds = plural(max(1, chosen.accuracy.num_seeds), "seed")
    tried = f"{plural(len(sweep.tried), 'rate')} from {sweep.range}"
    scored = f"{_shown(chosen)} % of {count(chosen.accuracy.num_test)} test images of {sweep.data}"
    scored += f" after {count(sweep.images_seen)} images seen ({seeds})"
    within = f"within {100 * MARGIN:g} points"
    text = f"--set lr={chosen.rate:g}: "
    if chosen is best:
        text += f"the best of {tried}, {scored}; no lower one is {within}."
    else:
        text += f"the lowest of {tried} {within} of the best, {scored}; the best, {best.rate:g}, has {_shown(best)} %."
    diverged = [f"{t.rate:g}" for t in sweep.tried if t.diverged]
    text += f" Diverged: {', '.join(diverged)}." if diverged else ""
    if sweep.edge:
        text += f" The best is the {sweep.edge} rate tried: go on with --sweep lr={_beyond(sweep)}."
    elif chosen is sweep.tried[0]:
        text += " No lower rate was tried."
    return text


def edges(evidence: Evidence) -> list[str]:
    """Sweeps whose best rate is the lowest or highest tried, in words."""
    found = [f"{s.model} (best {s.best.rate:g} of {s.range}; try {_beyond(s)})" for s in sweeps(evidence) if s.edge]
    return list(dict.fromkeys(found))


def _beyond(sweep: Sweep) -> str:
    """The two rates that go on where the sweep ends, in steps as wide as its last."""
    rates = [t.rate for t in sweep.tried]
    end, neighbour = (rates[0], rates[1]) if sweep.edge == "lowest" else (rates[-1], rates[-2])
    step = end / neighbour
    return ",".join(f"{value:.3g}" for value in sorted((end * step, end * step**2)))


def table(evidence: Evidence) -> Table | None:
    """One row per model and rate; None where nothing was swept."""
    rows = [
        {"model": s.model, "family": s.family, "data": _data(s), "seen": s.images_seen, "rate": t.rate,
         "accuracy": t.accuracy, "diverged": t.diverged or None,
         "chosen": "chosen" if t is s.chosen else "", "edge": f"best, {s.edge} tried" if t is s.best and s.edge else ""}
        for s in sweeps(evidence) for t in s.tried
    ]  # fmt: skip
    if not rows:
        return None
    columns = (
        Column(key="model", heading="Model", numeric=False), Column(key="family", heading="Family", numeric=False),
        Column(key="data", heading="Upstream", numeric=False), Column(key="seen", heading="Images seen", text=count),
        Column(key="rate", heading="Learning rate", text=lambda v: f"{v:g}"),
        Column(key="accuracy", heading="Upstream test accuracy [%]"),
        Column(key="diverged", heading="Runs diverged"), Column(key="chosen", heading="Chosen", numeric=False),
        Column(key="edge", heading="Edge of the sweep", numeric=False),
    )  # fmt: skip
    note = (f"Chosen: the lowest rate within {100 * MARGIN:g} points of the best on the upstream set's test images, so "
            "that upstream accuracies of chosen rates are slightly flattered; one at which a run diverged is not "
            "chosen.")  # fmt: skip
    return Table(name="rates", title="Learning rates", columns=columns, rows=tuple(rows),
                 note=f"{note} {_lines(evidence)}".strip())  # fmt: skip


# -- what the suites can take over -----------------------------------------------------------------------------------


def family_rates(found: Sequence[Sweep]) -> dict[str, float]:
    """For a model that was not swept: the geometric mean of its family's chosen rates, down to a rate of the sweep."""
    made = {}
    for family in dict.fromkeys(s.family for s in found):
        mine = [s for s in found if s.family == family]
        mean = math.exp(sum(math.log(s.chosen.rate) for s in mine) / len(mine))
        made[family] = max(t.rate for s in mine for t in s.tried if t.rate <= mean * (1 + 1e-9))
    return made


def model_rates(found: Sequence[Sweep]) -> dict[str, float]:
    """The chosen rates that differ from the family's."""
    families = family_rates(found)
    return {s.model: s.chosen.rate for s in found if s.chosen.rate != families[s.family]}


def _lines(evidence: Evidence) -> str:
    """The choice as bench/suites/_recipes.py states it; nothing where a model was swept more than once."""
    found = sweeps(evidence)
    if len({s.model for s in found}) < len(found):
        return ""
    dictionaries = {"FAMILY_RATES": family_rates(found), "MODEL_RATES": model_rates(found)}
    shown = [f"{name} = {json.dumps(rates)}" for name, rates in dictionaries.items()]
    return f"For bench/suites/_recipes.py: {'; '.join(shown)}."


# -- from records ----------------------------------------------------------------------------------------------------


def _swept(records: Iterable[Record]) -> list[list[Record]]:
    """Records that differ in rate and seed alone, where there are several rates."""
    by_model: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.status in ("complete", "diverged"):
            by_model.setdefault((record.cell.model, record.cell.data), []).append(record)
    found: dict[str, list[Record]] = {}
    for group in by_model.values():
        if len({_rate(record) for record in group}) > 1:  # the hash costs more than a look
            for record in group:
                found.setdefault(variant_of(record, but_for=["lr"]), []).append(record)
    return [group for group in found.values() if len({_rate(record) for record in group}) > 1]


def _sweep(evidence: Evidence, group: Sequence[Record]) -> Sweep | None:
    finished = [record for record in group if record.status == "complete"]
    seen = [{h.images_seen for h in record.horizons if h.images_seen} for record in finished]
    shared = set.intersection(*seen) if seen else set()
    if not shared:
        return None
    last, estimates = max(shared), evidence.estimates(UPSTREAM)
    accuracy = {_rate(record): estimates.get((variant_of(record), last)) for record in finished}
    diverged = [_rate(record) for record in group if record.status == "diverged"]
    cells = {rate: tuple(r.directory for r in group if _rate(r) == rate) for rate in {*accuracy, *diverged}}
    tried = tuple(Tried(rate=rate, accuracy=accuracy.get(rate), diverged=diverged.count(rate), cells=cells[rate])
                  for rate in sorted(cells))  # fmt: skip
    if not any(t.eligible for t in tried):
        return None
    cell, family = finished[0].cell, finished[0].model.family
    return Sweep(model=cell.model, family=family, data=cell.data, num_images=cell.num_images,
                 images_seen=last, tried=tried)  # fmt: skip


def _rate(record: Record) -> float:
    return float(record.cell.recipe.lr)


def _accuracy(tried: Tried) -> float:
    assert tried.accuracy is not None
    return tried.accuracy.value


def _shown(tried: Tried) -> str:
    assert tried.accuracy is not None
    return interval(tried.accuracy.value, tried.accuracy.half)


def _data(sweep: Sweep) -> str:
    return sweep.data if sweep.num_images is None else f"{sweep.data}@{sweep.num_images}"
