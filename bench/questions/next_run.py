"""Which additional runs would narrow the interval of the compute ratio of two families most?

Runs are chosen by `bench.laws.design` to narrow the ratio of compute at equal error between two fitted laws, in the
middle of the range that both families cover. They may take as much compute as the runs that the laws are fitted to.
They are within the range of compute of their family, because no law is tested further up. How much narrower the
interval becomes is estimated from linearised laws. For three pairs of the main study this gave 40, 47 and 39 %;
refitting simulated studies gave 39, 57 and 57 %.

Findings:
    subject: two families, as in "compute to match".
    leader: the family that gets most of the compute.
    estimate: compute of all proposed runs.
    evidence: `FurtherRun` for each family and compute, and a `Narrowing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Finding, Item, Unit, Verdict
from bench.analysis.law_findings import law_finding, pairs_of_laws
from bench.analysis.question import FACTS, Question
from bench.analysis.scaling_laws import LOSSES, Law
from bench.core.formatting import flops, join, plural
from bench.core.phrase import phrase
from bench.laws import averaging, design
from bench.laws.design import Candidates, DrawnLaw, KnownGroup, NarrowedAnswer
from bench.questions.compute_to_match import compute_to_match

NAME = "next run"
PER_OCTAVE = 1  # For each family, there are this many candidates for each doubling of compute.


@dataclass(frozen=True, kw_only=True)
class FurtherRun(Item):
    """Runs that are proposed: `runs` runs of a family, each with `train_flops` of training compute (FLOP)."""

    family: str
    train_flops: float
    runs: int


@dataclass(frozen=True, kw_only=True)
class Narrowing(Item):
    """The expected effect of the proposed runs. `shrinks`: the fraction of its width that the interval of the compute
    ratio loses."""

    shrinks: float


def ask(evidence: Evidence) -> Iterator[Finding]:
    for first, second in pairs_of_laws(evidence):
        if (found := next_runs(first, second)) is not None:
            yield found


def next_runs(first: Law, second: Law) -> Finding | None:
    """Return the finding on which further runs of two families narrow the interval of their compute ratio most; None if
    the ratio is unknown, or if no run would narrow it."""
    if compute_to_match(first, second).estimate is None:
        return None
    groups, candidates = [_known(law) for law in (first, second)], _candidates((first, second))
    spent = sum(float(law.within.fit.points.x.sum()) for law in (first, second))
    try:
        problem = design.problem(_factor(first, second), groups, candidates)
    except ValueError:
        return None
    count_C = design.choose(problem, spent)
    if not count_C.any():
        return None
    shrinks = 1 - float(np.exp((problem.score(count_C) - problem.score(np.zeros_like(count_C))) / 2))
    runs = [
        FurtherRun(
            family=groups[candidates.group[i]].name, train_flops=float(candidates.price[i]), runs=int(count_C[i])
        )
        for i in np.flatnonzero(count_C)
    ]
    of_family = {
        law.family: sum(run.train_flops * run.runs for run in runs if run.family == law.family)
        for law in (first, second)
    }
    return law_finding(NAME, first, second)(
        verdict=Verdict.YES,
        leader=max(of_family, key=of_family.__getitem__),
        quantity="compute",
        unit=Unit.FLOP,
        estimate=sum(of_family.values()),
        evidence=(*runs, Narrowing(shrinks=shrinks)),
    )


def _factor(first: Law, second: Law) -> NarrowedAnswer:
    """Return the answer whose interval is to be narrowed: compute of the second law divided by that of the first at
    equal error, in the middle of their common range."""
    middle = float(np.sqrt(max(law.range[0] for law in (first, second)) * min(law.range[1] for law in (first, second))))
    start = min(law.range[0] for law in (first, second))

    def value(laws: Sequence[DrawnLaw]) -> float:
        one, other = laws
        error = float(np.exp(one.log_predict(np.array([[middle]]))[0]))
        return design.log_x_of(other, error, start) - float(np.log(middle))

    return NarrowedAnswer(text="factor of compute", log=True, value=value)


def _known(law: Law) -> KnownGroup:
    fits = tuple(part.fit for part in law.averaged.parts if part.fit.loss == LOSSES[0])
    return KnownGroup(name=law.family, fits=fits, weights=averaging.weigh(fits), refits=law.averaged)


def _candidates(laws: Sequence[Law]) -> Candidates:
    """Return the runs to choose from: for each family, runs at its smallest compute and at every doubling of it up to
    its largest compute."""
    places = []
    for law in laws:
        low, high = law.range
        places.append(low * 2.0 ** (np.arange(int(np.log2(high / low) * PER_OCTAVE + 1e-6) + 1) / PER_OCTAVE))
    x = np.concatenate(places)
    return Candidates(x=x[None], group=np.repeat([0, 1], [len(of) for of in places]), price=x)


def say(f: Finding) -> list[str]:
    runs, narrowing = wording.every(f, FurtherRun), wording.every(f, Narrowing)
    if not narrowing:
        return []
    by_family = [
        f"{family} {join([f'{run.runs} × {flops(run.train_flops)}' for run in runs if run.family == family])}"
        for family in dict.fromkeys(run.family for run in runs)
    ]
    number = sum(run.runs for run in runs)
    return [
        f"{'; '.join(by_family)}: {plural(number, 'run')} for at most as much compute as those that the laws rest on "
        f"narrow the interval by about {100 * narrowing[0].shrinks:.0f} %."
    ]


QUESTION = Question(
    name=NAME,
    label="Which runs next?",
    text="Which additional runs would narrow the interval of the compute ratio most, for as much compute again?",
    yes="mostly {}",
    no="mostly {}",
    tones=FACTS,
    ask=ask,
    say=say,
    items=(FurtherRun, Narrowing),
    order=200,
    about_two=True,
    at_a_glance=False,
    sentence=lambda f: phrase(
        f"More runs, most of their compute for {f.leader}, ",
        wording.number(f).text,
        " in all, would narrow the compute ratio most",
    ),
)
