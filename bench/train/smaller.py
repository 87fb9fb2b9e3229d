"""What a rank that ran out of memory leaves for the next start of its cell: the micro-batch to go on with.

A file of the attempt's folder. Any rank may write it, for the first may be waiting where nothing reaches it; ranks that
run out together write the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.core import files

FILE = "memory.json"


def note(attempt: Path, micro_batch: int) -> None:
    """Leave word in an attempt's folder.

    Raises:
        UserError: it cannot be written.
    """
    files.write_sealed(attempt / FILE, {"micro_batch": micro_batch})


def noted(attempts: Iterable[Path]) -> int | None:
    """The smallest micro-batch that any attempt left; None without any. A damaged note is none: memory will tell."""
    found = []
    for attempt in attempts:
        try:
            found.append(int(files.read_sealed(attempt / FILE)["micro_batch"]))
        except (OSError, ValueError, KeyError):
            continue
    return min(found, default=None)
