"""A source of quoted numbers: the tables of results in the ViT paper."""

from bench.analysis import published
from bench.analysis.evidence import Evidence
from bench.report.quoted.source import QuotedSource


def read() -> tuple[Evidence, dict[str, Evidence]]:
    """Return (evidence of the ViT paper's Table 6; name of a figure -> evidence, for each figure that can be drawn from
    one of the paper's tables)."""
    figures = published.figures()
    return figures["compute"], {"frontier": figures["compute"], **figures}


def beside(study: Evidence) -> Evidence:
    """Return the published evidence to draw beside a study: the ViT paper's Table 5 for the suite "transfer", whose
    networks were trained on several sets, else Table 6."""
    return published.figures()["pretraining-data"] if study.suite == "transfer" else published.evidence()


QUOTED = QuotedSource(read=read, beside=beside)
