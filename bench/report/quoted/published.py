"""Published checkpoints of timm, open_clip and the paper. Their figures belong to their questions."""

from bench.analysis import public_evidence
from bench.report import explore
from bench.report.quoted.source import QuotedSource

QUOTED = QuotedSource(
    read=lambda: (public_evidence.evidence(), {}),
    beside=public_evidence.beside,
    page=lambda folder: ({explore.LINK: explore.PAGE}, explore.files(folder)),
)
