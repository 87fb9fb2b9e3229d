"""Finds suites, data sets, tasks, figures and model families by file name. There is no list to keep up to date.

A file whose name starts with "_" is a helper and is not listed. A module's public name is its file name with "_"
written as "-" (`fashion_mnist.py` -> "fashion-mnist"). Listing reads directory entries only and imports nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType

from bench.core.errors import UserError, unknown

FOLDERS = {
    "suite": "bench.suites",
    "data set": "bench.data.sets",
    "task": "bench.tasks",
    "figure": "bench.report.figures",
    "job": "bench.execute.jobs",
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
        UserError: no such file (suggests the nearest names), or one that is broken (says where).
    """
    if kind == "data set":
        name = name.partition(":")[0]  # what follows a colon is for the file itself: "folder:flowers"
    if name not in names(kind):
        raise unknown(kind, name, names(kind))
    module = f"{FOLDERS[kind]}.{name.replace('-', '_')}"
    try:
        return importlib.import_module(module)
    except (UserError, ImportError):  # a package that is missing says so itself
        raise
    except Exception as error:
        raise _broken(kind, module, error) from error


def _broken(kind: str, module: str, error: Exception) -> UserError:
    """The error for a file that cannot be imported: the line of it that fails."""
    package, _, name = module.rpartition(".")
    path = str(Path(importlib.import_module(package).__path__[0]) / f"{name}.py")
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == path else lines[-1] if lines else None
    shown = f"{package.replace('.', '/')}/{name}.py" + (f", line {line}" if line else "")
    what = error.msg if isinstance(error, SyntaxError) else f"{type(error).__name__}: {error}"
    return UserError(f"The {kind} file {shown} is broken: {what}.", "Mend it, or move it away; every verb looks at it.")
