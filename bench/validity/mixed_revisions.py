"""Finds scores that were made by different revisions (versions that give other results) of a task, a data set, the
training or a model."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis.check import Check, grouped
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck

MIXED_REVISIONS = "mixed revisions"
"""`groups`: revisions, by the name of what they are of ("task fewshot", "data mnist", "model ViT-S/16")."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield one result that lists the tasks, data sets, trainings and models whose records have several revisions,
    superseded scores aside; none if there are none."""
    measured = (record.directory for record in evidence.records.records if record.cell.job != "train")
    standing = {*evidence.horizons["directory"], *measured}
    used: dict[str, set[int]] = {}
    for record in evidence.records.records:
        gone = {
            name
            for task, data in evidence.set_aside.get(record.directory, ())
            for name in (f"task:{task.split('@')[0]}", f"data:{data}")
        }
        for name, revision in record.revisions.items() if record.directory in standing else ():
            if name not in gone:
                about = f"model:{record.cell.model}" if name == "model" else name
                used.setdefault(about.replace(":", " ", 1), set()).add(revision)
    mixed = {name: map(str, numbers) for name, numbers in sorted(used.items()) if len(numbers) > 1}
    if mixed:
        yield ValidityCheck(kind=MIXED_REVISIONS, groups=grouped(mixed))


CHECK = Check(
    order=22,
    find=find,
    words={
        MIXED_REVISIONS: "Records mix revisions ({groups}): rerun the study for comparable scores.",
    },
)
