"""The harness: plans, trains, evaluates and reports scaling studies of image classifiers.

`import bench.api` has the verbs as functions.
"""

from __future__ import annotations

__version__ = "0.2.0"
SCHEMA_VERSION = 2
"""Version of every JSON file the store writes. A store with a newer one is refused, never guessed at."""
