"""Synthetic records as evidence."""

from __future__ import annotations

from typing import Any

from bench.analysis import evidence as evidence_module
from bench.analysis import lr_sweep
from bench.analysis.evidence import Evidence
from bench.analysis.study_data import Records
from bench.core.record import Record
from tests.analysis._records import FAR, HEADLINE, World

KINDS = {"fashion-mnist": "photographs", "mnist": "photographs", "digits": "photographs"}


def read(records: list[Record]) -> Evidence:
    """Evidence from records in memory."""
    ordered = tuple(sorted(records, key=lambda record: record.directory))
    whole = evidence_module.build(
        Records(suite="scaling", records=ordered), headline=HEADLINE, far=FAR, question="How do they scale?",
        data_kinds=KINDS,
    )  # fmt: skip
    return lr_sweep.without_rejected(whole)


def study(*, seed: int = 1, extra: tuple[str, ...] = (), **changes: Any) -> Evidence:
    """Evidence from a world with `changes` to its fields. `extra` "diverged" adds a cell that diverged."""
    world = World(seed=seed)
    for name, value in changes.items():
        setattr(world, name, value)
    return read(world.records() + ([world.diverged()] if "diverged" in extra else []))
