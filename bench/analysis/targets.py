"""Finds at how much compute, or how many images, another run of a family reaches an accuracy, with the interval of one
more run. Where its best measured points pass the accuracy, the answer is read off between these two, and needs no law.
Elsewhere it is that of `vit-bench fit --reach`: a law is asked beyond the data only where it has a record there, and
the answer says how far."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy import special

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Axis, Finding, Item, LawDeviation, Reason, Verdict
from bench.analysis.law_findings import X_QUANTITY, deviation, law_finding, laws_of
from bench.analysis.scaling_laws import Law
from bench.analysis.wording import Sentence
from bench.core.formatting import percent, plural, significant
from bench.core.phrase import phrase
from bench.laws.bootstrap import LAW_LEVEL
from bench.laws.extrapolation import REACH, Inverse, PastError, invert, reached
from bench.laws.lack_of_fit import MATERIAL, Z_CONTRADICTION

# Reasons.
OUT_OF_REACH = "out of reach"  # the law does not reach the target within `REACH` times the data
BELOW_RANGE = "below range"  # the target is reached below the smallest run, where no law has a record


@dataclass(frozen=True, kw_only=True)
class AccuracyTarget(Item, kind="Target"):
    """A target accuracy: the least of the families' best, or the best of the only family, unless given.

    asked: range in which the law has points or a record. between: the measured points between which it is reached (the
    first None: by the smallest; both: by none). lost: the largest point that does not reach it although a smaller one
    does. record: how far off the law was at about the distance of the upper end; None inside the data. measured: the
    answer is read off the measured points; by_law: but its upper end, which they do not hold, is the law's."""

    accuracy: float
    asked: tuple[float, float]
    between: tuple[float | None, float | None] = (None, None)
    lost: float | None = None
    record: PastError | None = None
    measured: bool = False
    by_law: bool = False


def targets(evidence: Evidence, name: str, axis: Axis) -> Iterator[Finding]:
    """The findings of the question `name` about every family: for the targets that were asked for, or else for one that
    every family reached."""
    known = laws_of(evidence, axis)
    for target in evidence.targets or (reached_by_all(known),):
        yield from (needed_for(name, law, target) for law in known.values() if target is not None)


def reached_by_all(laws: dict[str, Law]) -> float | None:
    """The least of the families' best mean accuracies, rounded down to 5 or 1 %, where every family has points on both
    sides of that; else None, since nobody asks for the compute of 69.1 %."""
    if not laws:
        return None
    least = min(1 - float(law.frontier[1].min()) for law in laws.values())
    first = max(1 - float(law.frontier[1].max()) for law in laws.values())
    rounded = [math.floor(least * parts + 1e-9) / parts for parts in (20, 100)]
    return next((accuracy for accuracy in rounded if accuracy > first), None)


def needed_for(question: str, law: Law, accuracy: float) -> Finding:
    """Compute, or images, at which another run of the law's family reaches `accuracy` (0..1)."""
    ends = reached(law.forecast.grid, law.on_grid, 1 - accuracy)
    target, most = _target(law, accuracy), law.range[1]
    finding = partial(law_finding(question, law), **X_QUANTITY[law.axis])
    cannot = partial(finding, verdict=Verdict.CANNOT_TELL)
    missed = _deviation_at(law, ends.x) if 0 < ends.x < np.inf else []
    if (inside := passed(law, target)) is not None:
        held = np.isfinite(inside.high)
        by_law = bool(not held and not missed and inside.x < ends.high < np.inf)
        ends, missed = replace(inside, high=ends.high if by_law else inside.high), []
        target = replace(target, measured=True, by_law=by_law)
    if ends.x == 0:
        return cannot(reasons=(BELOW_RANGE,), evidence=(target,))
    if missed:
        return cannot(reasons=(Reason.LACK_OF_FIT,), evidence=(target, *missed))
    if ends.x == np.inf:
        return cannot(reasons=(OUT_OF_REACH,), evidence=(target,))
    high = ends.high if ends.high < np.inf else None
    beyond = most if target.measured else law.forecast.grid[-1]  # where an open end is known to lie
    reach, high_reach = (max(1.0, end / most) for end in (ends.x, high or beyond))
    if high_reach > 1 and law.forecast.origins:
        target = replace(target, record=law.forecast.past_error(math.log(high_reach)))
    return finding(
        verdict=Verdict.YES,
        estimate=ends.x,
        low=ends.low if ends.low > 0 else None,
        high=high,
        evidence=(target,),
        reach=reach,
        high_reach=high_reach,
    )


def passed(law: Law, target: AccuracyTarget) -> Inverse | None:
    """The two best measured points of the family between which the target is passed; None where they do not, or where a
    larger one loses it again.

    Errors are interpolated as in figures with two logarithmic axes. An end of the interval is where the line through
    the points' own ends reaches the target: 0 or infinite where it does not within the measured range.
    """
    if None in target.between or target.lost is not None:
        return None
    means, best = law.group_means, set(law.best)
    on = [i for i, place in enumerate(zip(means.x.tolist(), means.error.tolist(), strict=True)) if place in best]
    if len(on) < 2:
        return None
    x_N, error_N = means.x[on], means.error[on]
    seeds_N = np.array([max(1, len(law.points[i].seeds)) for i in on])
    upper = 0.5 + LAW_LEVEL / 2
    quantile = special.stdtrit(means.freedom, upper) if means.freedom else special.ndtri(upper)
    half_N = quantile * np.sqrt(1 + seeds_N) * means.noise[on] / error_N  # of one more run beside their mean
    line_N = np.log(error_N)
    curves = np.stack([line_N, line_N - half_N, line_N + half_N])
    x, low, high = np.exp(invert(np.log(x_N), curves, np.log([1 - target.accuracy]))[:, 0]).tolist()
    return Inverse(x=x, low=low, high=high) if 0 < x < np.inf else None


def _deviation_at(law: Law, x: float) -> list[Item]:
    """The place where the law misses its group means, or one beside x, by more than their noise; [] if it does not."""
    if law.lack_of_fit is None or law.lack_of_fit.fails:
        return deviation((law.family,), law.lack_of_fit)
    means = law.group_means
    right = int(np.searchsorted(means.x, x))
    for i in sorted({max(0, right - 1), min(right, len(means.x) - 1)}):
        predicted, observed = float(law.within.fit.predict(means.x[i : i + 1])[0]), float(means.error[i])
        if abs(observed - predicted) > max(Z_CONTRADICTION * means.noise[i], MATERIAL * observed):
            return [LawDeviation(families=(law.family,), predicted=predicted, observed=observed, p=None)]
    return []


def _target(law: Law, accuracy: float) -> AccuracyTarget:
    """The accuracy, and where group means reach it."""
    means = law.group_means
    target = AccuracyTarget(accuracy=accuracy, asked=(law.range[0], float(law.forecast.grid[-1])))
    good = np.flatnonzero(means.error <= 1 - accuracy)
    if not len(good):
        return target
    first = int(good[0])
    lost = means.x[first:][means.error[first:] > 1 - accuracy]
    return replace(
        target,
        between=(float(means.x[first - 1]) if first else None, float(means.x[first])),
        lost=float(lost[-1]) if len(lost) else None,
    )


# -- words -------------------------------------------------------------------------------------------------------------


def say(f: Finding) -> list[str]:
    target, texts = wording.first(f, AccuracyTarget), []
    if target is not None and target.measured:
        ends = " Its upper end is that of the law." if target.by_law else ""
        where = wording.between(f, *target.between, "and")
        texts.append(f"Interpolated between measured points, {where}.{ends}")
    if f.reach > 1.005:
        texts.append(f"This is {significant(f.reach, 2)} times the largest measured value.")
    if f.high_reach > 1.005:
        upper = f"at least {significant(f.high_reach, 2)}" if f.high is None else significant(f.high_reach, 2)
        texts.append(f"The upper end is {upper} times the largest measured value.")
        if target is not None and target.record is not None:
            past = target.record
            texts.append(
                f"Fitted to {plural(past.origins, 'earlier origin')}, the law was off by "
                f"{percent(past.median_error)} % of the error (median) {significant(past.factor, 2)} times "
                "beyond them."
            )
    elif f.estimate is not None and f.high is None:
        texts.append("The upper end lies beyond all of that.")
    if f.verdict == Verdict.CANNOT_TELL and target is not None and target.between[1] is not None:
        low, high = target.between
        where = f"by {wording.place(f, high)}" if low is None else f"between {wording.between(f, low, high, 'and')}"
        lost = f", but not at {wording.place(f, target.lost)}" if target.lost is not None else ""
        texts.append(f"Measured points reach the target {where}{lost}.")
    return texts


def sentence(f: Finding) -> str:
    return phrase(f"Another run of {wording.subject(f)} reaches {target(f)} at ", wording.number(f).text)


def target(f: Finding) -> str:
    item = wording.first(f, AccuracyTarget)
    return f"{100 * item.accuracy:.6g} %" if item else "the target"


REASONS: Mapping[str, Sentence] = {
    OUT_OF_REACH: f"The law does not reach the target within {REACH:g} times the measured range.",
    BELOW_RANGE: "The target is reached below the smallest run, where the law has no record.",
}
