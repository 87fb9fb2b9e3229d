"""The class of a source of published numbers that a report can quote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.analysis.evidence import Evidence

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class QuotedSource:
    """Numbers that others published: a suite of which nothing is run. A file in this folder exports one as `QUOTED`.

    Attributes:
        read: returns the numbers as evidence, and name of a figure -> evidence for the figures that they allow besides
            those of questions.
        beside: a study -> the evidence that is drawn beside it; None where nothing is comparable.
        page: a folder -> links to a page of all numbers, and its files; without one, numbers are in the report's
            tables.
        table: name of one of its tables -> its numbers, for `bench.api.published`.
        check_recipe: a network of its tables -> what is known of its training, in words, for `vit-bench check
            recipe:NAME`; raises UserError where something is wrong with it.
    """

    read: Callable[[], tuple[Evidence, dict[str, Evidence]]]
    beside: Callable[[Evidence], Evidence | None]
    page: Callable[[Path], tuple[dict[str, str], dict[Path, bytes]]] | None = None
    table: Callable[[str], pd.DataFrame] | None = None
    check_recipe: Callable[[str], str] | None = None
