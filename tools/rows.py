"""Tables that tools measure or simulate, and that are committed as CSV files."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.core import files

Row = Mapping[str, Any]


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write rows of the same columns; nothing is left of a table where that fails half-way."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    files.write_bytes(path, text.getvalue().encode())


def simulate(
    argv: Sequence[str] | None,
    about: str | None,
    made: Callable[[int], Sequence[Row]],
    *,
    of: str,
    usual: int,
    to: Path,
) -> Sequence[Row]:
    """Simulate as often as the option that `of` names says, and write the rows, to --out or else to `to`.

    Returns:
        The rows.
    """
    p = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    p.add_argument(f"--{of}", type=int, default=usual, help=f"simulated for each row (default: {usual})")
    p.add_argument("--out", type=Path, default=to)
    arguments = p.parse_args(argv)
    rows = made(getattr(arguments, of))
    write(arguments.out, rows)
    return rows
