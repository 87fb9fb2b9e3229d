"""What an answer is."""

from __future__ import annotations

from dataclasses import dataclass

from bench.analysis.compare import Verdict


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One question answered from records.

    Attributes:
        question, subject: what was asked, and about whom (a family, or two).
        verdict: "yes", "no" or "cannot tell", for the question as it is worded.
        sentence: the answer with its numbers.
        estimate, low, high: the number behind it with its total interval (None where there is none).
        unit: of the number: "times", "FLOP", "images", "share".
        n: points behind it.
        extrapolated: how many times beyond the data the number lies; 1 inside.
        basis: what the number rests on: laws, points, losses, kind of interval.
    """

    question: str
    subject: str
    verdict: Verdict
    sentence: str
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    n: int = 0
    extrapolated: float = 1.0
    basis: str = ""
