"""Decides which scores count if cells of one variant (what is trained, whatever the seed) were evaluated in different
ways: with different revisions of a task or of its data, with different options, or on different test images under one
name.

Such scores are neither repeats nor alternatives. For each task and data set, one record decides which way of evaluating
counts: one of a cell in the current grid if possible, then one with newer revisions of the task and its data, then the
more recent one. Scores made in another way, and second scores of one seed, are superseded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from bench.analysis.study_data import Records
from bench.core.by_key import by_key
from bench.core.files import canonical
from bench.core.measure import Measure
from bench.study.cell import to_json
from bench.study.record import Record

Pair = tuple[str, str]
"""The task and the data set of scores."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Current:
    """The scores that count, and those that are superseded.

    Attributes:
        scores: table of the scores that count.
        set_aside: directory of a record -> (task, data) of its superseded scores.
        empty: directories of the records whose scores are all superseded.
    """

    scores: pd.DataFrame
    set_aside: Mapping[str, tuple[Pair, ...]]
    empty: frozenset[str]


def current(records: Records, horizons: pd.DataFrame, scores: pd.DataFrame) -> Current:
    """Separate the scores that count from those that another cell of the same variant supersedes.

    Args:
        horizons, scores: tables of the records, from `bench.analysis.study_data`.
    """
    tests = _test_sets(scores)
    groups = _evaluated_differently(records.records, horizons, tests)
    names = {record.directory for group in groups for record in group}
    mine = scores[scores["directory"].isin(names)]
    rows: dict[str, dict[Pair, list[tuple[int, pd.Index]]]] = {}
    for (name, task, data, seen), rivals in mine.groupby(["directory", "task", "data", "images_seen"], observed=True):
        rows.setdefault(name, {}).setdefault((task, data), []).append((seen, rivals.index))
    kept, superseded = set[str](), dict[str, dict[Pair, None]]()
    dropped: list[int] = []
    for group in groups:
        for pair in dict.fromkeys(pair for record in group for pair in rows.get(record.directory, ())):
            way: str | None = None
            test_set: str | None = None
            scored: set[tuple[int, int]] = set()
            mine_of = [record for record in group if pair in rows.get(record.directory, ())]
            for record in sorted(mine_of, key=lambda r: _rank(r, pair, records), reverse=True):
                name = record.directory
                way = way or _way(record, pair)
                counts = way == _way(record, pair)
                if counts and (images := tests.get((name, pair))) is not None:  # not in older records
                    test_set = test_set or images
                    counts = test_set == images
                for seen, places in rows[name][pair]:
                    if counts and (record.cell.seed, seen) not in scored:
                        scored.add((record.cell.seed, seen))
                        kept.add(name)
                    else:
                        dropped.extend(places)
                        superseded.setdefault(name, {})[pair] = None
    return Current(
        scores=scores.drop(index=dropped) if dropped else scores,  # avoids a copy: hundreds of MB for a large study
        empty=frozenset(rows.keys() - kept),
        set_aside={name: tuple(pairs) for name, pairs in sorted(superseded.items())},
    )


def _evaluated_differently(
    records: Iterable[Record], horizons: pd.DataFrame, tests: Mapping[tuple[str, Pair], str]
) -> list[list[Record]]:
    """Return the groups of complete records of one variant in which a seed occurs twice, or not all were evaluated
    alike.

    Args:
        horizons: table of the records.
        tests: (directory, (task, data)) -> content hash of the test images.
    """
    variant_of = dict(zip(horizons["directory"], horizons["variant"], strict=True))
    test_sets = by_key((name, (pair, digest)) for (name, pair), digest in tests.items())
    groups = by_key(  # cells that only evaluate the untrained network form groups of their own
        ((variant_of[record.directory], record.cell.horizons == (0,)), record)
        for record in records
        if record.status == "complete" and record.directory in variant_of
    )

    def alike(group: list[Record]) -> bool:
        seeds = {record.cell.seed for record in group}
        ways = {(repr(r.cell.tasks), canonical(dict(r.revisions))) for r in group}
        images = {frozenset(test_sets.get(r.directory, ())) for r in group}
        return len(seeds) == len(group) and len(ways) == len(images) == 1

    return [group for group in groups.values() if not alike(group)]


def _test_sets(scores: pd.DataFrame) -> dict[tuple[str, Pair], str]:
    """Return (directory, (task, data)) -> content hash of the test images, for the records that hold which test images
    were right."""
    known = scores.loc[scores["correct"].notna(), ["directory", "task", "data", "correct"]]
    return {(name, (task, data)): correct.content_hash for name, task, data, correct in known.itertuples(index=False)}


def _way(record: Record, pair: Pair) -> str:
    """Return a key of how a record was evaluated on a (task, data): the task's options, and the revisions of both.
    Scores with equal keys, on the same test images, were made in the same way."""
    task, data = Measure.of_score(*pair).task, pair[1]
    specs = [spec for spec in record.cell.tasks if spec.task == task]
    options = [spec.options for spec in specs if spec.data == data] or [spec.options for spec in specs]
    return canonical([to_json(options), record.revisions.get(f"task:{task}"), record.revisions.get(f"data:{data}")])


def _rank(record: Record, pair: Pair, records: Records) -> tuple[bool, tuple[int, int], str, int, str]:
    """Return a sort key of a record for a (task, data); the record with the largest key decides which scores count. The
    revisions of this task and data set are compared before those of everything else, because records with more tasks
    have more revisions."""
    planned = records.wanted is not None and record.directory in records.wanted.names
    task, data = (record.revisions.get(name, 0) for name in (f"task:{Measure.of_score(*pair).task}", f"data:{pair[1]}"))
    newest = max(record.revisions.values(), default=0)
    return planned, (task, data), record.environment.time_end or "", newest, record.directory
