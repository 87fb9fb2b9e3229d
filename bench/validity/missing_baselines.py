"""Finds baselines (untrained networks, raw pixels) that were not measured. Without them, the effect of training cannot
be separated from that of the probe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench.analysis.check import Check, names
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck
from bench.analysis.ladders import is_ladder

MISSING_BASELINE = "missing baseline"
"""`names`: models whose untrained network was not evaluated, and "raw pixels" if these were not evaluated."""

PIXEL_BASELINE = "raw pixels"  # name of the baseline in findings.json


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield one result that names the missing baselines, if there are any. None is yielded for published networks,
    whose baselines can no longer be measured; for studies that evaluate nothing on target sets; and for ladders, which
    check by themselves whether the baseline has begun to learn."""
    if evidence.published or not evidence.headline or is_ladder(evidence):
        return
    pixels = [PIXEL_BASELINE] if evidence.pixels is None and evidence.series else []
    begun = {s.last.model for s in evidence.series if s.untrained}  # an untrained network counts for all data sizes
    lacking = [m for m in dict.fromkeys(s.last.model for s in evidence.series) if m not in begun]
    if pixels or lacking:
        yield ValidityCheck(kind=MISSING_BASELINE, names=(*pixels, *lacking))


def _missing(c: ValidityCheck) -> str:
    shown = tuple("pixel baseline" if name == PIXEL_BASELINE else name for name in c.names)
    return f"Baselines not measured: {names(replace(c, names=shown))}."


CHECK = Check(
    order=8,
    find=find,
    words={
        MISSING_BASELINE: _missing,
    },
)
