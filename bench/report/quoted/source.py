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
    """Numbers that others published, which can be reported like a suite, although nothing is run. A file in this folder
    exports one as `QUOTED`.

    Attributes:
        read: returns (the numbers as evidence; name of a figure -> evidence to draw it from, for figures besides those
            of the questions).
        beside: takes a study's evidence, and returns the published evidence to draw beside it; None where nothing is
            comparable.
        page: takes the report's folder, and returns (text -> link to a page of all numbers; path -> content of that
            page's files). None: there is no such page, and the report's tables hold the numbers.
        table: takes the name of one of the source's tables, and returns its numbers, for `bench.api.published`; None:
            not offered.
        check_recipe: takes the name of a network, and returns in words what is known of its training, for `vit-bench
            check recipe:NAME`; raises UserError where something is wrong with it. None: not offered.
    """

    read: Callable[[], tuple[Evidence, dict[str, Evidence]]]
    beside: Callable[[Evidence], Evidence | None]
    page: Callable[[Path], tuple[dict[str, str], dict[Path, bytes]]] | None = None
    table: Callable[[str], pd.DataFrame] | None = None
    check_recipe: Callable[[str], str] | None = None
