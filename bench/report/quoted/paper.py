"""A source of quoted numbers: the paper's own tables of results."""

from bench.analysis import published
from bench.analysis.evidence import Evidence
from bench.report.quoted.source import QuotedSource


def read() -> tuple[Evidence, dict[str, Evidence]]:
    """Return the evidence of Table 6; and, for each figure that one of the tables allows, its name -> evidence."""
    figures = published.figures()
    return figures["compute"], {"frontier": figures["compute"], **figures}


def beside(study: Evidence) -> Evidence:
    """Return the evidence that is drawn beside a study: Table 5 for networks that were trained on several sets, else
    Table 6."""
    return published.figures()["pretraining-data"] if study.suite == "transfer" else published.evidence()


QUOTED = QuotedSource(read=read, beside=beside)
