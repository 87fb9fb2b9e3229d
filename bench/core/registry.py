"""The plug-in registry: finds suites, data sets, tasks, figures, jobs and model families by file name.

A file whose name starts with "_" is a helper and is not listed. A module's public name is its file name with "_"
written as "-" (`fashion_mnist.py` -> "fashion-mnist"). Listing reads directory entries only and imports nothing.

A model family is one file with FAMILY, REVISION, names(), accepts(name) and build(name, ...); see CONTRIBUTING.md. A
model's name is looked up without torch; building it needs torch.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bench.core.errors import UserError, unknown
from bench.core.spec import RECIPE_REVISION, Cell, cell_id

if TYPE_CHECKING:
    from torch import nn

LONGEST = 100  # letters of a model's name
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
    """Public names of everything of one kind, sorted; cached per process."""
    package = importlib.import_module(FOLDERS[kind])
    found = (m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_") and not m.ispkg)
    return tuple(sorted({*(name.replace("_", "-") for name in found), *_rows(kind)}))


def _rows(kind: str) -> dict[str, Any]:
    """Plug-ins defined as rows of a table rather than files; each row has the attributes of such a file."""
    return getattr(importlib.import_module(FOLDERS[kind]), "ROWS", {})


@cache
def load(kind: str, name: str) -> Any:
    """The module (or table row) of one kind with this public name.

    Raises:
        UserError: no such file (suggests the nearest names), or one that is broken (says where).
    """
    if kind == "data set":
        name = name.partition(":")[0]  # what follows a colon is for the file itself: "folder:flowers"
    if name not in names(kind):
        raise unknown(kind, name, names(kind))
    if name in _rows(kind):
        return _rows(kind)[name]
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
    return UserError(f"The {kind} file {shown} is broken: {what}.", "Fix it or move it away: every command loads it.")


def families() -> tuple[ModuleType, ...]:
    """Every family's module, the subject (ViT) first."""
    from vit import family as vit_family

    others = [load("family", name) for name in names("family")]
    return (vit_family, *(module for module in others if hasattr(module, "FAMILY")))


def model_names() -> tuple[str, ...]:
    """Every registered model name. Grammars accept more (any patch size, width, …)."""
    return tuple(name for module in families() for name in module.names())


def family_of(name: str) -> ModuleType:
    """The module that builds `name`.

    Raises:
        UserError: no family accepts the name; suggests the nearest registered names.
    """
    for module in families() if len(name) <= LONGEST else ():
        if module.accepts(name):
            return module
    error = unknown("model", name, model_names())
    raise UserError(error.what, f"{error.fix} Naming rules: python -m bench.flops --list")


def build_model(name: str, *, image_size: int, channels: int, num_classes: int, **options: Any) -> nn.Module:
    """A freshly initialised model: `model(x_BCHW) -> logits_BK`, `model.features(x_BCHW) -> x_BD`.

    Raises:
        UserError: unknown name, or a size the model cannot take (an image that the patch does not divide).
    """
    module = family_of(name)
    try:
        inspect.signature(module.build).bind(
            name, image_size=image_size, channels=channels, num_classes=num_classes, **options
        )
    except TypeError as error:
        raise UserError(f"Model {name!r} cannot be built: {error}.", "Leave that option out.") from error
    try:
        return module.build(name, image_size=image_size, channels=channels, num_classes=num_classes, **options)
    except ValueError as error:
        raise UserError(f"Model {name!r} cannot be built at {image_size} px: {error}") from error


def transferred_model(
    model: nn.Module, name: str, *, image_size: int, channels: int, num_classes: int, **options: Any
) -> nn.Module:
    """A copy of a trained model for another image size and other classes: its body, and a classifier of zeros.

    Raises:
        UserError: a size the model cannot take, or a family whose weights depend on the size.
    """
    from vit.resize import carry_over

    if getattr(model, "pre_logits", None) is not None:
        options["head"] = "linear"  # the hidden layer in the head goes with the old classes
    fresh = build_model(name, image_size=image_size, channels=channels, num_classes=num_classes, **options)
    try:
        return carry_over(model, fresh)
    except ValueError as error:
        raise UserError(f"Model {name!r} cannot be fine-tuned at {image_size} px: {error}.") from error


def revisions_of(cell: Cell) -> dict[str, int]:
    """The integer revisions that are part of a cell's identity: model family, recipe, data sets, tasks."""
    revisions = {"recipe": RECIPE_REVISION, "model": family_of(cell.model).REVISION}
    revisions[f"data:{cell.data}"] = load("data set", cell.data).REVISION
    for task in cell.tasks:
        revisions[f"task:{task.task}"] = load("task", task.task).REVISION
        revisions[f"data:{task.data}"] = load("data set", task.data).REVISION
    return revisions


def directory_name(cell: Cell) -> str:
    """Folder of a cell under `cells/`: readable name and hash."""
    return f"{cell.readable_name}-{cell_id(cell, revisions_of(cell))}"
