"""Whether a family has stopped improving at the top of its range: the slope of its largest points alone.

A law fitted to the whole range cannot answer this: a power law always improves. So a power law is fitted to the upper
part of the frontier, and the interval of its exponent tells. Runs beyond the frontier's end, which took more compute
and brought nothing, belong to the upper part; where they span a doubling of compute, "still improving" cannot be said.
"""

from __future__ import annotations

import numpy as np

from bench.analysis.answers.answer import Answer
from bench.analysis.compare import Verdict
from bench.analysis.laws import DRAWS, Law
from bench.core.errors import UserError
from bench.core.formatting import flops, percent, significant
from bench.stats import bootstrap, fit
from bench.stats.forms import POWER
from bench.stats.lack_of_fit import lack_of_fit

QUESTION = "Has the family stopped improving at its largest compute?"
PLACES = 4  # distinct budgets at the top: two parameters, and two more to see the noise
DOUBLING, SAME = 2.0, 1.05  # times the compute of the best run
MATTERS = 0.02
"""A slope under which doubling compute lowers error by less than 1.4 % of itself counts as stopped."""


def saturation(law: Law) -> Answer:
    """ "yes": error falls by less than `MATTERS` at the top, surely. "no": it still falls, beyond the interval."""
    data = law.within.fit.points
    best = np.unique(law.frontier[0])
    upper = np.union1d(best, data.x[0][data.x[0] > best[-1]])
    top = (upper if len(upper) >= PLACES else np.unique(data.x[0]))[-PLACES:]
    part = data.take(np.isin(data.x[0], top))
    try:
        made = fit.fit(part, POWER, loss="squares")
    except UserError as error:
        return Answer(question=QUESTION, subject=law.family, verdict="cannot tell", sentence=error.what)
    low, high = bootstrap.resample(made, draws=2 * DRAWS, restarts=0).parameters()["c"]
    slope = made.parameters["c"]
    verdict: Verdict = "yes" if high < MATTERS else "no" if low > 0 else "cannot tell"
    each = [1 - 2.0**-c for c in (slope, low, high)]
    text = f"per doubling of compute between {flops(top[0])} and {flops(top[-1])} its error falls by "
    text += f"a relative {percent(each[0])} % [{_percent(each[1])}, {_percent(each[2])}]"
    text += f" (exponent {significant(slope, 2)})"
    begin = {"no": "Still improving", "yes": "It has", "cannot tell": "The interval holds improving and not"}[verdict]
    flat = ""
    if law.most > best[-1] * SAME:
        flat = f" No run above {flops(best[-1])} did better, up to {flops(law.most)}."
        if verdict == "no" and law.most >= DOUBLING * best[-1]:
            verdict, begin = "cannot tell", "It was, below the best run"
    means = law.group_means.take(np.isin(law.group_means.x, top))
    missed = lack_of_fit(means, made.predict(means.x), parameters=made.form.size)
    rough = f" A rough number: the line {missed.clause}." if missed is not None and missed.fails else ""
    return Answer(
        question=QUESTION, subject=law.family, verdict=verdict, sentence=f"{begin}: {text}.{flat}{rough}",
        estimate=slope, low=low, high=high, unit="exponent", n=len(part),
        basis=f"power law through the {len(top)} largest budgets",
    )  # fmt: skip


def _percent(share: float) -> str:
    return percent(share).replace("-", "−")
