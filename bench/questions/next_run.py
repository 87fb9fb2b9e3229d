"""Which additional run would narrow the interval of the compute ratio most?

Findings:
    subject: as of the compute to match.
    leader: the family to run.
    estimate: its compute.
    evidence: `Candidate`: the run that shrinks the interval most per FLOP, then the one that shrinks it most at any
        price.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Finding, Item, Unit, Verdict
from bench.analysis.law_findings import law_finding, pairs_of_laws
from bench.analysis.question import FACTS, Question
from bench.analysis.scaling_laws import Law
from bench.core.formatting import flops, percent, significant
from bench.core.phrase import phrase
from bench.laws.bootstrap import LAW_LEVEL, variance_components
from bench.laws.forms import FIRST, SECOND
from bench.questions.compute_to_match import compute_to_match, shared_laws
from bench.stats.intervals import z_quantile

NAME = "next run"
CANDIDATES, REACH = 9, 4.0  # runs that could be done per family, up to this many times its largest


@dataclass(frozen=True, kw_only=True)
class Candidate(Item):
    """A run that could be done. shrinks: share of the interval's width that it would take away. reach: times the
    family's largest budget; 1 within it."""

    family: str
    train_flops: float
    shrinks: float
    reach: float


def ask(evidence: Evidence) -> Iterator[Finding]:
    for first, second in pairs_of_laws(evidence):
        if (run := next_run(first, second)) is not None:
            yield run


def next_run(a: Law, b: Law) -> Finding | None:
    """The run that shrinks the interval of `compute_to_match` most per FLOP; None where there is nothing to shrink.

    For refits with quantity q and log error f(x), a new point at x with noise variance s2 would lower the variance of q
    by cov(q, f(x))^2 / (var f(x) + s2): what a linear model makes of a normal posterior. Candidates are the families'
    budgets and up to four times beyond their largest; s2 then holds what such laws missed.
    """
    if compute_to_match(a, b).estimate is None:
        return None
    refits = shared_laws(a, b)[0]
    quantity, spread = _without_tails(refits.thetas[:, -1:]), variance_components(refits.fit)
    candidates = []
    for law, family in ((a, FIRST), (b, SECOND)):
        x = np.geomspace(law.range[0], law.range[1] * REACH, CANDIDATES)
        with np.errstate(all="ignore"):
            curves = _without_tails(np.log(refits.predictions(np.stack([x, np.full(len(x), family)]))))
        shared = (quantity * curves).mean(axis=0)
        beyond = [law.forecast.half_width(float(d), level=LAW_LEVEL) for d in law.forecast.distance(x[None])]
        noise = spread.within + spread.between + (np.array(beyond) / z_quantile(LAW_LEVEL)) ** 2
        lowered = shared**2 / (curves.var(axis=0) + noise)
        lowered /= max(float(quantity.var()), 1e-300)
        shrinks = 1 - np.sqrt(1 - np.clip(lowered, 0, 1))
        reach = np.maximum(1.0, x / law.range[1])
        candidates += [
            Candidate(family=law.family, train_flops=float(at), shrinks=float(s), reach=float(r))
            for at, s, r in zip(x, shrinks, reach, strict=True)
        ]
    candidates.sort(key=lambda c: -c.shrinks / c.train_flops)
    best, most = candidates[0], max(candidates, key=lambda c: c.shrinks)
    return law_finding(NAME, a, b)(
        verdict=Verdict.YES,
        leader=best.family,
        quantity="compute",
        unit=Unit.FLOP,
        estimate=best.train_flops,
        reach=best.reach,
        evidence=(best, most),
    )


def _without_tails(values: np.ndarray) -> np.ndarray:
    """Centred, with the outer 2 % of refits winsorised: a few wild ones would decide a variance."""
    low, high = np.nanquantile(values, [0.02, 0.98], axis=0)
    held = np.clip(np.nan_to_num(values, nan=0.0), low, high)
    return held - held.mean(axis=0)


def say(f: Finding) -> list[str]:
    candidates = wording.every(f, Candidate)
    if not candidates:
        return []
    best, most = candidates[0], candidates[-1]
    text = (
        f"{best.family} at {flops(best.train_flops)}: one more run narrows the interval by "
        f"{percent(best.shrinks)} %, the most per FLOP."
    )
    beyond = f" ({significant(most.reach, 2)} × its largest budget)" if most.reach > 1 else ""
    other = f"Regardless of cost: {most.family} at {flops(most.train_flops)}{beyond}, {percent(most.shrinks)} %."
    return [text] if most == best else [text, other]


QUESTION = Question(
    name=NAME,
    label="Which run next?",
    text="Which additional run would narrow the interval of the compute ratio most?",
    yes="run {}",
    no="run {}",
    tones=FACTS,
    ask=ask,
    say=say,
    items=(Candidate,),
    order=200,
    about_two=True,
    at_a_glance=False,
    sentence=lambda f: phrase(
        f"One more run of {f.leader}, at ",
        wording.number(f).text,
        ", would narrow the compute ratio most per FLOP",
    ),
)
