"""Warm-ups that short runs hardly leave."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis.check import Check
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck
from bench.train.schedule import total_steps

LONG_WARMUP = "long warm-up"
"""Names (model,); high: share of its shortest run, which looks worse: bends exponents."""
MAX_WARMUP = 0.1
"""A warm-up that takes a larger share of a model's shortest run is named."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """The model whose shortest run is most of all a warm-up, where that is much."""
    shares, trained = {}, dict(zip(evidence.horizons["variant"], evidence.horizons["trained_as"], strict=True))
    for series in evidence.on_axis("compute", every=True):
        used, seen = trained[series.variant], series.points[0].images_seen
        if used.warmup_steps > MAX_WARMUP * total_steps(seen, used.batch):
            shares[series.label] = used.warmup_steps / total_steps(seen, used.batch)
    if shares:
        most = max(shares, key=lambda name: shares[name])
        yield ValidityCheck(kind=LONG_WARMUP, names=(most,), high=shares[most])


CHECK = Check(
    order=16,
    find=find,
    words={
        LONG_WARMUP: "Warm-up takes {high:.0%} of the shortest run of {names}, which may lower its score.",
    },
)
