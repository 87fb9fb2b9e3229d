"""--only: the part of the study that this run is of."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import replace

from bench.core.errors import UserError
from bench.core.spec import Cell
from bench.plan.study_cells import Pass, StudyCells, StudyRequest


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """The study with the cells that match --only chosen; without it, all.

    Raises:
        UserError: none matches.
    """
    return replace(study, chosen=matching(study.cells, request.only))


def matching(cells: Sequence[Cell], patterns: Sequence[str]) -> tuple[Cell, ...]:
    """The cells with a name that one of the patterns matches, wholly or in part; all without a pattern."""
    wanted = [form for pattern in patterns for form in (pattern.lower(), f"*{pattern.lower()}*")]
    chosen = tuple(c for c in cells if not wanted or any(fnmatch.fnmatch(c.readable_name, form) for form in wanted))
    if wanted and not chosen:
        some = ", ".join(sorted({c.readable_name for c in cells})[:8])
        raise UserError(f"No run matches --only {' '.join(patterns)}.", f"Names are like: {some}.")
    return chosen


PASS = Pass(apply=apply, after=("rehearsal",))
