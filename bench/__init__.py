"""The harness: plans, trains, evaluates and reports scaling studies of image classifiers.

`bench.api` has the verbs as functions; it is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench import api as api

__version__ = "0.1.0"
SCHEMA_VERSION = 2
"""Version of every JSON file the store writes. A store with a newer one is refused, never guessed at."""


def __getattr__(name: str) -> Any:
    if name == "api":
        return importlib.import_module("bench.api")
    raise AttributeError(f"module 'bench' has no attribute {name!r}")
