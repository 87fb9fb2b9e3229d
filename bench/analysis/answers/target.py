"""Compute or images that a family needs for a target accuracy."""

from __future__ import annotations

import numpy as np

from bench.analysis.answers.answer import Answer
from bench.analysis.compare import Verdict
from bench.analysis.laws import COMPUTE, Law
from bench.core.formatting import count, flops, percent, significant
from bench.stats.bootstrap import LEVEL
from bench.stats.diagnostics import MAX_EXTRAPOLATION
from bench.stats.lack_of_fit import MATERIAL, Z_CONTRADICTION

SAME = 1.05  # closer than this to the largest budget is at it
SURE = 0.9  # share of refits that must reach the target within ten times the data


def default_target(laws: dict[str, Law]) -> float | None:
    """The least of the families' best mean accuracies: reached by all, so that they can be compared; rounded down."""
    best = [1 - float(law.frontier[1].min()) for law in laws.values()]
    return np.floor(1000 * min(best)) / 1000 if best else None


def needed(law: Law, accuracy: float, *, why: str = "") -> Answer:
    """What `law` needs for `accuracy` (0..1); "cannot tell" where that lies too far beyond its points.

    `why`: a clause that ends the question: where the accuracy comes from.
    """
    what = "much compute is" if law.axis == COMPUTE else "many distinct images are"
    question = f"How {what} needed for {percent(accuracy)} % accuracy{why}?"
    show = flops if law.axis == COMPUTE else (lambda x: f"{count(x)} images")
    error = np.array([1 - accuracy])
    main, every = law.inverse_of_fit(error)[0], law.inverse(error)[:, 0]
    every = every[~np.isnan(every)]  # a refit that is no number says nothing
    reached = float((every < np.inf).mean()) if len(every) else 0.0
    if not np.isfinite(main) or reached < SURE:
        why = f"Only {reached:.0%} of the refits reach it within {MAX_EXTRAPOLATION:.0f} times the data."
        why = "It is reached below a tenth of the smallest run." if main == -np.inf else why
        return Answer(question=question, subject=law.family, verdict="cannot tell", sentence=why,
                      n=law.runs, basis=law.basis)  # fmt: skip
    value = float(np.exp(main))
    missed = _contradicted(law, value)
    if missed:
        why = f"{missed} {law.group_means.reach(float(error[0]), show)}"
        return Answer(question=question, subject=law.family, verdict="cannot tell", sentence=why,
                      n=law.runs, basis=law.basis)  # fmt: skip
    low, high = _ends(every, law)
    factor = max(1.0, value / law.range[1], law.range[0] / value)
    verdict: Verdict = "yes"
    first = f"under {show(law.grid[0])}" if low is None else show(low)
    last = f"over {show(law.grid[-1])}" if high is None else show(high)
    sentence = f"{show(value)} [{first}, {last}]{_beyond(factor, high, law)}."
    return Answer(question=question, subject=law.family, verdict=verdict, sentence=sentence, estimate=value, low=low,
                  high=high, unit="FLOP" if law.axis == COMPUTE else "images", n=law.runs, extrapolated=factor,
                  basis=law.basis)  # fmt: skip


def _contradicted(law: Law, x: float) -> str:
    """A sentence where the law misses its marks, or a mark beside x, by more than their noise; else ""."""
    if law.lack_of_fit is None:
        return ""
    if law.lack_of_fit.fails:
        return f"The law {law.lack_of_fit.clause}."
    marks = law.group_means
    right = int(np.searchsorted(marks.x, x))
    for i in sorted({max(0, right - 1), min(right, len(marks.x) - 1)}):
        said = float(law.within.fit.predict(marks.x[i : i + 1])[0])
        if abs(marks.error[i] - said) > max(Z_CONTRADICTION * marks.noise[i], MATERIAL * marks.error[i]):
            return f"The law says {percent(1 - said)} % at a mark beside it that has {percent(1 - marks.error[i])} %."
    return ""


def _ends(log_x: np.ndarray, law: Law) -> tuple[float | None, float | None]:
    """The interval over all refits; None for an end that lies where the law is not asked any more."""
    low, high = np.quantile(log_x, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], method="nearest")
    return float(np.exp(low)) if np.isfinite(low) else None, float(np.exp(high)) if np.isfinite(high) else None


def _beyond(factor: float, high: float | None, law: Law) -> str:
    """A clause where the number, or the end of its interval, is extrapolated."""
    if factor > SAME:
        return f", {significant(factor, 2)} times beyond the data"
    reach = law.grid[-1] / law.range[1] if high is None else high / law.range[1]
    return f"; the upper end lies {significant(reach, 2)} times beyond the data" if reach > SAME else ""
