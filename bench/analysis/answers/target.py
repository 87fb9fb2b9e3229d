"""Compute or images that a family needs for a target accuracy."""

from __future__ import annotations

import numpy as np

from bench.analysis.answers.answer import Answer
from bench.analysis.compare import Verdict
from bench.analysis.fits.bootstrap import LEVEL, quantiles
from bench.analysis.fits.conscience import MAX_EXTRAPOLATION
from bench.analysis.laws import COMPUTE, Law
from bench.analysis.words import count, flops, percent, significant

SURE = 0.9  # share of refits that must reach the target within ten times the data


def default_target(laws: dict[str, Law]) -> float | None:
    """The least of the families' best accuracies: reached by all, so that they can be compared; rounded down."""
    best = [1 - float(law.within.fit.points.y.min()) for law in laws.values()]
    return np.floor(1000 * min(best)) / 1000 if best else None


def needed(law: Law, accuracy: float) -> Answer:
    """What `law` needs for `accuracy` (0..1); "cannot tell" where that lies too far beyond its points."""
    what = "much compute is" if law.axis == COMPUTE else "many distinct images are"
    question = f"How {what} needed for {percent(accuracy)} % accuracy?"
    show = flops if law.axis == COMPUTE else (lambda x: f"{count(x)} images")
    error = np.array([1 - accuracy])
    main, every = law.inverse_of_fit(error)[0], law.inverse(error)[:, 0]
    reached = float(np.isfinite(every).mean())
    if not np.isfinite(main) or reached < SURE:
        why = f"Within {MAX_EXTRAPOLATION:.0f} times the largest run, {reached:.0%} of the refits reach it."
        return Answer(question=question, subject=law.family, verdict="cannot tell", sentence=why,
                      n=law.runs, basis=law.basis)  # fmt: skip
    value = float(np.exp(main))
    low, high = (float(np.exp(end)) for end in quantiles(np.where(np.isfinite(every), every, np.inf), LEVEL))
    factor = max(1.0, value / law.range[1], law.range[0] / value)
    verdict: Verdict = "yes"
    sentence = f"{show(value)} [{show(low)}, {show(high)}]"
    sentence += f", {significant(factor, 2)} times beyond the data." if factor > 1 else "."
    return Answer(question=question, subject=law.family, verdict=verdict, sentence=sentence, estimate=value, low=low,
                  high=high, unit="FLOP" if law.axis == COMPUTE else "images", n=law.runs, extrapolated=factor,
                  basis=law.basis)  # fmt: skip
