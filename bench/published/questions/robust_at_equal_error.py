"""Question: at equal ImageNet error, are published networks that saw more images more accurate on other test sets?

The comparison is not controlled: authors, years and recipes differ between groups of pre-training sets.

Findings:
    subject: the test set, and the group of pre-training sets that is compared with ImageNet-1k.
    estimate: mean accuracy of the group's checkpoints whose ImageNet error lies in `BAND`, minus that of the
        checkpoints of ImageNet-1k.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy import stats

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Counts, Finding, Reason, Unit, Verdict
from bench.analysis.question import Question
from bench.core.phrase import phrase
from bench.published import public_evidence
from bench.published.matched import LEVEL
from bench.published.robustness import BAND, TESTS, checkpoints, in_band

NAME = "robust at equal error"
BASE = "ImageNet-1k"
FEWEST = 3  # least number of checkpoints of a group


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per test set and group of pre-training sets other than ImageNet-1k."""
    near = in_band(checkpoints()) if public_evidence.is_public(evidence) else pd.DataFrame({"upstream": []})
    groups = {str(name): rows for name, rows in near.groupby("upstream") if len(rows) >= FEWEST}
    for column, test in TESTS.items():
        for name, rows in groups.items():
            if name != BASE and BASE in groups:
                yield _finding(test, name, rows[column] / 100, groups[BASE][column] / 100)


def _finding(test: str, group: str, a: pd.Series, b: pd.Series) -> Finding:
    welch = stats.ttest_ind(a, b, equal_var=False, nan_policy="omit")
    low, high = (float(end) for end in welch.confidence_interval(LEVEL))
    decided = low > 0 or high < 0
    estimate = float(np.nanmean(a) - np.nanmean(b))
    return Finding(
        question=NAME,
        subject=(test, group),
        verdict=(Verdict.YES if low > 0 else Verdict.NO) if decided else Verdict.CANNOT_TELL,
        reasons=() if decided else (Reason.WITHIN_INTERVAL,),
        quantity="accuracy difference",
        unit=Unit.SHARE,
        estimate=estimate,
        low=low,
        high=high,
        level=LEVEL,
        n=Counts(models=len(a) + len(b)),
        main=False,
    )


def say(f: Finding) -> Iterator[str]:
    yield f"Checkpoints with {BAND[0]:g} to {BAND[1]:g} % error on ImageNet, against those of {BASE}; not controlled."
    yield "The interval is Welch's over checkpoints."


QUESTION = Question(
    name=NAME,
    label="More robust at equal error?",
    text="At equal ImageNet error, do networks that saw more images do better on other tests?",
    yes="better",
    no="worse",
    ask=ask,
    say=say,
    order=16,
    subject=lambda f: f"{f.subject[0]}, {f.subject[1]}",
    sentence=lambda f: phrase(
        f"At equal ImageNet error {f.subject[1]} gives ", wording.amount(f), f" on {f.subject[0]}"
    ),
    figures=("published-robustness",),
    is_of_pairs=True,
)
