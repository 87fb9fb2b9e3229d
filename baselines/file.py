"""Networks in a user's own file: path/to/file.py:CALLABLE.

The callable (a class or a function) makes the network. It is called with those of `image_size`, `channels` and
`num_classes` that it has parameters for; it must have `num_classes`. The network takes images in [-1, 1] and returns
logits_BK. It has

    features(x_BCHW) -> x_BD, num_features (an int) and head (its classifier, with `forward` = head of features), or
    none of the three: then the classifier is the last nn.Linear, whose output must be what the network returns.

Optional in the file: FAMILY, the label of its models in figures (default: the callable's name). Optional attributes of
the network: `mean` and `std`, by which it normalises pixels in [0, 1], if it should not be given images in [-1, 1]. The
file can import modules from its own folder. All of this code is part of the model's identity (see
bench/study/fingerprint.py): results of other code are not reused.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import hashlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from vit.model_family import ModelFamily

SEPARATOR = ".py:"
FOLDERS = "VIT_BENCH_MODEL_FOLDERS"  # environment variable: folders in which files named without one are searched
ALIASES = {"img_size": "image_size", "in_chans": "channels", "in_channels": "channels"}


def accepts(name: str) -> bool:
    """Return whether `name` has the form FILE.py:CALLABLE."""
    path, separator, target = name.partition(SEPARATOR)
    return bool(separator and path and target.isidentifier())


def source(name: str) -> Path:
    """Return the path of the file in a model's name (FILE.py:CALLABLE), and append the file's folder to `sys.path`, so
    that the file can import modules from there. A file named without a folder is searched in the folders of
    VIT_BENCH_MODEL_FOLDERS too."""
    named = Path(name.partition(SEPARATOR)[0] + ".py")
    folders = filter(None, os.environ.get(FOLDERS, "").split(os.pathsep)) if named.name == str(named) else ()
    path = next((path for folder in folders if (path := Path(folder) / named).is_file()), named.absolute())
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    return path


def without_folder(names: Sequence[str]) -> list[str]:
    """Return models' names as results show them: without the folder of a file that was given by its absolute path,
    because that is private. From then on such a file is found by its name alone, in this process and those that it
    starts.

    Raises:
        ValueError: two files would have the same name.
    """
    found: dict[str, Path] = {}
    shown = []
    for name in names:
        file, separator, rest = name.partition(SEPARATOR)
        path = Path(file + ".py")
        if separator and (path.is_absolute() or path.name == str(path)):
            if found.setdefault(path.name, source(name)) != source(name):
                raise ValueError(f"{found[path.name]} and {source(name)} are both called {path.name}")
            name = f"{path.name}:{rest}"
        shown.append(name)
    absolute = [str(path.parent) for name in names if (path := Path(name.partition(SEPARATOR)[0])).is_absolute()]
    if absolute:
        there = os.environ.get(FOLDERS, "").split(os.pathsep)
        os.environ[FOLDERS] = os.pathsep.join(dict.fromkeys(filter(None, [*absolute, *there])))
    return shown


def check(name: str) -> None:
    """Check that the file and the callable of a model's name (FILE.py:CALLABLE) exist, without running the file.

    Raises:
        ValueError: there is no such file or callable; the message says what there is instead.
    """
    path, target = source(name), name.partition(SEPARATOR)[2]
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    defined = [node.name for node in _tree(path).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    assigned = [a for node in _tree(path).body for a in _assigned(node)]
    if target not in (*defined, *assigned):
        close = difflib.get_close_matches(target, defined, n=2, cutoff=0.4) or defined[:8]
        raise ValueError(f"{path} defines no {target!r}; it has {', '.join(close) or 'neither classes nor functions'}")


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}") from error


def _assigned(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module defines by assignment or import."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    return [target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)]


def label_of(name: str) -> str:
    """Return the label of a model in figures: the constant FAMILY of its file, or else the callable's name."""
    for node in _tree(source(name)).body:
        if isinstance(node, ast.Assign) and "FAMILY" in _assigned(node) and isinstance(node.value, ast.Constant):
            return str(node.value.value)
    return name.partition(SEPARATOR)[2]


@cache
def load(path: Path) -> ModuleType:
    """Import a file as a module, and return it. The file is run once in a process.

    Raises:
        ValueError: the file ends the program; the message says at which line. Other errors of the file are passed on.
    """
    name = f"_model_file_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look modules up there
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for results only
            spec.loader.exec_module(module)
    except SystemExit as error:
        del sys.modules[name]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f", line {lines[-1]}," if lines else ""
        what = f"{path}{where} ends the program when it is imported (SystemExit: {error})"
        raise ValueError(f'{what}; what a script does belongs under if __name__ == "__main__"') from error
    except BaseException:
        del sys.modules[name]
        raise
    return module


def build(name: str, *, image_size: int, channels: int, num_classes: int, **options: Any) -> Any:
    """Build the model of a name (FILE.py:CALLABLE) with `features`, `num_features` and `head`; under
    `torch.device("meta")` it has shapes only.

    Args:
        image_size, channels: pixels per side, and channels, of the images.
        options: further arguments of the callable; `input_size` sets the pixels per side of the network's input.

    Raises:
        ValueError: there is no such callable, an option is unknown, the network does not take the size, or it lacks
            members that this module describes.
    """
    from torch import nn

    from baselines import _outside

    check(name)
    path, target = source(name), name.partition(SEPARATOR)[2]
    function = getattr(load(path), target)
    wanted = options.pop("input_size", None)
    parameters = inspect.signature(function).parameters
    takes = {p.name for p in parameters.values() if p.kind is not p.VAR_KEYWORD}
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        takes |= {"image_size", "channels", "num_classes", *options}
    if "num_classes" not in takes:
        raise ValueError(f"{target} has no parameter num_classes: the number of outputs depends on the data set")
    if unknown := sorted(set(options) - takes):
        raise ValueError(f"{target} has no parameter {unknown[0]!r}; it has {', '.join(sorted(takes))}")

    def make(size: int, given: int) -> nn.Module:
        known = {"image_size": size, "channels": given, "num_classes": num_classes}
        known |= {alias: known[one] for alias, one in ALIASES.items()}
        network = function(**{key: value for key, value in known.items() if key in takes}, **options)
        if not isinstance(network, nn.Module):
            raise ValueError(f"{target} makes a {type(network).__name__}, not an nn.Module")
        return network

    sizes = [int(wanted)] if wanted else _outside.sizes_from(image_size)
    return _outside.adapted(
        make, sizes=sizes, image_size=image_size, channels=channels, num_classes=num_classes or None
    )


FAMILY = ModelFamily(
    label="file",
    naming="path/to/file.py:CALLABLE, a class or function of your own that makes an nn.Module",
    accepts=accepts,
    build=build,
    check=check,
    source=source,
    label_of=label_of,
)
