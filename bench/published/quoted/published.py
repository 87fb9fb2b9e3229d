"""A source of numbers that reports quote: published checkpoints of timm, open_clip and the ViT paper. Its figures are
those that the questions about published networks name."""

from bench.published import explore, public_evidence, public_models
from bench.report.quoted.source import QuotedSource

QUOTED = QuotedSource(
    read=lambda: (public_evidence.evidence(), {}),
    beside=public_evidence.beside,
    page=lambda folder: ({explore.LINK: explore.PAGE}, explore.files(folder)),
    table=public_models.table,
    check_recipe=public_models.check,
)
