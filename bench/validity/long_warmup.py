"""Finds learning-rate warm-ups that take a large part of short runs."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis.check import Check
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck
from bench.train.schedule import total_steps

LONG_WARMUP = "long warm-up"
"""The warm-up takes a large part of a model's shortest run, which may lower its score and so distort exponents.
`names`: the model; `high`: fraction of the run."""
MAX_WARMUP = 0.1
"""Fraction of a model's shortest run above which a warm-up is reported."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield one result for the model whose warm-up takes the largest fraction of its shortest run; none if that
    fraction is at most `MAX_WARMUP`."""
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
