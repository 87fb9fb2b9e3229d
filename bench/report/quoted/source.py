"""A source of published numbers, as a report takes them."""

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
        read: the numbers as evidence, and the figures that they allow, besides those of questions, each with its own.
        beside: what of them is laid beside a study; None where nothing is comparable.
        page: a folder -> links to a page of all numbers, and its files; without one they stand in the report's tables.
        table: the numbers of one of its tables by name, for `bench.api.published`.
        check_recipe: a network of its tables -> its training as it is known, for `vit-bench check recipe:NAME`;
            UserError where something is wrong with it.
    """

    read: Callable[[], tuple[Evidence, dict[str, Evidence]]]
    beside: Callable[[Evidence], Evidence | None]
    page: Callable[[Path], tuple[dict[str, str], dict[Path, bytes]]] | None = None
    table: Callable[[str], pd.DataFrame] | None = None
    check_recipe: Callable[[str], str] | None = None
