"""Read the table of names and counted costs of all of timm's models. Neither timm nor torch is needed for this."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parent.with_name("timm_models.csv")


@cache
def table() -> dict[str, dict[str, str]]:
    """Return the table: model name -> row (column -> text)."""
    with open(TABLE, encoding="utf-8", newline="") as file:
        return {row["model"]: row for row in csv.DictReader(line for line in file if not line.startswith("#"))}


def heading() -> str:
    """Return the first line of the table, which says with which versions its numbers were counted."""
    with open(TABLE, encoding="utf-8") as file:
        return file.readline().removeprefix("#").strip()
