"""Finds how much compute, or how many images, another run of a family needs to reach an accuracy, with an interval.

If the family's best measured points pass the accuracy, the answer is interpolated between two of them, without a fitted
law. Otherwise it comes from the law (error over compute or images), as in `vit-bench fit --reach`. A law is used beyond
the data only as far as its extrapolation error is known, and the answer says how far beyond.
"""

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

# Reasons of a finding (`Finding.reasons`).
OUT_OF_REACH = "out of reach"  # the law does not reach the target within `REACH` times the data
BELOW_RANGE = "below range"  # the target is reached below the smallest run, where no law was tested


@dataclass(frozen=True, kw_only=True)
class AccuracyTarget(Item, kind="Target"):
    """A target accuracy, and how it was found at which compute, or with how many images (x), a family reaches it.

    Attributes:
        accuracy: the target, 0 to 1.
        asked: range of x in which the law has points or a known extrapolation error.
        between: x of the two measured points between which the target is reached. The first is None if even the
            smallest point reaches it; both are None if no point does.
        lost: x of the largest point that does not reach the target although a smaller one does; None if there is no
            such point.
        record: how far off the law was, when it was fitted to less data, at about the distance of the interval's upper
            end; None if that end is inside the data.
        measured: whether the answer is interpolated between measured points.
        by_law: whether the law gives the upper end of the interval of such an answer, because that end is outside the
            points.
    """

    accuracy: float
    asked: tuple[float, float]
    between: tuple[float | None, float | None] = (None, None)
    lost: float | None = None
    record: PastError | None = None
    measured: bool = False
    by_law: bool = False


def targets(evidence: Evidence, name: str, axis: Axis) -> Iterator[Finding]:
    """Yield a finding of the question `name` for every family and target accuracy: the targets that the user gave, or
    else one that every family reached.

    Args:
        axis: whether compute or images are asked for.
    """
    known = laws_of(evidence, axis)
    for target in evidence.targets or (reached_by_all(known),):
        yield from (needed_for(name, law, target) for law in known.values() if target is not None)


def reached_by_all(laws: dict[str, Law]) -> float | None:
    """Return a round target accuracy that every family passes: the smallest of the families' best accuracies, rounded
    down to a multiple of 5 %, or of 1 % if some family has no point below that. None if some family has no point below
    either; an odd target such as 69.1 % would help nobody."""
    if not laws:
        return None
    least = min(1 - float(law.frontier[1].min()) for law in laws.values())
    first = max(1 - float(law.frontier[1].max()) for law in laws.values())
    rounded = [math.floor(least * parts + 1e-9) / parts for parts in (20, 100)]
    return next((accuracy for accuracy in rounded if accuracy > first), None)


def needed_for(question: str, law: Law, accuracy: float) -> Finding:
    """Return the finding of a question on how much compute, or how many images, another run of the law's family needs
    to reach `accuracy` (0..1)."""
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
    beyond = most if target.measured else law.forecast.grid[-1]  # an open upper end is at least this
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
    """Return the x (compute or images) at which the target is passed, interpolated between measured points of the
    frontier, with its interval. None if the target is not between two points, or if a larger point falls short of it
    again.

    Errors are interpolated linearly in log-log coordinates. The ends of the interval are where the lines through the
    ends of the points' intervals (for one more run) reach the target; 0 or infinite outside the measured range.
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
    half_N = quantile * np.sqrt(1 + seeds_N) * means.noise[on] / error_N  # includes the noise of one more run
    line_N = np.log(error_N)
    curves = np.stack([line_N, line_N - half_N, line_N + half_N])
    x, low, high = np.exp(invert(np.log(x_N), curves, np.log([1 - target.accuracy]))[:, 0]).tolist()
    return Inverse(x=x, low=low, high=high) if 0 < x < np.inf else None


def _deviation_at(law: Law, x: float) -> list[Item]:
    """Return a `LawDeviation` if the law deviates from its group means (means over seeds at one x) by more than their
    noise: over all of them (the lack-of-fit test fails), or at one that is next to `x`. [] if it does not."""
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
    """Return the target `accuracy` with the measured points between which it is reached."""
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
