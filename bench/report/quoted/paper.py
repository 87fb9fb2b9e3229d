"""The paper's own tables of results."""

from bench.analysis import published
from bench.analysis.evidence import Evidence
from bench.report.quoted.source import QuotedSource


def read() -> tuple[Evidence, dict[str, Evidence]]:
    """Table 6, and every figure that is drawn from one of the tables."""
    figures = published.figures()
    return figures["compute"], {"frontier": figures["compute"], **figures}


def beside(study: Evidence) -> Evidence:
    """Table 5 beside networks that were trained on several sets, else Table 6."""
    return published.figures()["pretraining-data"] if study.suite == "transfer" else published.evidence()


QUOTED = QuotedSource(read=read, beside=beside)
