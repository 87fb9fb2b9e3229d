"""What a rank that ran out of memory leaves for the next start of its cell: the micro-batch to go on with.

A file of the attempt's folder. Any rank may write it, for the first may be waiting where nothing reaches it; ranks that
run out together write the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.store import sealed

FILE = "memory.json"


def note(attempt: Path, micro_batch: int) -> None:
    """Leave word in an attempt's folder.

    Raises:
        UserError: it cannot be written.
    """
    sealed.write(attempt / FILE, {"micro_batch": micro_batch})


def noted(attempts: Iterable[Path]) -> int | None:
    """The smallest micro-batch that any attempt left; None without any. A damaged note is none: memory will tell."""
    found = []
    for attempt in attempts:
        try:
            found.append(int(sealed.read(attempt / FILE, before=frozenset())["micro_batch"]))
        except (OSError, ValueError, KeyError):
            continue
    return min(found, default=None)
