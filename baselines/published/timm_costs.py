"""Names and costs of all of timm's models, as counted: a table that is read without timm and without torch."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parent.with_name("timm_models.csv")


@cache
def table() -> dict[str, dict[str, str]]:
    """Rows of the table, by name."""
    with open(TABLE, encoding="utf-8", newline="") as file:
        return {row["model"]: row for row in csv.DictReader(line for line in file if not line.startswith("#"))}


def heading() -> str:
    """The first line of the table: of what versions its numbers are."""
    with open(TABLE, encoding="utf-8") as file:
        return file.readline().removeprefix("#").strip()
