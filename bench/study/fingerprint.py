"""Code fingerprints, which show whether a model's code has changed since its results were produced.

A fingerprint covers the Python source of a model family's file and of everything that it imports, except installed
packages and the harness (`bench`). Edits that leave behaviour alone do not change the fingerprint: comments,
docstrings, layout, annotations of functions, moving a definition to another file. The fingerprint is not part of a
cell's identity.

For a model that is not the project's own (timm, torchvision, a user's file, a plug-in) it also covers the versions of
the installed packages that its file imports, except torch and numpy, whose versions the record's environment states.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from bench.core import environment
from bench.core.errors import PROJECT
from bench.study import registry

DIGITS = 16  # hexadecimal digits of a digest
HARNESS, SUBJECT = "bench", "vit"
IN_RECORDS = ("torch", "numpy")  # packages that change no network; records state their versions
STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
INSTALLED = frozenset(("site-packages", "dist-packages"))  # names of folders that hold installed packages
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
IGNORED = ("returns", "annotation", "type_comment", "type_params", "kind", "ctx")  # AST fields left out of the digest


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """A digest of a model's code, as a whole and by module.

    Attributes:
        digest: digest of all definitions, independent of the files that they are in.
        modules: name of a module -> digest of its definitions; name of an installed package -> "version …"; name of
            another file that results depend on (weights, configuration) -> digest of the file; name of a repository on
            the Hugging Face hub -> "commit …".
    """

    digest: str
    modules: Mapping[str, str] = field(default_factory=dict)

    def differing(self, other: Fingerprint) -> list[str]:
        """Return the sorted names of the modules that differ between the two fingerprints, or that only one of them
        has."""
        return sorted({name for name, _ in self.modules.items() ^ other.modules.items()})


@dataclass(frozen=True, kw_only=True)
class Basis:
    """The code and images that results were made with, as far as they are known. A cell only names its model and its
    data sets, whose code and images can change.

    Attributes:
        code: fingerprint of the model's code; None if it is not known.
        images: name of a data set -> digest of its images (`bench.data.identity`).
    """

    code: Fingerprint | None = None
    images: Mapping[str, str] = field(default_factory=dict)

    def agrees(self, other: Basis) -> bool:
        """Return whether code and images are equal in both, as far as both state them."""
        return (self.code is None or other.code is None or self.code.digest == other.code.digest) and not any(
            other.images.get(name, digest) != digest for name, digest in self.images.items()
        )


NOTHING_KNOWN = Basis()


def of_model(name: str) -> Fingerprint | None:
    """Return the fingerprint of the model `name`: of the code that builds it, and of the package versions and files
    that its results depend on. Return None if a source file cannot be read. This does not import torch.

    Raises:
        UserError: no family builds a model of this name.
    """
    family, path = registry.family_of(name), registry.source_of(name)
    code = of_module(sys.modules[family.module]) if path == family.file else of_file(path.stem, path)
    if code is None or not (more := family.identity(name)):
        return code
    return Fingerprint(
        digest=_digest([code.digest, *(f"{k} {v}" for k, v in more.items())]), modules={**code.modules, **more}
    )


@cache
def of_module(module: ModuleType) -> Fingerprint | None:
    """Return the fingerprint of a module and of what it imports; None if a source file cannot be read. Results are
    cached, because each takes some milliseconds."""
    return of_file(module.__name__, Path(module.__file__ or ""))


def of_file(root: str, path: Path) -> Fingerprint | None:
    """Return the fingerprint of a file and of what it imports; None if a source file cannot be read. `root`: the name
    of the module that the file is imported as."""
    waiting = {root: path}
    outside = not any(path.is_relative_to(PROJECT / own) for own in ("baselines", SUBJECT))
    sources: dict[str, _Source] = {}
    while waiting:
        name, path = waiting.popitem()
        try:
            sources[name] = _read(name, path, root.partition(".")[0])
        except (OSError, SyntaxError, ValueError, RecursionError):
            return None
        waiting |= {name: path for name, path in sources[name].imports.items() if name not in sources}
    definitions = [text for source in sources.values() for text in source.definitions]
    modules = {name: _digest(source.definitions) for name, source in sources.items()}
    if outside:
        tops = {top for source in sources.values() for top in source.packages} - {*IN_RECORDS, HARNESS, SUBJECT}
        tops -= sys.stdlib_module_names | {name.partition(".")[0] for name in sources}
        versions = {top: f"version {version}" for top in sorted(tops) if (version := version_of(top))}
        definitions += [f"{top} {version}" for top, version in versions.items()]
        modules |= versions
    return Fingerprint(digest=_digest(definitions), modules=modules)


def version_of(package: str) -> str | None:
    """Return the installed version of the distribution that contains an importable package (pillow contains PIL); None
    if it is not installed."""
    return environment.version(package) or next(map(environment.version, _distributions().get(package, ())), None)


_distributions = cache(importlib.metadata.packages_distributions)


def path_of(module: str) -> Path | None:
    """Return the file of a module, found without importing the module; None if it has no file."""
    if (loaded := sys.modules.get(module)) is not None:
        file = getattr(loaded, "__file__", None)
        return Path(file) if file else None
    parts = module.split(".")
    found, where = None, None
    for count in range(1, len(parts) + 1):
        try:
            found = PathFinder.find_spec(".".join(parts[:count]), where)
        except (ImportError, ValueError):
            return None
        parent = sys.modules.get(".".join(parts[:count]))  # its __path__ also has the folders of plug-ins
        where = getattr(parent, "__path__", None) or (found.submodule_search_locations if found else None)
        if where is None and count < len(parts):
            return None
    return Path(found.origin) if found and found.origin else None


@dataclass(frozen=True)
class _Source:
    """What one source file contributes to a fingerprint.

    Attributes:
        definitions: each top-level statement of the file, as text.
        imports: name of each imported module that is part of the fingerprint -> that module's file.
        packages: top-level names of all modules that the file imports.
    """

    definitions: tuple[str, ...]
    imports: Mapping[str, Path]
    packages: frozenset[str]


@cache
def _read(name: str, path: Path, package: str) -> _Source:
    tree = ast.parse(path.read_bytes())
    parents = (name if path.name == "__init__.py" else name.rpartition(".")[0]).split(".")
    imports: dict[str, Path] = {}
    packages: set[str] = set()
    for node in _run(tree):
        if isinstance(node, ast.ImportFrom):
            base = [*parents[: len(parents) - node.level + 1]] if node.level else []
            node.module = ".".join([*base, *([node.module] if node.module else [])])
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            if any(_counts(module, package) for module in names):
                node.module = None  # so that moving a definition within the project does not change the fingerprint
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        packages |= {module.partition(".")[0] for module in names}
        for parts in (module.split(".") for module in names):  # importing a module also runs its parent packages
            for module in (".".join(parts[:count]) for count in range(1, len(parts) + 1)):
                if (found := _counts(module, package)) is not None:
                    imports[module] = found
    return _Source(tuple(map(_text, _body(tree))), imports, frozenset(packages))


@cache
def _counts(module: str, package: str) -> Path | None:
    """Return the file of a module if the module is part of the fingerprint: it belongs to the model family's own
    `package` or to `vit`, or is not installed. Return None for all other modules (the standard library, installed
    packages, `bench`)."""
    top = module.partition(".")[0]
    path = None if top == HARNESS else path_of(module)
    if path is None or path.suffix != ".py":
        return None
    installed = path.is_relative_to(STANDARD_LIBRARY) or INSTALLED & set(path.parts)
    return None if installed and top not in (package, SUBJECT) else path


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every node of the syntax tree below `node`. `if TYPE_CHECKING:` blocks, which never run, are removed from
    the tree first."""
    for block in (getattr(node, name, None) for name in ("body", "orelse")):
        if isinstance(block, list):
            block[:] = [n for n in block if not (isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test))]
    for child in ast.iter_child_nodes(node):
        yield child
        yield from _run(child)


def _body(node: ast.AST) -> list[ast.AST]:
    """Return the statements in the body of a definition, without its docstring."""
    body: list[ast.AST] = node.body  # type: ignore[attr-defined]
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
    return body


def _text(value: object) -> str:
    """Return a syntax tree as text that is the same in every version of Python."""
    if isinstance(value, ast.AST):
        fields = {name: item for name, item in ast.iter_fields(value) if name not in IGNORED and item not in (None, [])}
        if isinstance(value, DEFINITIONS):
            fields["body"] = _body(value)
        return f"{type(value).__name__}({','.join(f'{name}={_text(item)}' for name, item in sorted(fields.items()))})"
    return f"[{','.join(map(_text, value))}]" if isinstance(value, list) else repr(value)


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:DIGITS]
