"""The plug-in registry, which finds the plug-ins of each kind (a key of `bench.study.kinds.KINDS`) by file name.

Listing plug-ins reads directory entries only and imports nothing; a file is imported when it is asked for by name.

A model's name is looked up without torch; building the model needs torch. Options may follow any model's name, as in
"ViT-pico/7:position=none:depth=6": arguments of the family's `build`, or fields of its `vit.config.ViTConfig`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bench.core.errors import PROJECT, UserError, unknown
from bench.core.user_code import prints_aside
from bench.study.cell import PARTS, RECIPE_REVISION, REHEARSAL_REVISION, Cell, cell_id
from bench.study.kinds import KINDS, SUBFOLDERS
from bench.study.names import DataName, ModelName
from vit.model_family import PRETRAINED, Classifier, ModelFamily, Weights

if TYPE_CHECKING:
    from torch import nn

LONGEST, LONGEST_PATH = 100, 1000  # most characters of a model's name, and of a name that may hold a path
ADAPTERS = ("file", "hf", "timm", "torchvision")  # families of networks from outside; model names begin with these
PLUGINS, ENTRY_POINTS = "VIT_BENCH_PLUGINS", "vit_bench"


def add_plugins(folder: str) -> str:
    """Add a folder to the folders that are searched for plug-ins, in this process and in processes that it starts.
    Return `folder`.

    Raises:
        UserError: `folder` is not a folder, or has none of the subfolders that hold plug-ins (`SUBFOLDERS`).
    """
    path = Path(folder).absolute()
    if not any((path / name).is_dir() for name in SUBFOLDERS.values()):
        what = "has none of the folders" if path.is_dir() else "is not a folder with"
        raise UserError(f"--plugins {folder} {what} {', '.join(SUBFOLDERS.values())}.", "See CONTRIBUTING.md.")
    there = os.environ.get(PLUGINS, "").split(os.pathsep)
    os.environ[PLUGINS] = os.pathsep.join(dict.fromkeys(filter(None, [*there, str(path)])))
    forget()
    return folder


def forget() -> None:
    """Clear the caches of this module, so that newly added plug-ins are found."""
    for cached in (names, load, _accepting, _plugin_folders):
        cached.cache_clear()


@cache
def _plugin_folders() -> tuple[Path, ...]:
    """Return the folders outside the project that are searched for plug-ins: those in the environment variable
    `PLUGINS`, then those of entry points. This imports nothing.

    Raises:
        UserError: an entry point does not name a package.
    """
    named = [Path(text) for text in os.environ.get(PLUGINS, "").split(os.pathsep) if text]
    for point in sorted(_entry_points(), key=lambda point: point.name):
        first, *parts = point.module.split(".")
        found = importlib.util.find_spec(first)  # not PathFinder: editable installations have import hooks of their own
        where: Any = found.submodule_search_locations if found else []
        for count in range(1, len(parts) + 1):
            found = PathFinder.find_spec(".".join((first, *parts[:count])), where)
            where = found.submodule_search_locations if found else []
        if not where:
            what = f"The entry point {point.name!r} of {point.dist.name if point.dist else 'a distribution'}"
            raise UserError(f"{what} names {point.module}, which is no package.", "Uninstall it, or repair it.")
        named += map(Path, where)
    return tuple(dict.fromkeys(named))


def _entry_points() -> list[importlib.metadata.EntryPoint]:
    """Return the entry points (group `ENTRY_POINTS`) of installed distributions. In a checkout, those of this project
    are read from its pyproject.toml, because the project need not be installed, and an editable installation may state
    older entry points."""
    points = list(importlib.metadata.entry_points(group=ENTRY_POINTS))
    if (about := PROJECT / "pyproject.toml").is_file():
        project = tomllib.loads(about.read_text(encoding="utf-8")).get("project", {})
        own = project.get("entry-points", {}).get(ENTRY_POINTS, {})
        points = [point for point in points if point.dist is None or point.dist.name != project.get("name")]
        points += [importlib.metadata.EntryPoint(name, value, ENTRY_POINTS) for name, value in own.items()]
    return points


@cache
def names(kind: str) -> tuple[str, ...]:
    """Return the public names of all plug-ins of a kind (a key of `KINDS`), sorted. The result is cached.

    Raises:
        UserError: two plug-ins have the same name.
    """
    package = importlib.import_module(KINDS[kind].package)
    own = vars(package).setdefault("_own_path", list(package.__path__))
    more = [str(path / SUBFOLDERS[kind]) for path in _plugin_folders()] if kind in SUBFOLDERS else []
    package.__path__[:] = [*own, *(path for path in more if path not in own)]
    folders: dict[str, str] = dict.fromkeys(_row_names(kind), package.__file__ or "")
    for folder in package.__path__:
        for module in pkgutil.iter_modules([folder]):
            name = module.name.replace("_", "-")
            if name in folders:
                raise UserError(f"{folder}/{module.name}.py has the name of a {kind} in {folders[name]}.", "Rename it.")
            is_definition = KINDS[kind].defined.partition(":")[0] == f"{KINDS[kind].package}.{module.name}"
            if not name.startswith("-") and not module.ispkg and not is_definition:
                folders[name] = folder
    return tuple(sorted(folders))


def places(kind: str) -> tuple[str, ...]:
    """Return the folders that are searched for plug-ins of a kind (a key of `KINDS`), the project's own first."""
    names(kind)
    return tuple(importlib.import_module(KINDS[kind].package).__path__)


def plugged_in(kind: str) -> tuple[str, ...]:
    """Return the names of the plug-ins of a kind (a key of `KINDS`) whose files are outside the project."""
    every = names(kind)
    own = vars(importlib.import_module(KINDS[kind].package))["_own_path"]
    of_project = {module.name.replace("_", "-") for module in pkgutil.iter_modules(own)}
    return tuple(name for name in every if name not in of_project and name not in _row_names(kind))


def _row_names(kind: str) -> tuple[str, ...]:
    """Return the names of a kind's plug-ins that are rows of a table instead of files. The package of such a kind has
    `ROW_NAMES` and `row(name)`; for other kinds the result is ()."""
    return tuple(getattr(importlib.import_module(KINDS[kind].package), "ROW_NAMES", ()))


@cache
def load(kind: str, name: str) -> Any:
    """Return the object that the plug-in with this public name exports. `KINDS[kind]` states its class.

    Raises:
        UserError: there is no such plug-in (the nearest names are suggested), its file is broken (the message says
            where), or the file exports an object of another class.
    """
    if kind == "data set":
        name = DataName.parse(name).base  # what follows the colon is for the file itself to interpret: "folder:flowers"
    elif kind in PARTS:
        name = name.partition(":")[0]  # what follows the colon is a name in the library of that file: "timm:muon"
    if name not in names(kind):
        path = Path(name) if kind == "data set" and os.path.isdir(name) else Path()
        raise unknown(kind, name, names(kind), meant=path.name and f"folder:{path.name} --data-root {path.parent}")
    if name in _row_names(kind):
        return importlib.import_module(KINDS[kind].package).row(name)
    return exported(kind, name, _module(kind, name))


def _module(kind: str, name: str) -> ModuleType:
    """Import and return the module of a plug-in.

    Raises:
        UserError: the module cannot be imported.
    """
    module = f"{KINDS[kind].package}.{name.replace('-', '_')}"
    try:
        with prints_aside():
            return importlib.import_module(module)
    except UserError:  # the file itself says what is wrong
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's file may raise anything, even SystemExit
        raise _broken(kind, module, error) from error


def exported(kind: str, name: str, module: ModuleType) -> Any:
    """Return the object that a plug-in's module exports. `name`: public name of the plug-in.

    Raises:
        UserError: the module exports no object of the right class, or the object's own name differs from `name`.
    """
    about = KINDS[kind]
    made = getattr(module, about.export, None)
    where, _, type_name = about.defined.partition(":")
    if not type_name:
        return made
    if not isinstance(made, getattr(importlib.import_module(where), type_name)):
        raise UserError(
            f"The {kind} file {module.__file__} has no {about.export} = {type_name}(…).",
            "CONTRIBUTING.md has an example.",
        )
    if isinstance(made, ModelFamily):
        return replace(made, module=module.__name__)
    own = getattr(made, "name", name)
    if own.replace(" ", "-") != name:
        like = name.replace("-", " ") if " " in own else name
        raise UserError(f"The {kind} in {module.__file__} is called {own!r}.", f"Name it after its file: {like!r}.")
    return made


def _broken(kind: str, module: str, error: BaseException) -> UserError:
    """Return the error for a plug-in that cannot be imported. The message names the file and the line that failed.

    Args:
        module: full name of the plug-in's module.
        error: what the import raised.
    """
    package, _, name = module.rpartition(".")
    parent = importlib.import_module(package)
    found = PathFinder.find_spec(module, parent.__path__)
    path = str(found.origin if found else name)
    own = str(Path(path).parent) in vars(parent).get("_own_path", ())
    shown = f"{package.replace('.', '/')}/{name}.py" if own else path
    what = error.msg if isinstance(error, SyntaxError) else f"{type(error).__name__}: {error}"
    fix = "Fix it or move it away: every command loads it."
    if lacks := missing_package(error):
        fix = f"Install what it imports (pip install {lacks}, where that is its name). {fix}"
    elif isinstance(error, SystemExit):
        fix = f'What a script does belongs under if __name__ == "__main__". {fix}'
    return UserError(f"The {kind} file {shown}{_line(error, path)} is broken: {what}.", fix)


def missing_package(error: BaseException) -> str | None:
    """Return the name of the package that an import did not find. Return None for other errors, and if a module is
    missing in a package that is installed."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return package if package and package not in sys.modules and PathFinder.find_spec(package) is None else None


def _line(error: BaseException, path: str) -> str:
    """Return text such as ", line 3" for the innermost line of the file `path` in an error's traceback; "" if the
    traceback has no line of the file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == path else lines[-1] if lines else None
    return f", line {line}" if line else ""


def families() -> Iterator[ModelFamily]:
    """Yield every model family: ViT first, then the others, and last the families of networks from outside (timm, …).
    Each file is imported when its turn comes; files without FAMILY are skipped."""
    from vit import family as subject

    yield replace(subject.FAMILY, module=subject.__name__)
    for name in sorted(names("family"), key=lambda name: (name in ADAPTERS, name)):
        if hasattr(_module("family", name), "FAMILY"):
            yield load("family", name)


def model_names() -> tuple[str, ...]:
    """Return the model names that all families list. Families accept more names (any patch size, width, …)."""
    return tuple(name for family in families() for name in family.names)


def family_of(name: str) -> ModelFamily:
    """Return the family that builds the model `name`; options after the name are ignored.

    Raises:
        UserError: no family accepts the name; the nearest listed names are suggested.
    """
    base = ModelName.parse(name).base
    if len(name) <= (LONGEST_PATH if ":" in base else LONGEST) and (family := _accepting(base)):
        return family
    error = unknown("model", name, model_names(), meant=_meant(base))
    raise UserError(
        error.what,
        f"{error.fix} Naming rules: vit-bench flops --list. Others: timm:NAME, "
        "torchvision:NAME, hf:ORG/NAME, path/to/file.py:CALLABLE.",
    )


@cache
def _accepting(base: str) -> ModelFamily | None:
    """Return the first family that accepts a model name without options; None if no family does. Results are cached,
    because a plan asks thousands of times about a few names."""
    return next((family for family in families() if family.accepts(base)), None)


def _meant(name: str) -> str:
    """Return the model name that a user may have meant by an unknown name. A name as networks have in their own library
    gets the prefix that it needs here: "resnet50" -> "timm:resnet50". Return "" for names that look otherwise."""
    if name.endswith(".py"):
        return f"{name}:CALLABLE"
    if re.fullmatch(r"[a-z0-9][\w.-]*/[\w.-]*[a-z][\w.-]*", name):
        return f"timm:hf-hub:{name}" if name.startswith("timm/") else f"hf:{name}"
    return f"timm:{name}" if re.fullmatch(r"[a-z]+\d*(_[a-z0-9]+)*(\.\w+)?", name) and re.search(r"\d", name) else ""


def as_named_in_results(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return model names as results state them: a model from a file is named without the file's folder (see
    `baselines.file.without_folder`), all others as they are.

    Raises:
        UserError: two files would have the same name.
    """
    from baselines import file

    try:
        return tuple(file.without_folder(names))
    except ValueError as error:
        raise UserError(f"{error}.", "Rename one of them: results are filed under the file's name.") from error


def check_model(name: str) -> None:
    """Check that the model `name` exists, without building it.

    Raises:
        UserError: the name is misspelt, or the model's file is missing; the message says what exists instead.
    """
    family = family_of(name)
    try:
        family.check(ModelName.parse(name).base)
    except ValueError as error:
        raise UserError(
            f"Unknown model {name!r}: {str(error).rstrip('.?')}.", "Naming rules: vit-bench flops --list"
        ) from error


def family_label(name: str) -> str:
    """Return the label of a model's family in figures. If one family builds several architectures, this is the label of
    the model's architecture. This may import torch."""
    family = family_of(name)
    return family.label_of(ModelName.parse(name).base) if family.label_of else family.label


def source_of(name: str) -> Path:
    """Return the file whose code builds a model."""
    family = family_of(name)
    return family.source(ModelName.parse(name).base) if family.source else family.file


def own_image_size(name: str) -> int | None:
    """Return the pixels per side of the images that a model was made for; None if it was made for any size."""
    return family_of(name).input_size(ModelName.parse(name).base)


def comes_trained(name: str) -> bool:
    """Return whether a model comes with trained weights, and `weights=random` is not among its options."""
    parsed = ModelName.parse(name)
    return family_of(name).comes_trained(parsed.base) and parsed.options.get("weights") != "random"


def about(name: str) -> str:
    """Return, in words, which parts and settings of a model from outside are used (its class token, the image size of
    its processor); "" for other models."""
    parsed = ModelName.parse(name)
    return family_of(name).about(parsed.base, **parsed.options)


def weights_of(name: str) -> Weights | None:
    """Return the source and size of a model's trained weights, without fetching them; None for a model without any."""
    return family_of(name).weights_of(ModelName.parse(name).base) if comes_trained(name) else None


def own_classifier(name: str, checkpoint: Path | None = None) -> Classifier:
    """Return a trained model together with the classifier that it was trained with.

    Args:
        checkpoint: file with the weights; None: the weights that the model comes with.

    Raises:
        UserError: no family builds the model, the model has no classifier, or its weights cannot be fetched.
    """
    try:
        return family_of(name).classifier(ModelName.parse(name).base, checkpoint=checkpoint)
    except ValueError as error:
        raise UserError(f"{name} cannot be judged by its own classifier: {str(error).rstrip('.')}.") from error
    except OSError as error:  # the Hugging Face hub raises subclasses of OSError only
        raise _unfetched(name, error) from error


def build_model(name: str, *, image_size: int, channels: int, num_classes: int, **options: Any) -> nn.Module:
    """Return a new model with `model(x_BCHW) -> logits_BK` and `model.features(x_BCHW) -> x_BD`. Its weights are newly
    initialised unless its name asks for trained ones.

    Args:
        image_size: pixels per side of the input.
        channels: channels of the input, 1 or 3.
        options: further arguments for the family's `build`, in addition to the options in `name`.

    Raises:
        UserError: the name is unknown, an option is not accepted, the model does not accept this image size (the patch
            does not divide it), its weights cannot be fetched, or its code fails.
    """
    build = family_of(name).build
    named = ModelName.parse(name)
    base, options = named.base, {**named.options, **options}
    sizes = {"image_size": image_size, "channels": channels, "num_classes": num_classes}
    try:
        inspect.signature(build).bind(base, **sizes, **options)
    except TypeError as error:
        raise UserError(f"Model {name!r} cannot be built: {error}.", "Leave that option out.") from error
    try:
        return build(base, **sizes, **options)
    except (UserError, MemoryError):
        raise
    except ValueError as error:
        raise UserError(f"Model {name!r} cannot be built at {image_size} px: {error}") from error
    except Exception as error:
        if "out of memory" in str(error).lower():
            raise
        if base.endswith(PRETRAINED) and isinstance(error, OSError):  # all errors of the Hugging Face hub are OSErrors
            raise _unfetched(name, error) from error
        path = str(source_of(name))
        what = error.msg if isinstance(error, SyntaxError) else f"{type(error).__name__}: {error}"
        raise UserError(
            f"Model {name!r} cannot be built at {image_size} px: {what} ({path}{_line(error, path)}).",
            "vit-bench check names what a model must have.",
        ) from error


def _unfetched(name: str, error: OSError) -> UserError:
    here = [one for family in families() for one in family.on_disk()]
    return UserError(
        f"The weights of {name!r} are not on this machine and cannot be fetched ({type(error).__name__}).",
        f"On this disk: {', '.join(here) or 'none'}. timm:local-dir:FOLDER+pretrained takes them from a folder "
        "that timm.models.save_for_hf has written, hf:FOLDER from one of transformers.",
    )


def model_revision(name: str) -> int:
    """Return the revision of a model: the revision of its family, or the model's own revision if that is higher."""
    family = family_of(name)
    own = family.revision_of(ModelName.parse(name).base) if family.revision_of else 0
    return max(family.revision, own)


def revisions_of(cell: Cell) -> dict[str, int]:
    """Return the integer revisions that are part of a cell's identity, by name: "model", "recipe", "job:NAME",
    "data:NAME", "task:NAME", …. Images are identified by the name and the revision of their data set, not by content.

    The revision of the job "train" is that of the recipe. Revision 1 of another job, and of a recipe's optimizer, loss,
    augmentation or schedule, is left out, just as the identity leaves out fields that equal their defaults.
    """
    revisions = {"recipe": RECIPE_REVISION, "model": model_revision(cell.model)}
    if cell.job != "train" and (job := load("job", cell.job).revision) != 1:
        revisions[f"job:{cell.job}"] = job
    for kind in PARTS:
        if (part := load(kind, named := getattr(cell.recipe, kind)).revision) != 1:
            revisions[f"{kind}:{named}"] = part
    if cell.rehearsal:
        revisions["rehearsal"] = REHEARSAL_REVISION
    revisions[f"data:{cell.data}"] = load("data set", cell.data).revision
    for task in cell.tasks:
        revisions[f"task:{task.task}"] = load("task", task.task).revision
        revisions[f"data:{task.data}"] = load("data set", task.data).revision
    return revisions


def directory_name(cell: Cell) -> str:
    """Return the name of a cell's folder under `cells/`: the cell's readable name and its identity, a hash."""
    return f"{cell.readable_name}-{cell_id(cell, revisions_of(cell))}"
