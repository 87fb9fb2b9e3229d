"""Finds learning rates that were chosen on the same test images on which scores are reported."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis import lr_sweep
from bench.analysis.check import Check
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck
from bench.study.names import DataName

CHOSEN_ON_TEST = "chosen on test images"
"""`names`: data sets on whose test images learning rates were chosen, and scores are reported."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield one result that names the data sets whose test images served both to choose learning rates in a sweep and
    to report scores; none if there are no such sets."""
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
