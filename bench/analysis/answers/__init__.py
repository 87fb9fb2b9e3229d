"""Questions about scaling that a study's records answer, each with an interval or "cannot tell". No torch."""

from __future__ import annotations

from bench.analysis.answers.answer import Answer
from bench.analysis.answers.ask import answers
from bench.analysis.answers.claims import Claim, claims

__all__ = ["Answer", "Claim", "answers", "claims"]
