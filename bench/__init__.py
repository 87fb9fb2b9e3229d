"""The harness: plans, trains, evaluates and reports scaling studies of image classifiers.

`bench.api` offers the commands as functions.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from bench.commands import _old_names

__version__ = "0.3.0"
SCHEMA_VERSION = 2
"""Version of the format of every JSON file that the store writes. Files of a newer version are refused, never guessed
at."""


def stopped_at_start(number: int, frame: FrameType | None) -> None:
    """Print one line and exit with code 128 + `number`: the handler of Ctrl-C while a command is still being imported.
    That takes seconds, and the code that usually handles interruptions is not loaded yet."""
    os.write(2, b"stopped before it was done.\n")
    os._exit(128 + number)


if sys.argv[:1] == ["-m"] or os.path.basename(sys.argv[0] if sys.argv else "") == "vit-bench":  # not in other programs
    signal.signal(signal.SIGINT, stopped_at_start)  # until `bench.core.errors.command` takes over
sys.meta_path.append(_old_names.OldNames)
