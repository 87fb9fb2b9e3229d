"""How fast does the zero-shot error of published CLIP networks fall with compute, by the set that they were trained on?

Not controlled: networks, numbers of samples and batches differ along each line.

Findings:
    subject: the data set.
    estimate: exponent b of error = a x compute^-b over the set's ViTs, by least squares in logarithms.
    YES: its interval is above that of every other set's estimate, or (NO) below.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy import stats

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Counts, Finding, Verdict
from bench.analysis.matched import LEVEL
from bench.analysis.public_evidence import is_public
from bench.analysis.question import FACTS, Question
from bench.analysis.wording import Number
from bench.core.formatting import significant
from bench.cost import public_models
from bench.stats.intervals import t_quantile

NAME = "exponent by data set"
FEWEST = 3  # networks of a line
NEAR_CHANCE = 90.0  # percent of error above which it no longer follows a power law
SETS = {
    "CommonPool": r"ViT-\w-\d+\.commonpool_(s|m|l|xl)_s\d+[mb]_b\d+k",
    "DataComp": r"ViT-(B-32|B-16|L-14)\.datacomp_\w+_s\d+[mb]_b\d+k",
    "LAION-400M": r"ViT-(B-32|B-16|B-16-plus-240|L-14)\.laion400m_e32",
    "LAION-2B": r"ViT-\w+-\d+\.laion2b_s\d+b_b\d+k",
    "WIT-400M": r"ViT-(B-32|B-16|L-14)\.openai",
}
"""Data sets with networks of several sizes, by patterns of their names. DataComp is the best part of CommonPool."""


def networks() -> pd.DataFrame:
    """Plain ViTs of these sets with their cost, and columns `compute`, `error` (percent, below `NEAR_CHANCE`) and
    `upstream`."""
    table = public_models.table("clip")
    table = table.assign(compute=table["train_exaflops"], error=100 - table["in1k_zeroshot"])
    parts = [table[table["model"].str.fullmatch(pattern)].assign(upstream=name) for name, pattern in SETS.items()]
    made = pd.concat(parts).sort_values("compute", kind="stable")
    return made[made["error"] < NEAR_CHANCE]


def power_law(compute_N: np.ndarray, error_N: np.ndarray) -> tuple[float, float, float, float]:
    """error = a x compute^-b by least squares in logarithms: (a, b, and the ends of b's interval)."""
    fit = stats.linregress(np.log(compute_N), np.log(error_N))
    half = t_quantile(len(compute_N) - 2, LEVEL) * fit.stderr
    return float(np.exp(fit.intercept)), -fit.slope, -fit.slope - half, -fit.slope + half


def ask(evidence: Evidence) -> Iterator[Finding]:
    """One finding per set."""
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
