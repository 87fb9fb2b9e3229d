"""How much more compute one family needs than another for the same accuracy: one law for both, shifted by a factor.

Inverting two laws apart magnifies what is uncertain where they are flat; one shape for both spends the points on the
factor. Shapes with and without a floor are ranked by extrapolation like all laws.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations

import numpy as np

from bench.analysis.answers.answer import Answer
from bench.analysis.compare import Verdict
from bench.analysis.laws import COMPUTE, DRAWS, FORMS, LOSSES, STARTS, Law
from bench.core.errors import UserError
from bench.core.formatting import percent, significant
from bench.stats import bootstrap, fit, model_selection
from bench.stats.forms import FIRST, SECOND, two_families
from bench.stats.lack_of_fit import Z_CONTRADICTION, GroupMeans, lack_of_fit

LIMIT = math.log(1e4)  # of log k, where laws are so flat that any factor fits
UNDETERMINED = 1e4
QUESTION = "How much compute does one family need to match another?"


def ratios(laws: dict[str, Law]) -> list[Answer]:
    """One answer per pair of families. "yes": their needs differ beyond the interval."""
    return [ratio(laws[a], laws[b]) for a, b in combinations(laws, 2)]


@lru_cache(maxsize=16)
def ratio(first: Law, second: Law) -> Answer:
    """Compute of the second family over the first's at equal error."""
    subject = f"{first.family} and {second.family}"
    sides = [law.within.fit.points.y for law in (first, second)]
    if max(y.min() for y in sides) >= min(y.max() for y in sides):
        return _cannot(subject, "No accuracy was reached by both.")
    try:
        resampled = factors(first, second)
    except UserError as error:
        return _cannot(subject, error.what)
    log_k = [np.clip(r.thetas[:, -1], -LIMIT, LIMIT) for r in resampled]
    low, high = (math.exp(end) for end in bootstrap.quantiles(np.concatenate(log_k), bootstrap.LEVEL))
    ends = bootstrap.quantiles(log_k[0], bootstrap.LEVEL)
    within = math.exp(ends[0]), math.exp(ends[1])
    low, high = min(low, within[0]), max(high, within[1])  # pooling with narrower analyses must not hide what one shows
    value = float(np.exp(np.clip(resampled[0].fit.theta[-1], -LIMIT, LIMIT)))
    if high / low > UNDETERMINED:
        return _cannot(subject, "Accuracy hardly changes with compute: any factor fits.")
    less, more = first, second
    if value < 1:
        less, more, value = second, first, 1 / value
        low, high, within = 1 / high, 1 / low, (1 / within[1], 1 / within[0])
    apart = _from_mark_to_mark(less, more, low, high)
    if apart:
        given = f"a law with one factor gives {significant(value, 2)} {_range(low, high)}"
        return _cannot(subject, f"One factor does not describe them: {apart}; {given}.")
    verdict: Verdict = "yes" if low > 1 else "cannot tell"
    what = "compute" if first.axis == COMPUTE else "distinct images"
    least, most = (percent(1 - end) for end in (min(y.max() for y in sides), max(y.min() for y in sides)))
    alone = "" if _range(*within) == _range(low, high) else f" ({_range(*within)} within one analysis)"
    sentence = (
        f"{more.family} needs {significant(value, 2)} times {_range(low, high)} {less.family}'s {what} for the same "
        f"accuracy{alone}; both reached {least} to {most} %."
    )
    sentence += _changing(resampled[0].fit) + _missed(resampled[0].fit, first, second)
    if verdict == "cannot tell":
        sentence = f"No difference beyond the interval: {sentence}"
    forms = ", ".join(sorted({r.fit.form.name for r in resampled}))
    return Answer(
        question=QUESTION, subject=subject, verdict=verdict, sentence=sentence, estimate=value,
        low=low, high=high,
        unit=f"{more.family} / {less.family}", n=first.runs + second.runs,
        basis=f"one law for both, shifted in {what} ({forms}; losses {', '.join(LOSSES)}); "
              f"{first.basis}; {second.basis}",
    )  # fmt: skip


def clause(answer: Answer) -> str:
    """An answer of `ratio` in a clause; "" where there is no number."""
    if answer.estimate is None or answer.low is None or answer.high is None:
        return ""
    more, less = answer.unit.split(" / ")
    return f"{more} needs {significant(answer.estimate, 2)} times {_range(answer.low, answer.high)} {less}'s compute"


@lru_cache(maxsize=16)
def factors(first: Law, second: Law) -> list[bootstrap.Resampled]:
    """Refits of the shared law: the chosen form first, then other credible forms and losses."""
    a, b = first.within.fit.points, second.within.fit.points
    family = np.concatenate([np.full(len(a), FIRST), np.full(len(b), SECOND)])
    points = fit.Points(
        x=np.stack([np.concatenate([a.x[0], b.x[0]]), family]), y=np.concatenate([a.y, b.y]),
        cluster=np.concatenate([a.cluster, b.cluster + a.cluster.max() + 1]),
    )  # fmt: skip
    ranked = model_selection.rank(points, [two_families(form) for form in FORMS], max_starts=STARTS)
    chosen = model_selection.select(ranked)
    made: list[bootstrap.Resampled] = []
    for form, loss in [(chosen, LOSSES[0]), *((f, o) for f in model_selection.credible(ranked) for o in LOSSES)]:
        if not made or (form, loss) != (chosen, LOSSES[0]):
            law = fit.fit(points, form, loss=loss, max_starts=STARTS, ftol=fit.REFIT_FTOL)
            made.append(bootstrap.resample(law, draws=DRAWS, restarts=0))
    return made


def _changing(made: fit.Fit) -> str:
    """Says so where one family gains on the other along the range: one factor is then an average."""
    log_x, second = np.log(made.points.x[0]), made.points.x[1] > FIRST
    sides = [side for side in (~second, second) if side.sum() > 2]
    if len(sides) < 2:
        return ""
    trends = [np.polyfit(log_x[side], made.residuals[side], 1, cov=True) for side in sides]
    gain = trends[1][0][0] - trends[0][0][0]
    if abs(gain) < Z_CONTRADICTION * math.sqrt(sum(covariance[0, 0] for _, covariance in trends)):
        return ""
    return " It is an average: the gap narrows with compute." if (gain < 0) == (made.theta[-1] > 0) else (
        " It is an average: the gap widens with compute.")  # fmt: skip


def _from_mark_to_mark(less: Law, more: Law, low: float, high: float) -> str:
    """The factors at the ends of the common range, in a clause, where a mark contradicts every factor in [low, high]:
    `more` is surely there with less than `low` times the compute of a mark of `less`, or surely not with `high`."""
    if not less.group_means.freedom or not more.group_means.freedom:
        return ""
    (x, error), (at, own) = less.frontier, more.frontier
    noise = Z_CONTRADICTION * math.hypot(less.noise, more.noise)
    soon, late = (np.interp(np.log(k * x), np.log(at), own) for k in (low, high))
    contradicted = ((soon < error - noise) & (low * x > at[0])) | ((late > error + noise) & (high * x < at[-1]))
    inside = (error <= own[0]) & (error >= own[-1])
    if not contradicted.any() or inside.sum() < 2:
        return ""
    times = np.exp(np.interp(-error[inside], -own, np.log(at))) / x[inside]
    ends = [(significant(times[i], 2), percent(1 - error[inside][i])) for i in (0, -1)]
    return (f"from mark to mark {more.family} needs {ends[0][0]} times {less.family}'s compute for {ends[0][1]} % and "
            f"{ends[1][0]} times for {ends[1][1]} %")  # fmt: skip


def _missed(made: fit.Fit, first: Law, second: Law) -> str:
    """Says so where the shared law misses the marks of the two."""
    sides = (first.group_means, second.group_means)
    means = GroupMeans(freedom=min(side.freedom for side in sides),
                  **{name: np.concatenate([getattr(side, name) for side in sides])
                     for name in ("x", "error", "noise")})  # fmt: skip
    family = np.repeat([FIRST, SECOND], [len(side.x) for side in sides])
    found = lack_of_fit(means, made.predict(np.stack([means.x, family])), parameters=made.form.size)
    return f" The law {found.clause}." if found is not None and found.fails else ""


def _range(low: float, high: float) -> str:
    return f"[{significant(low, 2)}, {significant(high, 2)}]"


def _cannot(subject: str, why: str) -> Answer:
    return Answer(question=QUESTION, subject=subject, verdict="cannot tell", sentence=why)
