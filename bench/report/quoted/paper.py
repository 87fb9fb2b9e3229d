"""The paper's own tables of results."""

from bench.analysis import published
from bench.analysis.evidence import Evidence
from bench.report.quoted.source import QuotedSource


def read() -> tuple[Evidence, dict[str, Evidence]]:
    """Table 6, and every figure that is drawn from one of the tables."""
    figures = published.figures()
    return figures["compute"], {"frontier": figures["compute"], **figures}


QUOTED = QuotedSource(read=read, beside=lambda study: published.evidence())
