"""Finds suites, data sets, tasks, figures and model families by file name. There is no list to keep up to date.

A file whose name starts with "_" is a helper and is not listed. A module's public name is its file name with "_"
written as "-" (`fashion_mnist.py` -> "fashion-mnist"). Listing reads directory entries only and imports nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from bench.errors import unknown

FOLDERS = {
    "suite": "bench.suites",
    "data set": "bench.data.sets",
    "task": "bench.tasks",
    "figure": "bench.plots",
    "job": "bench.jobs",
    "family": "baselines",
}


@cache
def names(kind: str) -> tuple[str, ...]:
    """Public names of everything of one kind, sorted; listed once per process, a plan asks thousands of times."""
    package = importlib.import_module(FOLDERS[kind])
    found = (m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_") and not m.ispkg)
    return tuple(sorted(name.replace("_", "-") for name in found))


@cache
def load(kind: str, name: str) -> ModuleType:
    """Import the module of one kind by its public name.

    Raises:
        UserError: no such file; suggests the nearest names.
    """
    name = name.partition(":")[0]  # what follows a colon is for the file itself: "folder:flowers"
    if name not in names(kind):
        raise unknown(kind, name, names(kind))
    return importlib.import_module(f"{FOLDERS[kind]}.{name.replace('-', '_')}")
