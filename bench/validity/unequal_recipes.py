"""Finds axes (comparisons) of a study along which training differs in more than the quantity on the axis."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis.check import Check
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck
from bench.study import registry
from bench.train.effective import WORDS, TrainingOnAxis, differences

UNEQUAL_RECIPES = "unequal recipes"
"""Runs on one axis were not trained alike. `names`: the axis; `groups`: the values in actual use, by the field in which
the runs differ."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield a result for every axis along which training differs in more than the quantity on the axis and what the
    suite varies on purpose."""
    used = dict(zip(evidence.horizons["variant"], evidence.horizons["trained_as"], strict=True))
    known = evidence.suite in registry.names("suite")
    varies = registry.load("suite", evidence.suite).varies if known else {}
    axes = sorted({axis for series in evidence.series for axis in series.last.axes}) or ["compute"]
    for axis in axes if not evidence.published else ():
        compared = [
            TrainingOnAxis(model=s.last.model, data=s.last.data, recipe=used[s.variant]) for s in evidence.on_axis(axis)
        ]
        if apart := differences(compared, varies=varies.get(axis, ())):
            groups = tuple((WORDS[name], values) for name, values in apart.items())
            yield ValidityCheck(kind=UNEQUAL_RECIPES, names=(axis.replace("_", " "),), groups=groups)


CHECK = Check(
    order=10,
    find=find,
    words={
        UNEQUAL_RECIPES: "Runs that are compared on the {names} axis were not trained alike "
        "({groups}): part of a difference may be due to it.",
    },
)
