"""How much compute does one family need to match another?

The answer comes from a shared law (error over compute) of both families: one form, shifted by a factor on compute for
the second family. Inverting two separate laws would magnify their uncertainty where they are flat; with one form, all
points help to determine the factor. The interval is that of the laws, not of one more run.

Findings:
    subject: two families.
    estimate: the factor, 1 or more, by which one family needs more compute for the same accuracy.
    leader: the family that needs less.
    trend: the factor over accuracy, from the measured frontiers, if no single factor describes the whole range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Axis, Finding, Item, Reason, TrendPoint, Unit, Verdict
from bench.analysis.law_findings import deviation, law_finding, pairs_of_laws
from bench.analysis.published import SUITE as PAPER
from bench.analysis.question import FACTS, Question
from bench.analysis.scaling_laws import DRAWS, LOSSES, POSSIBLE, STARTS, Law
from bench.analysis.wording import Number
from bench.core.errors import UserError
from bench.core.formatting import percent, significant
from bench.core.phrase import phrase
from bench.laws import averaging, bootstrap, fit
from bench.laws.averaging import Averaged
from bench.laws.bootstrap import LAW_LEVEL, Resampled, p_of_t
from bench.laws.forms import FIRST, SECOND, two_families
from bench.laws.lack_of_fit import Z_CONTRADICTION, GroupMeans, LackOfFit, lack_of_fit

NAME = "compute to match"

# Reasons of a finding (`Finding.reasons`).
NO_COMMON_ACCURACY = "no common accuracy"  # no accuracy was reached by both
UNDETERMINED = "undetermined"  # accuracy hardly changes with compute: any factor fits
NO_SINGLE_FACTOR = "no single factor"  # measured points contradict every factor in the interval: see the trend

LOG_K_LIMIT = math.log(1e4)  # the log of a factor is cut at this; it gets so large only where laws are flat
WIDEST_INTERVAL = 1e4  # a factor counts as undetermined if the ratio of the ends of its interval is larger than this


@dataclass(frozen=True, kw_only=True)
class SharedLaw(Item):
    """One law (error over compute) for two families that differ by a factor on compute.

    Attributes:
        factor, low, high: the factor and its interval.
        within: interval of the factor with the shown form and loss only.
        reached: least and largest accuracy that both families reached.
        widens: whether the gap widens (True) or narrows (False) with compute, beyond noise; None: neither.
        forms, losses: names of the forms and losses of the fits that the interval is averaged over.
    """

    factor: float
    low: float
    high: float
    within: tuple[float, float]
    reached: tuple[float, float]
    widens: bool | None
    forms: tuple[str, ...]
    losses: tuple[str, ...]


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding for each pair of families. For the ViT paper's printed table yield none, because there the
    question "compute at equal error" gives the answer."""
    for first, second in pairs_of_laws(evidence) if evidence.suite != PAPER else ():
        yield compute_to_match(first, second)


@lru_cache(maxsize=16)
def compute_to_match(first: Law, second: Law) -> Finding:
    """Return the finding on the factor by which one of two families needs more compute for equal error. YES: its
    interval excludes 1."""
    finding = law_finding(NAME, first, second)
    cannot = partial(finding, verdict=Verdict.CANNOT_TELL)
    sides = [law.within.fit.points.y for law in (first, second)]
    if max(y.min() for y in sides) >= min(y.max() for y in sides):
        return cannot(reasons=(NO_COMMON_ACCURACY,))
    try:
        shown, averaged = shared_laws(first, second)
    except UserError:
        return cannot(reasons=(Reason.FIT_FAILED,))
    own, over = (np.clip(values, -LOG_K_LIMIT, LOG_K_LIMIT) for values in (shown.thetas[:, -1], averaged.factors()))
    (a, b), (c, d) = (bootstrap.quantiles(values, LAW_LEVEL) for values in (own, over))
    within = math.exp(a), math.exp(b)
    low, high = math.exp(min(a, c)), math.exp(max(b, d))  # averaging must not narrow the interval of the shown form
    value = float(np.exp(np.clip(shown.fit.theta[-1], -LOG_K_LIMIT, LOG_K_LIMIT)))
    if high / low > WIDEST_INTERVAL:
        return cannot(reasons=(UNDETERMINED,))
    less, more = first, second
    if value < 1:
        less, more, value = second, first, 1 / value
        low, high, within = 1 / high, 1 / low, (1 / within[1], 1 / within[0])
    widens = _widens(shown.fit)
    law = SharedLaw(
        factor=value,
        low=low,
        high=high,
        within=within,
        widens=widens,
        reached=(1 - float(min(y.max() for y in sides)), 1 - float(max(y.min() for y in sides))),
        forms=tuple(sorted({part.fit.form.name for part in averaged.parts})),
        losses=LOSSES,
    )
    trend = _contradicted_factors(less, more, low, high)
    if trend:
        return cannot(reasons=(NO_SINGLE_FACTOR,), leader=less.family, axis=Axis.ACCURACY, trend=trend, evidence=(law,))
    missed = deviation((first.family, second.family), _shared_lack_of_fit(shown.fit, first, second))
    remarks = [*([Reason.CHANGES] if widens is not None else []), *([Reason.LACK_OF_FIT] if missed else [])]
    return finding(
        verdict=Verdict.YES if low > 1 else Verdict.CANNOT_TELL,
        leader=less.family,
        reasons=(*(() if low > 1 else (Reason.WITHIN_INTERVAL,)), *remarks),
        quantity="compute ratio",
        unit=Unit.TIMES,
        estimate=value,
        low=low,
        high=high,
        p=p_of_t(math.log(value), math.log(value / low), df=averaged.freedom, level=LAW_LEVEL),
        evidence=(law, *missed),
    )


@lru_cache(maxsize=16)
def shared_laws(first: Law, second: Law) -> tuple[Resampled, Averaged]:
    """Return bootstrap refits of the shared law of two families: those with the form and loss of their own laws, and
    those with all forms and losses, as many of each as its weight says."""
    a, b = first.within.fit.points, second.within.fit.points
    family = np.concatenate([np.full(len(a), FIRST), np.full(len(b), SECOND)])
    points = fit.Points(
        x=np.stack([np.concatenate([a.x[0], b.x[0]]), family]),
        y=np.concatenate([a.y, b.y]),
        cluster=np.concatenate([a.cluster, b.cluster + a.cluster.max() + 1]),
    )
    form = two_families(first.within.fit.form)
    law = fit.fit(points, form, loss=LOSSES[0], max_starts=STARTS, ftol=fit.REFIT_FTOL)
    every = [two_families(form) for form in POSSIBLE]
    fits = [made for loss in LOSSES for made in averaging.fits_of(points, every, loss=loss)]
    averaged = averaging.average(fits, shown=law, draws=2 * DRAWS, restarts=0)
    return bootstrap.resample(law, draws=DRAWS, restarts=0), averaged


def _widens(made: fit.FormFit) -> bool | None:
    """Return whether the gap between two families widens (True) or narrows (False) with compute, by the slopes of their
    residuals from the shared law `made`; a single factor is then an average. None if the slopes do not differ by more
    than their noise."""
    log_x, second = np.log(made.points.x[0]), made.points.x[1] > FIRST
    sides = [side for side in (~second, second) if side.sum() > 2]
    if len(sides) < 2:
        return None
    slopes = [np.polyfit(log_x[side], made.residuals[side], 1, cov=True) for side in sides]
    gain = slopes[1][0][0] - slopes[0][0][0]
    if abs(gain) < Z_CONTRADICTION * math.sqrt(sum(covariance[0, 0] for _, covariance in slopes)):
        return None
    return bool((gain < 0) != (made.theta[-1] > 0))


def _contradicted_factors(less: Law, more: Law, low: float, high: float) -> tuple[TrendPoint, ...]:
    """Return the factor on compute at every accuracy on the frontier of `less`, if measured means contradict all
    factors from `low` to `high`; () if they do not.

    They do if somewhere `more` reaches the accuracy, beyond noise, with less than `low` times the compute, or does not
    reach it with `high` times the compute.

    Args:
        less, more: laws of the family that needs less compute, and of the one that needs more.
    """
    if not less.group_means.freedom or not more.group_means.freedom:
        return ()
    (x, error), (at, own) = less.frontier, more.frontier
    noise = Z_CONTRADICTION * math.hypot(less.noise, more.noise)
    soon, late = (np.interp(np.log(k * x), np.log(at), own) for k in (low, high))
    contradicted = ((soon < error - noise) & (low * x > at[0])) | ((late > error + noise) & (high * x < at[-1]))
    inside = (error <= own[0]) & (error >= own[-1])
    if not contradicted.any() or inside.sum() < 2:
        return ()
    factors = np.exp(np.interp(-error[inside], -own, np.log(at))) / x[inside]
    return tuple(TrendPoint(x=float(1 - e), estimate=float(k)) for e, k in zip(error[inside], factors, strict=True))


def _shared_lack_of_fit(made: fit.FormFit, first: Law, second: Law) -> LackOfFit | None:
    sides = (first.group_means, second.group_means)
    x, error, noise = (np.concatenate([getattr(side, name) for side in sides]) for name in ("x", "error", "noise"))
    means = GroupMeans(x=x, error=error, noise=noise, freedom=min(side.freedom for side in sides))
    family = np.repeat([FIRST, SECOND], [len(side.x) for side in sides])
    return lack_of_fit(means, made.predict(np.stack([x, family])), parameters=made.form.size)


def say(f: Finding) -> list[str]:
    law = wording.first(f, SharedLaw)
    if law is None:
        return []
    more = next((name for name in f.subject if name != f.leader), "the other")
    reached = f"accuracy range of both: {percent(law.reached[0])} to {percent(law.reached[1])} %"
    if f.estimate is None:
        return [
            f"A shared law with a constant ratio gives {significant(law.factor)} × [{significant(law.low)}, "
            f"{significant(law.high)}]; {reached}."
        ]
    return [f"Compute of {more} divided by compute of {f.leader} at equal accuracy; {reached}."]


def number(f: Finding) -> Number:
    """Return the factor as it is printed, with its interval. If no single factor holds, return rounded factors at both
    ends of the accuracy range, which have no intervals."""
    if f.estimate is not None or not f.trend:
        return wording.number(f)
    text = (
        f"{f.leader} about {', '.join(_less(p.estimate, wording.place(f, p.x)) for p in f.trend[:: len(f.trend) - 1])}"
    )
    return Number(text=text, short=text)


def _less(factor: float, place: str) -> str:
    return f"{significant(max(factor, 1 / factor), 2)} × {'less' if factor >= 1 else 'more'} at {place}"


def _changes(f: Finding) -> str:
    law = wording.first(f, SharedLaw)
    if law is not None and law.widens is not None:
        return f"This is an average: the gap {'widens' if law.widens else 'narrows'} with compute."
    return ""


QUESTION = Question(
    name=NAME,
    label="Less compute to match?",
    text="How much compute does one family need to match another?",
    yes="{} cheaper",
    no="{} cheaper",
    tones=FACTS,
    ask=ask,
    say=say,
    reasons={
        NO_COMMON_ACCURACY: "There is no accuracy that both reached.",
        UNDETERMINED: "Accuracy hardly changes with compute, so the compute ratio is undetermined.",
        NO_SINGLE_FACTOR: "Measured points contradict every constant ratio; those at both ends of the accuracy range "
        "are read off the frontiers and have no intervals.",
        Reason.CHANGES: _changes,
    },
    items=(SharedLaw,),
    order=95,
    about_two=True,
    counts_together=True,
    number=number,
    verdict=lambda f: ("no one factor", "unsure") if NO_SINGLE_FACTOR in f.reasons else None,
    sentence=lambda f: phrase(
        f"{f.leader} needs {significant(wording.or_nan(f.estimate))} times ",
        wording.bracket(f.low, f.high, significant),
        f" less compute than {wording.other(f)} for equal accuracy",
    ),
    shown_in=("laws",),
)
