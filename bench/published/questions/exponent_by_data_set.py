"""Question: how fast does the zero-shot error of published CLIP networks fall with compute, on each training set?

The comparison is not controlled: networks, numbers of samples and batch sizes differ between the networks of a set.

Findings:
    subject: the data set.
    estimate: exponent b of error = a x compute^-b over the set's ViTs, by least squares in logarithms.
    verdict: YES if the interval of b is above every other set's estimate, NO if it is below all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Counts, Finding, Verdict
from bench.analysis.question import FACTS, Question
from bench.analysis.wording import Number
from bench.core.formatting import significant
from bench.published.clip import networks, power_law
from bench.published.matched import LEVEL
from bench.published.public_evidence import is_public

NAME = "exponent by data set"
FEWEST = 3  # least number of networks that were trained on a set


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per data set on which at least FEWEST networks were trained: the exponent of its power law."""
    by_set = networks().groupby("upstream", sort=False) if is_public(evidence) else ()
    laws = {
        str(name): (len(rows), power_law(rows["compute"], rows["error"]))
        for name, rows in by_set
        if len(rows) >= FEWEST
    }
    for name, (number, (_, exponent, low, high)) in laws.items():
        others = [other[1] for of, (_, other) in laws.items() if of != name]
        verdict = Verdict.YES if low > max(others) else Verdict.NO if high < min(others) else Verdict.CANNOT_TELL
        yield Finding(
            question=NAME,
            subject=(name,),
            verdict=verdict,
            quantity="exponent",
            estimate=exponent,
            low=low,
            high=high,
            level=LEVEL,
            n=Counts(points=number),
            main=False,
        )


def number(f: Finding) -> Number:
    value, interval = f.estimate or 0.0, wording.bracket(f.low, f.high, lambda end: significant(end, 2))
    return wording.shown(value, significant(value, 2), "", interval)


QUESTION = Question(
    name=NAME,
    label="Exponent of zero-shot error?",
    text="How fast does CLIP's zero-shot error fall with compute, by data set?",
    yes="fastest",
    no="slowest",
    tones=FACTS,
    ask=ask,
    say=lambda f: (
        f"Twice the compute leaves {100 * 2 ** -(f.estimate or 0):.0f} % of the error; {f.n.points} networks.",
        "Not controlled: networks and samples seen differ along the line.",
    ),
    order=18,
    number=number,
    figures=("published-clip",),
    is_of_pairs=True,
)
