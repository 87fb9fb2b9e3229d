"""Which scores stand where cells of one variant were read in different ways: after a revision of a task or of its data,
with other options, on other test images under one name.

Such scores are neither repeats nor alternatives. The cell that the grid asked for last names decides; beyond it, newer
revisions, then the more recent record. What was scored otherwise, or a second time, is set aside and named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bench.analysis.study_data import Records
from bench.core.record import Record
from bench.core.spec import canonical, to_json

Pair = tuple[str, str]
"""(task, data) of scores."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Current:
    """Attributes:
    scores: those that stand.
    set_aside: per record, by its directory, the (task, data) of scores that do not.
    empty: directories of records none of whose scores stand.
    """

    scores: pd.DataFrame
    set_aside: Mapping[str, tuple[Pair, ...]]
    empty: frozenset[str]


def current(records: Records, horizons: pd.DataFrame, scores: pd.DataFrame) -> Current:
    """Leave out scores that another cell of the same variant supersedes."""
    tests = _test_sets(scores)
    doubtful = {r.directory: r for group in _doubtful(records.records, horizons, tests) for r in group}
    rows = np.flatnonzero(scores["directory"].isin(doubtful).to_numpy())
    if not len(rows):
        return Current(scores=scores, set_aside={}, empty=frozenset())
    places = scores.iloc[rows].groupby(["directory", "task", "data", "images_seen"], observed=True, sort=True).indices
    by_record: dict[str, list[tuple[Pair, int]]] = {}
    for directory, task, data, seen in places:
        by_record.setdefault(directory, []).append(((task, data), seen))
    stands = np.ones(len(scores), dtype=bool)
    set_aside: dict[str, dict[Pair, None]] = {}
    empty = set(by_record)
    for group in _doubtful(records.records, horizons, tests):
        way: dict[Pair, str] = {}
        test_set: dict[Pair, str] = {}
        given: set[tuple[Any, ...]] = set()
        for record in sorted(group, key=lambda r: _rank(r, records), reverse=True):
            name, seed = record.directory, record.cell.seed
            for pair, seen in by_record.get(name, ()):
                mine, images = _way(record, pair), tests.get((name, pair))
                alike = way.setdefault(pair, mine) == mine
                if images is not None and alike:  # an older record does not say
                    alike = test_set.setdefault(pair, images) == images
                if alike and (seed, pair, seen) not in given:
                    given.add((seed, pair, seen))
                    empty.discard(name)
                else:
                    stands[rows[places[name, *pair, seen]]] = False
                    set_aside.setdefault(name, {})[pair] = None
    return Current(scores=scores[stands], empty=frozenset(empty),
                   set_aside={name: tuple(pairs) for name, pairs in sorted(set_aside.items())})  # fmt: skip


def _doubtful(
    records: Iterable[Record], horizons: pd.DataFrame, tests: Mapping[tuple[str, Pair], str]
) -> list[list[Record]]:
    """Complete records of a variant that repeat a seed, or were not all read alike."""
    variant_of = dict(zip(horizons["directory"], horizons["variant"], strict=True))
    test_sets: dict[str, list[tuple[Pair, str]]] = {}
    for (name, pair), digest in tests.items():
        test_sets.setdefault(name, []).append((pair, digest))
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.status == "complete" and record.directory in variant_of:
            groups.setdefault(variant_of[record.directory], []).append(record)

    def alike(group: Sequence[Record]) -> bool:
        if len({r.cell.seed for r in group}) < len(group):
            return False
        ways = {(r.cell.tasks, repr(r.revisions)) for r in group}
        return len(ways) == 1 and len({repr(sorted(test_sets.get(r.directory, ()))) for r in group}) == 1

    return [group for group in groups.values() if len(group) > 1 and not alike(group)]


def _test_sets(scores: pd.DataFrame) -> dict[tuple[str, Pair], str]:
    """Content hash of the test images behind a record's scores, where it says which of them were right."""
    told = scores.loc[scores["correct"].notna(), ["directory", "task", "data", "correct"]]
    columns = (told[name] for name in told)
    return {(name, (task, data)): found.content_hash for name, task, data, found in zip(*columns, strict=True)}


def _way(record: Record, pair: Pair) -> str:
    """What must be equal, beside the test images, for two scores of a task on a set to be of one kind."""
    task, data = pair[0].split("@")[0], pair[1]
    specs = [spec for spec in record.cell.tasks if spec.task == task]
    options = [spec.options for spec in specs if spec.data == data] or [spec.options for spec in specs]
    return canonical([to_json(options), record.revisions.get(f"task:{task}"), record.revisions.get(f"data:{data}")])


def _rank(record: Record, records: Records) -> tuple[Any, ...]:
    planned = records.wanted is not None and record.directory in records.wanted.names
    newest = sum(record.revisions.values())
    return planned, newest, record.environment.time_end or "", record.directory
