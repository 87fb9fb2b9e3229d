"""Learning rates that were chosen on the images that scores are reported on."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis import lr_sweep
from bench.analysis.check import Check
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck
from bench.study.names import DataName

CHOSEN_ON_TEST = "chosen on test images"
"""Names: sets on which rates were chosen and scores are reported."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """The sets on which a sweep chose without held-out images, and on which scores are reported."""
    chosen = {_base(s.data) for s in lr_sweep.sweeps(evidence) if not s.held_out}
    judged = evidence.scores.loc[evidence.scores["task"] != "upstream", "data"].unique()
    if both := sorted(chosen & {_base(str(name)) for name in judged}):
        yield ValidityCheck(kind=CHOSEN_ON_TEST, names=tuple(both))


def _base(name: str) -> str:
    return DataName.parse(name).base.split("@")[0]


CHECK = Check(
    order=14,
    find=find,
    words={
        CHOSEN_ON_TEST: "Learning rates were chosen on test images of {names}; scores reported on the "
        "same images are optimistic.",
    },
)
