"""Read the table baselines/timm_models.csv, which has the name and the counted costs of each of timm's models. Neither
timm nor torch is needed for this."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parent.with_name("timm_models.csv")


@cache
def table() -> dict[str, dict[str, str]]:
    """Return the table of timm's models: model name without tag -> (column -> text)."""
    with open(TABLE, encoding="utf-8", newline="") as file:
        return {row["model"]: row for row in csv.DictReader(line for line in file if not line.startswith("#"))}


def heading() -> str:
    """Return the heading of the table of timm's models, which says with which versions its numbers were counted."""
    with open(TABLE, encoding="utf-8") as file:
        return file.readline().removeprefix("#").strip()
