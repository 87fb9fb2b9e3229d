"""The harness: plans, trains, evaluates and reports scaling studies of image classifiers.

`import bench.api` has the verbs as functions.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from bench.commands import _old_names

__version__ = "0.3.0"
SCHEMA_VERSION = 2
"""Version of every JSON file the store writes. A store with a newer one is refused, never guessed at."""


def stopped_at_start(number: int, frame: FrameType | None) -> None:
    """Ctrl-C while a command is imported, which takes seconds: nothing is there yet that could explain it."""
    os.write(2, b"stopped before it was done.\n")
    os._exit(128 + number)


if sys.argv[:1] == ["-m"] or os.path.basename(sys.argv[0] if sys.argv else "") == "vit-bench":  # no program of others
    signal.signal(signal.SIGINT, stopped_at_start)  # until `bench.core.errors.command` takes over
sys.meta_path.append(_old_names.OldNames)
