"""Many files looked at by as many processes as there are cores: most of the time goes into parsing and digests."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

MANY_CHUNKS = 8
MOST = 8  # processes: more would wait for the disk
Given = TypeVar("Given")
Made = TypeVar("Made")


def in_chunks(work: Callable[[Sequence[Given]], Made], items: Sequence[Given], *, size: int) -> Iterator[Made]:
    """`work` on `size` items at a time, in order; what it raises, this raises.

    Few chunks are worked on here. Processes are forked, which is only safe while no library has started threads (torch
    does), and costs no imports.
    """
    chunks = [items[start : start + size] for start in range(0, len(items) or 1, size)]
    if len(chunks) < MANY_CHUNKS or not hasattr(os, "fork") or "torch" in sys.modules:
        yield from map(work, chunks)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    with ProcessPoolExecutor(min(cores, MOST), mp_context=multiprocessing.get_context("fork")) as pool:
        yield from pool.map(work, chunks)
