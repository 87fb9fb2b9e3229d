"""Questions that fitted laws answer. Nothing is read off a law where group means contradict it; only targets and
the run to do next reach beyond the data, where the law has a record, and say how far.

The shared law of two families, one shape shifted by a factor of compute, answers how much more one of them needs:
inverting two laws apart magnifies what is uncertain where they are flat; one shape spends the points on the factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import combinations

import numpy as np

from bench.analysis.evidence import Evidence
from bench.analysis.finding import (
    NEEDED,
    Axis,
    Budget,
    Candidate,
    Counts,
    Finding,
    Item,
    LawDeviation,
    Quantity,
    Question,
    Reason,
    SharedLaw,
    Target,
    TopOfRange,
    TrendPoint,
    Unit,
    Verdict,
)
from bench.analysis.frontiers import family_of_kind
from bench.analysis.scaling_laws import DRAWS, LOSSES, POSSIBLE, STARTS, Law, laws
from bench.core.errors import UserError
from bench.stats import averaging, bootstrap, fit
from bench.stats.averaging import Averaged
from bench.stats.bootstrap import LAW_LEVEL, Resampled, variance_components
from bench.stats.crossing import crossing
from bench.stats.forms import FIRST, POWER, SECOND, two_families
from bench.stats.intervals import t_quantile, z_quantile
from bench.stats.lack_of_fit import MATERIAL, Z_CONTRADICTION, GroupMeans, LackOfFit, lack_of_fit

LOG_K_LIMIT = math.log(1e4)  # where laws are so flat that any factor fits
UNDETERMINED = 1e4  # ratio of the ends of a factor's interval
DOUBLING, SAME = 2.0, 1.05  # times the compute of the best run; closer than SAME is at it
SATURATED_BELOW = 0.02
"""A slope under which doubling compute lowers error by less than 1.4 % of itself counts as stopped."""
REFITS_NEEDED = 0.9  # share of refits that must reach a target within ten times the data
CANDIDATES, BEYOND = 9, 4.0  # runs that could be done per family, up to this many times its largest


def ask(evidence: Evidence, *, accuracy: float | None = None) -> list[Finding]:
    """Every answer, in order of questions; [] where no family has points enough for a law.

    Args:
        accuracy: of "how much is needed for it", 0..1; by default one that every family reached.
    """
    by_compute, by_images = laws(evidence, axis=Axis.COMPUTE), laws(evidence, axis=Axis.IMAGES)
    vit, resnet, hybrid = (_of_kind(by_compute, kind) for kind in ("vit", "resnet", "hybrid"))
    vit_images, resnet_images = (_of_kind(by_images, kind) for kind in ("vit", "resnet"))
    pairs = list(combinations(by_compute.values(), 2))
    found = [compute_to_match(a, b) for a, b in pairs]
    if vit and resnet:
        found.append(crossing_of(Question.CROSSING_OVER_COMPUTE, vit, resnet))
    if vit and hybrid:
        found += [advantage_shrinks(hybrid, vit), crossing_of(Question.HYBRIDS_STOP_HELPING, vit, hybrid)]
    if vit_images and resnet_images:
        found.append(crossing_of(Question.CROSSING_OVER_IMAGES, vit_images, resnet_images))
    found += [saturated(law) for law in by_compute.values()]
    for by_family in (by_compute, by_images):
        wanted = accuracy if accuracy is not None else _reached_by_all(by_family)
        found += [needed_for(law, wanted) for law in by_family.values() if wanted is not None]
    return found + [run for a, b in pairs if (run := next_run(a, b)) is not None]


def _of_kind(found: dict[str, Law], kind: str) -> Law | None:
    name = family_of_kind(found, kind)
    return found[name] if name else None


def _finding(question: Question, *families: Law, subject: Sequence[str] = ()) -> partial[Finding]:
    """A finding about some laws, without its answer."""
    names = tuple(subject or (law.family for law in families))
    return partial(
        Finding,
        question=question,
        subject=names,
        level=LAW_LEVEL,
        axis=families[0].axis,
        n=Counts(points=sum(len(law.points) for law in families), runs=sum(law.runs for law in families)),
    )


def _deviation(families: Sequence[str], found: LackOfFit | None) -> list[Item]:
    """What to hand on of a test that fails."""
    if found is None or not found.fails:
        return []
    return [LawDeviation(families=tuple(families), predicted=found.predicted, observed=found.error, p=found.p)]


def _x_unit(law: Law) -> dict[str, Quantity | Unit]:
    if law.axis == Axis.COMPUTE:
        return {"quantity": Quantity.COMPUTE, "unit": Unit.FLOP}
    return {"quantity": Quantity.IMAGES, "unit": Unit.IMAGES}


# -- a factor of compute between two families --------------------------------------------------------------------------


@lru_cache(maxsize=16)
def compute_to_match(first: Law, second: Law) -> Finding:
    """Compute of one family over the other's at equal error. YES: their needs differ beyond the interval."""
    finding = _finding(Question.COMPUTE_TO_MATCH, first, second)
    cannot = partial(finding, verdict=Verdict.CANNOT_TELL)
    sides = [law.within.fit.points.y for law in (first, second)]
    if max(y.min() for y in sides) >= min(y.max() for y in sides):
        return cannot(reasons=(Reason.NO_COMMON_ACCURACY,))
    try:
        shown, averaged = shared_laws(first, second)
    except UserError:
        return cannot(reasons=(Reason.FIT_FAILED,))
    own, over = (np.clip(values, -LOG_K_LIMIT, LOG_K_LIMIT) for values in (shown.thetas[:, -1], averaged.factors()))
    (a, b), (c, d) = (bootstrap.quantiles(values, LAW_LEVEL) for values in (own, over))
    within = math.exp(a), math.exp(b)
    low, high = math.exp(min(a, c)), math.exp(max(b, d))  # other forms must not hide what the shown one leaves open
    value = float(np.exp(np.clip(shown.fit.theta[-1], -LOG_K_LIMIT, LOG_K_LIMIT)))
    if high / low > UNDETERMINED:
        return cannot(reasons=(Reason.UNDETERMINED,))
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
        return cannot(
            reasons=(Reason.NO_SINGLE_FACTOR,), leader=less.family, axis=Axis.ACCURACY, trend=trend, evidence=(law,)
        )
    missed = _deviation((first.family, second.family), _shared_lack_of_fit(shown.fit, first, second))
    remarks = [*([Reason.CHANGES] if widens is not None else []), *([Reason.LACK_OF_FIT] if missed else [])]
    return finding(
        verdict=Verdict.YES if low > 1 else Verdict.CANNOT_TELL,
        leader=less.family,
        reasons=(*(() if low > 1 else (Reason.WITHIN_INTERVAL,)), *remarks),
        quantity=Quantity.COMPUTE_RATIO,
        unit=Unit.TIMES,
        estimate=value,
        low=low,
        high=high,
        evidence=(law, *missed),
    )


@lru_cache(maxsize=16)
def shared_laws(first: Law, second: Law) -> tuple[Resampled, Averaged]:
    """Refits of the shared law by the families' own form and loss, then by all forms and losses by their weights."""
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


def _widens(made: fit.Fit) -> bool | None:
    """Whether one family gains on the other along the range, by the slopes of their residuals: one factor is then an
    average. None where the slopes do not differ beyond their noise."""
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
    """The factor at every accuracy on the frontier of `less`, where a group mean contradicts all factors in [low,
    high]: `more` is there, beyond noise, with less than `low` times the compute, or is not with `high`."""
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


def _shared_lack_of_fit(made: fit.Fit, first: Law, second: Law) -> LackOfFit | None:
    sides = (first.group_means, second.group_means)
    x, error, noise = (np.concatenate([getattr(side, name) for side in sides]) for name in ("x", "error", "noise"))
    means = GroupMeans(x=x, error=error, noise=noise, freedom=min(side.freedom for side in sides))
    family = np.repeat([FIRST, SECOND], [len(side.x) for side in sides])
    return lack_of_fit(means, made.predict(np.stack([x, family])), parameters=made.form.size)


def next_run(a: Law, b: Law) -> Finding | None:
    """The run that shrinks the interval of `compute_to_match` most per FLOP; None where there is nothing to shrink.

    For refits with quantity q and log error f(x), a new point at x with noise variance s2 would lower the variance of q
    by cov(q, f(x))^2 / (var f(x) + s2): what a linear model makes of a normal posterior. Candidates are the families'
    budgets and, where the law has a record, up to four times beyond their largest; s2 then holds the law's past error.
    """
    if compute_to_match(a, b).estimate is None:
        return None
    refits = shared_laws(a, b)[0]
    quantity, spread = _without_tails(refits.thetas[:, -1:]), variance_components(refits.fit)
    found = []
    for law, family in ((a, FIRST), (b, SECOND)):
        x = np.geomspace(law.range[0], law.range[1] * (BEYOND if law.forecast.has_record else 1.0), CANDIDATES)
        with np.errstate(all="ignore"):
            curves = _without_tails(np.log(refits.predictions(np.stack([x, np.full(len(x), family)]))))
        shared = (quantity * curves).mean(axis=0)
        beyond = [law.forecast.half_width(float(d), level=LAW_LEVEL) for d in law.forecast.distance(x[None])]
        noise = spread.within + spread.between + (np.array(beyond) / z_quantile(LAW_LEVEL)) ** 2
        lowered = shared**2 / (curves.var(axis=0) + noise)
        lowered /= max(float(quantity.var()), 1e-300)
        shrinks = 1 - np.sqrt(1 - np.clip(lowered, 0, 1))
        reach = np.maximum(1.0, x / law.range[1])
        found += [
            Candidate(family=law.family, train_flops=float(at), shrinks=float(s), reach=float(r))
            for at, s, r in zip(x, shrinks, reach, strict=True)
        ]
    found.sort(key=lambda c: -c.shrinks / c.train_flops)
    best, most = found[0], max(found, key=lambda c: c.shrinks)
    return _finding(Question.NEXT_RUN, a, b)(
        verdict=Verdict.YES,
        leader=best.family,
        quantity=Quantity.COMPUTE,
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


# -- the order of two families -----------------------------------------------------------------------------------------


def crossing_of(question: Question, first: Law, second: Law) -> Finding:
    """Where the first begins to be ahead of the second."""
    found = crossing(first.averaged, second.averaged, names=(first.family, second.family))
    missed = [item for law in (first, second) for item in _deviation((law.family,), law.lack_of_fit)]
    remarks = [Reason.LACK_OF_FIT] if missed else []
    budgets: list[Item] = []
    if first.axis == Axis.IMAGES:
        budgets, remarks = [_budget(law) for law in (first, second)], [Reason.UNEQUAL_COMPUTE, *remarks]
    finding = partial(
        _finding(question, first, second),
        leader=found.leader or "",
        evidence=(*budgets, *missed),
        **_x_unit(first),
    )
    if found.x is not None:
        return finding(
            verdict=Verdict.YES if found.overtakes == first.family else Verdict.NO,
            reasons=tuple(remarks),
            estimate=found.x,
            low=found.low,
            high=found.high,
            agreement=found.share,
        )
    if found.throughout:
        return finding(verdict=Verdict.CANNOT_TELL, reasons=(Reason.AHEAD_THROUGHOUT, *remarks), agreement=found.share)
    why = Reason.CROSSING_UNSTABLE if found.common_range else Reason.NO_COMMON_RANGE
    return finding(verdict=Verdict.CANNOT_TELL, reasons=(why, *remarks), low=found.low, high=found.high)


def _budget(law: Law) -> Budget:
    """What the points of a curve over images were trained with."""
    spent = sorted((point.train_flops, point.images_seen) for point in law.points)
    (least, few), (most, many) = spent[0], spent[-1]
    return Budget(family=law.family, flops=(least, most), images_seen=(few, many))


def advantage_shrinks(hybrid: Law, vit: Law) -> Finding:
    """The trend of the hybrids' lead over compute: every hybrid on the frontier against ViT's frontier at its compute.

    ViT's frontier is interpolated between its points (in log compute); hybrids outside its range are left out.
    """
    (x, y), (at, own) = vit.frontier, hybrid.frontier
    inside = (at >= x[0]) & (at <= x[-1])
    at, leads = at[inside], np.interp(np.log(at[inside]), np.log(x), y) - own[inside]
    trend = tuple(TrendPoint(x=float(f), estimate=float(lead)) for f, lead in sorted(zip(at, leads, strict=True)))
    finding = partial(_finding(Question.HYBRID_ADVANTAGE_SHRINKS, hybrid, vit), n=Counts(points=len(at)), trend=trend)
    if len(at) < NEEDED:
        return finding(verdict=Verdict.CANNOT_TELL, reasons=(Reason.TOO_FEW_POINTS,))
    log_x = np.log10(at)
    (slope, intercept), covariance = np.polyfit(log_x, leads, 1, cov=True)
    known = np.hypot(vit.noise, hybrid.noise) / (log_x.std() * np.sqrt(len(at)))  # what noise of points makes of it
    half = t_quantile(len(at) - 2, LAW_LEVEL) * max(float(np.sqrt(covariance[0, 0])), known)
    low, high = -slope - half, -slope + half
    why = [Reason.WITHIN_INTERVAL] if low <= 0 <= high else []
    if low > 0 and intercept + slope * log_x.min() <= 0:
        why = [Reason.NO_ADVANTAGE]
    verdict = Verdict.CANNOT_TELL if why else Verdict.YES if low > 0 else Verdict.NO
    return finding(
        verdict=verdict,
        reasons=tuple(why),
        quantity=Quantity.LOSS_PER_TENFOLD,
        unit=Unit.SHARE,
        estimate=float(-slope),
        low=float(low),
        high=float(high),
    )


# -- one family --------------------------------------------------------------------------------------------------------


def saturated(law: Law) -> Finding:
    """Whether a family has stopped improving at the top of its range. YES: its error falls by less than
    `SATURATED_BELOW` there, beyond the interval. NO: it still falls.

    A law fitted to the whole range cannot answer this: a power law always improves. So one is fitted to the upper part
    of the frontier, and the interval of its exponent tells. Runs beyond the frontier's end, which took more compute and
    brought nothing, belong to the upper part; where they span a doubling, "still improving" cannot be told.
    """
    finding, data = _finding(Question.SATURATED, law), law.within.fit.points
    frontier = np.unique(law.frontier[0])
    best = float(frontier[-1])
    upper = np.union1d(frontier, data.x[0][data.x[0] > best])
    top = (upper if len(upper) >= NEEDED else np.unique(data.x[0]))[-NEEDED:]
    part = data.take(np.isin(data.x[0], top))
    about = TopOfRange(budgets=len(top), low=float(top[0]), high=float(top[-1]), best=best, most=law.most)
    try:
        made = fit.fit(part, POWER, loss="squares")
    except UserError:
        return finding(verdict=Verdict.CANNOT_TELL, reasons=(Reason.FIT_FAILED,), evidence=(about,))
    low, high = bootstrap.resample(made, draws=2 * DRAWS, restarts=0).parameters()["c"]
    verdict = Verdict.YES if high < SATURATED_BELOW else Verdict.NO if low > 0 else Verdict.CANNOT_TELL
    reasons = [Reason.WITHIN_INTERVAL] if verdict == Verdict.CANNOT_TELL else []
    if law.most > best * SAME:
        reasons.append(Reason.BENDS_AGAINST_TREND)
        if verdict == Verdict.NO and law.most >= DOUBLING * best:
            verdict = Verdict.CANNOT_TELL
    means = law.group_means.take(np.isin(law.group_means.x, top))
    missed = _deviation((law.family,), lack_of_fit(means, made.predict(means.x), parameters=made.form.size))
    return finding(
        verdict=verdict,
        reasons=(*reasons, *([Reason.LACK_OF_FIT] if missed else [])),
        quantity=Quantity.EXPONENT,
        estimate=made.parameters["c"],
        low=low,
        high=high,
        n=Counts(points=len(means.x), runs=len(part)),
        evidence=(about, *missed),
    )


def _reached_by_all(found: dict[str, Law]) -> float | None:
    """The least of the families' best mean accuracies, rounded down: it can be compared between them."""
    best = [1 - float(law.frontier[1].min()) for law in found.values()]
    return float(np.floor(1000 * min(best)) / 1000) if best else None


def needed_for(law: Law, accuracy: float) -> Finding:
    """Compute, or images, that `law` needs for `accuracy` (0..1)."""
    compute = law.axis == Axis.COMPUTE
    error = np.array([1 - accuracy])
    main, every = law.inverse_of_fit(error)[0], law.inverse(error)[:, 0]
    every = every[~np.isnan(every)]  # failed refits
    reached = float((every < np.inf).mean()) if len(every) else 0.0
    target = _target(law, accuracy)
    finding = partial(
        _finding(Question.COMPUTE_FOR_TARGET if compute else Question.IMAGES_FOR_TARGET, law),
        agreement=reached,
        **_x_unit(law),
    )
    cannot = partial(finding, verdict=Verdict.CANNOT_TELL)
    value, (least, most) = float(np.exp(main)), law.range
    if value * SAME < least:
        return cannot(reasons=(Reason.BELOW_RANGE,), evidence=(target,))
    missed = _deviation_at(law, value) if np.isfinite(main) else []
    if missed:
        return cannot(reasons=(Reason.LACK_OF_FIT,), evidence=(target, *missed))
    if value > most * SAME and not law.forecast.has_record:
        return cannot(reasons=(Reason.NO_RECORD,), evidence=(target,))
    if not np.isfinite(main) or reached < REFITS_NEEDED:
        return cannot(reasons=(Reason.EXTRAPOLATION_REFUSED,), evidence=(target,))
    ends = np.quantile(every, [0.5 - LAW_LEVEL / 2, 0.5 + LAW_LEVEL / 2], method="nearest")
    low, high = (float(np.exp(end)) if np.isfinite(end) else None for end in ends)  # None: outside the law's range
    if high is None or high > most:  # beyond the data the interval comes from the law's record
        first, last = law.reached(float(error[0]))
        low = None if low is None else min(low, first or low)
        high = None if high is None or last is None else max(high, last)
    low = None if low is None or low * SAME < least else low
    reach, high_reach = (max(1.0, end / most) for end in (value, law.known_to if high is None else high))
    if high_reach > 1 and law.forecast.has_record:
        target = replace(target, record=law.forecast.past_error(math.log(high_reach)))
    return finding(
        verdict=Verdict.YES, estimate=value, low=low, high=high, evidence=(target,), reach=reach, high_reach=high_reach
    )


def _deviation_at(law: Law, x: float) -> list[Item]:
    """Where the law misses its group means, or one beside x, by more than their noise; [] if it does not."""
    if law.lack_of_fit is None or law.lack_of_fit.fails:
        return _deviation((law.family,), law.lack_of_fit)
    means = law.group_means
    right = int(np.searchsorted(means.x, x))
    for i in sorted({max(0, right - 1), min(right, len(means.x) - 1)}):
        predicted, observed = float(law.within.fit.predict(means.x[i : i + 1])[0]), float(means.error[i])
        if abs(observed - predicted) > max(Z_CONTRADICTION * means.noise[i], MATERIAL * observed):
            return [LawDeviation(families=(law.family,), predicted=predicted, observed=observed, p=None)]
    return []


def _target(law: Law, accuracy: float) -> Target:
    """The accuracy, and where group means reach it."""
    means = law.group_means
    target = Target(accuracy=accuracy, asked=(law.range[0], law.known_to))
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
