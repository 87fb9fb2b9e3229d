"""Counts the networks of the paper's own studies, for plans without torch (`bench.plan.counted`).

python -m tools.counted     write bench/plan/counted.csv, a minute
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.plan import calibrate, counted
from bench.plan.estimate import Rates
from bench.plan.expand import expand
from bench.plan.sizes import DataSizes
from bench.study import suite
from bench.study.cell import Cell
from bench.study.options import What
from bench.study.overrides import Overrides
from tools.paper_table import ROWS, WHOLE
from tools.rows import write

SCALE = "paper"


def networks() -> Iterator[tuple[Cell, int]]:
    """A cell of each network that a suite trains at the paper's scale, and its classes."""
    seen, sizes = set(), DataSizes(published=True)
    for name in sorted({row.suite for row in (*ROWS, WHOLE)} - {""}):
        for cell in expand(suite.load(name), What(scale=SCALE), Overrides(), sizes).cells:
            if cell.job != "train" or (known := counted.identity(cell, sizes[cell.data].classes)) in seen:
                continue
            seen.add(known)
            yield cell, sizes[cell.data].classes


def main() -> int:
    rows = []
    for cell, classes in networks():
        rates = calibrate.answer(cell, classes, device="cpu", threads=1, measure=False)["rates"]
        rows.append(counted.row_of(cell, classes, Rates(**rates)))
    write(counted.TABLE, sorted(rows, key=lambda row: [str(row[name]) for name in counted.IDENTITY]))
    print(f"{counted.TABLE.name}: {len(rows)} networks")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
