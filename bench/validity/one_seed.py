"""Finds models that were trained with one seed only, so that the noise of their scores is unknown."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis.check import Check, names
from bench.analysis.comparisons import unreplicated_noise
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck

ONE_SEED = "one seed"
"""`names`: models trained once, whose intervals use the variance of repeated models or exclude training noise; () if
all models were trained once. Then no interval includes training noise, and differences below `low` (at 95 % accuracy)
or `high` (at 50 %) count as none. (A ± in published numbers is over repeated fine-tuning, not pre-training.)"""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    trained = [p for p in evidence.points.values() if p.trained]
    single = sorted({p.series for p in trained if len(p.seeds) == 1})
    if trained and all(len(p.seeds) < 2 for p in trained):
        yield ValidityCheck(kind=ONE_SEED, low=unreplicated_noise(0.95), high=unreplicated_noise(0.5))
    elif single:
        yield ValidityCheck(kind=ONE_SEED, names=tuple(single))


def _one_seed(c: ValidityCheck) -> str:
    if c.names:
        return f"Trained once: {names(c)}. Their intervals use the variance of repeated models, or exclude it."
    middle, high = (100 * (share or 0.0) for share in (c.high, c.low))
    return (
        f"Every model was trained once: intervals exclude training noise. Differences below {middle:.1f} points at "
        f"50 % accuracy ({high:.1f} at 95 %) are not interpreted. More seeds: --seeds 3."
    )


CHECK = Check(
    order=2,
    find=find,
    quoted="Every row is one training run; a ± that is printed is over repeated fine-tuning, not pre-training.",
    words={
        ONE_SEED: _one_seed,
    },
)
