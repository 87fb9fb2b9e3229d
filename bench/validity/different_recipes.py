"""Finds fields of the training recipe that differ within or between families."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis.check import Check, grouped
from bench.analysis.evidence import Evidence
from bench.analysis.findings import Level, ValidityCheck
from bench.analysis.study_data import PIXELS
from bench.study.cell import to_json

RECIPES_BETWEEN = "recipes between families"
"""The families were trained with different values of a field, so part of a difference between them may be due to the
recipe. `names`: the field; `groups`: its values by family."""
RECIPES_WITHIN = "recipes within families"
"""A field has several values, the same ones in every family. `names`: the field; `groups`: the values."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield a result for every field of the recipe that has several values among the runs that are compared."""
    by_family: dict[str, dict[str, set[str]]] = {}
    standing = set(evidence.horizons["directory"])  # without runs at learning rates that a sweep rejected
    for record in evidence.records.records:
        if record.model.family != PIXELS and record.status == "complete" and record.directory in standing:
            for name, value in to_json(record.cell.recipe).items():
                by_family.setdefault(name, {}).setdefault(record.model.family, set()).add(str(value))
    for name, used in sorted(by_family.items()):
        every = set().union(*used.values())
        if len(every) > 1 and all(values == every for values in used.values()):
            yield ValidityCheck(kind=RECIPES_WITHIN, level=Level.NOTE, names=(name,), groups=grouped({"": every}))
        elif len(every) > 1:
            yield ValidityCheck(kind=RECIPES_BETWEEN, level=Level.NOTE, names=(name,), groups=grouped(used))


CHECK = Check(
    order=9,
    find=find,
    words={
        RECIPES_BETWEEN: "Families differ in {field} ({groups}): part of a difference may be due to the recipe.",
        RECIPES_WITHIN: "Every family was trained with {field} {groups}.",
    },
)
