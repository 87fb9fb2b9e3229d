"""How much compute, or how many images, a family needs for an accuracy. A law is asked beyond the data only where it
has a record there, and the answer says how far."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Axis, Finding, Item, LawDeviation, Reason, Verdict
from bench.analysis.law_findings import SAME_COMPUTE, X_QUANTITY, deviation, law_finding, laws_of
from bench.analysis.scaling_laws import Law
from bench.analysis.wording import Sentence
from bench.core.formatting import percent, plural, significant
from bench.stats.bootstrap import LAW_LEVEL
from bench.stats.extrapolation import MIN_ORIGINS, PastError
from bench.stats.lack_of_fit import MATERIAL, Z_CONTRADICTION

REFITS_NEEDED = 0.9  # share of refits that must reach a target within ten times the data

# Reasons.
NO_RECORD = "no record"  # the target lies beyond the data, and too few earlier origins tell how far off a law is
EXTRAPOLATION_REFUSED = "extrapolation refused"
"""Only the share `Finding.agreement` of refits reach the target within ten times the data."""
BELOW_RANGE = "below range"  # the target is reached below the smallest run, where no law has a record


@dataclass(frozen=True, kw_only=True)
class AccuracyTarget(Item, kind="Target"):
    """A target accuracy: the least of the families' best, or the best of the only family, unless given.

    asked: range in which the law has points or a record. between: the measured points between which it is reached (the
    first None: by the smallest; both: by none). lost: the largest point that does not reach it although a smaller one
    does. record: how far off the law was at about the distance of the upper end; None inside the data."""

    accuracy: float
    asked: tuple[float, float]
    between: tuple[float | None, float | None] = (None, None)
    lost: float | None = None
    record: PastError | None = None


def targets(evidence: Evidence, name: str, axis: Axis, *, accuracy: float | None = None) -> Iterator[Finding]:
    """The findings of the question `name` about every family.

    Args:
        accuracy: the target, 0..1; by default one that every family reached.
    """
    known = laws_of(evidence, axis)
    target = accuracy if accuracy is not None else reached_by_all(known)
    for law in known.values() if target is not None else ():
        yield needed_for(name, law, target)  # type: ignore[arg-type]


def reached_by_all(found: dict[str, Law]) -> float | None:
    """The least of the families' best mean accuracies, rounded down: it can be compared between them. To 5 or 1 % where
    every family has points on both sides of that."""
    if not found:
        return None
    least = min(1 - float(law.frontier[1].min()) for law in found.values())
    first = max(1 - float(law.frontier[1].max()) for law in found.values())
    rounded = [math.floor(least * parts + 1e-9) / parts for parts in (20, 100, 1000)]
    return next((accuracy for accuracy in rounded if accuracy > first), rounded[-1])


def needed_for(question: str, law: Law, accuracy: float) -> Finding:
    """Compute, or images, that `law` needs for `accuracy` (0..1)."""
    error = np.array([1 - accuracy])
    main = law.inverse_of_fit(error)[0]
    every, own = (
        x[~np.isnan(x)] for x in (law.inverse(error)[:, 0], law.inverse_of_form(error)[:, 0])
    )  # failed refits
    reached = float((every < np.inf).mean()) if len(every) else 0.0
    target = _target(law, accuracy)
    finding = partial(
        law_finding(question, law),
        agreement=reached,
        **X_QUANTITY[law.axis],
    )
    cannot = partial(finding, verdict=Verdict.CANNOT_TELL)
    value, (least, most) = float(np.exp(main)), law.range
    if value * SAME_COMPUTE < least:
        return cannot(reasons=(BELOW_RANGE,), evidence=(target,))
    missed = _deviation_at(law, value) if np.isfinite(main) else []
    if missed:
        return cannot(reasons=(Reason.LACK_OF_FIT,), evidence=(target, *missed))
    if value > most * SAME_COMPUTE and not law.forecast.has_record:
        return cannot(reasons=(NO_RECORD,), evidence=(target,))
    if not np.isfinite(main) or reached < REFITS_NEEDED:
        return cannot(reasons=(EXTRAPOLATION_REFUSED,), evidence=(target,))
    tails = [0.5 - LAW_LEVEL / 2, 0.5 + LAW_LEVEL / 2]
    of_all, of_own = (np.quantile(refits, tails, method="nearest") for refits in (every, own if len(own) else every))
    ends = min(of_all[0], of_own[0]), max(of_all[1], of_own[1])  # they contain the interval of the form that is shown
    low, high = (float(np.exp(end)) if np.isfinite(end) else None for end in ends)  # None: outside the law's range
    if high is None or high > most:  # beyond the data the interval comes from the law's record
        first, last = law.reached(float(error[0]))
        low = None if low is None else min(low, first or low)
        high = None if high is None or last is None else max(high, last)
    low = None if low is None or low * SAME_COMPUTE < least else low
    reach, high_reach = (max(1.0, end / most) for end in (value, law.known_to if high is None else high))
    if high_reach > 1 and law.forecast.has_record:
        target = replace(target, record=law.forecast.past_error(math.log(high_reach)))
    return finding(
        verdict=Verdict.YES, estimate=value, low=low, high=high, evidence=(target,), reach=reach, high_reach=high_reach
    )


def _deviation_at(law: Law, x: float) -> list[Item]:
    """Where the law misses its group means, or one beside x, by more than their noise; [] if it does not."""
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
    target = AccuracyTarget(accuracy=accuracy, asked=(law.range[0], law.known_to))
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
        texts.append("The upper end lies beyond the data, where no record supports one.")
    if f.verdict == Verdict.CANNOT_TELL and target is not None and target.between[1] is not None:
        low, high = target.between
        where = f"by {wording.place(f, high)}" if low is None else f"between {wording.between(f, low, high, 'and')}"
        lost = f", but not at {wording.place(f, target.lost)}" if target.lost is not None else ""
        texts.append(f"Measured points reach the target {where}{lost}.")
    return texts


def sentence(f: Finding) -> str:
    return f"{wording.subject(f)} needs {wording.number(f).text} for an accuracy of {target(f)}"


def target(f: Finding) -> str:
    item = wording.first(f, AccuracyTarget)
    return f"{100 * item.accuracy:.3g} %" if item else "the target"


REASONS: Mapping[str, Sentence] = {
    NO_RECORD: f"The target lies beyond the data, and fewer than {MIN_ORIGINS} earlier origins show how far off "
    "the law may be there.",
    EXTRAPOLATION_REFUSED: lambda f: (
        f"Only {f.agreement or 0:.0%} of the resampled fits reach the target within 10 times the measured range."
    ),
    BELOW_RANGE: "The target is reached below the smallest run, where the law has no record.",
}
