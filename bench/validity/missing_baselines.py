"""Baselines without which training and probe are not told apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench.analysis.check import Check, names
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck
from bench.analysis.ladders import is_ladder

MISSING_BASELINE = "missing baseline"
"""Names: "raw pixels" and models whose untrained network was not measured: training and probe are not separated."""

PIXEL_BASELINE = "raw pixels"  # as findings.json calls it


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """None of published networks, whose baselines nobody can measure now, of studies that judge nothing, or of ladders,
    which say themselves where a baseline has not begun to learn."""
    if evidence.published or not evidence.headline or is_ladder(evidence):
        return
    pixels = [PIXEL_BASELINE] if evidence.pixels is None and evidence.series else []
    begun = {s.last.model for s in evidence.series if s.untrained}  # one untrained network for its runs on every size
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
