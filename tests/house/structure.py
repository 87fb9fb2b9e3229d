"""The project's rooms, and who imports whom. `python -m tools.structure` prints how large they are."""

import ast
import graphlib
import re
import sys
from functools import cached_property
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("bench", "vit", "baselines")

# The house from the ground up: a room may import rooms of the lines above its own. Rooms that share a line are listed
# lowest first and may import what stands before them in it.
LAYERS = (
    ("vit",),
    ("baselines",),
    ("bench.core",),
    ("bench.study",),
    ("bench.data", "bench.store", "bench.cost"),
    ("bench.train", "bench.tasks", "bench.stats", "bench.laws", "bench.logs", "bench.trackers"),
    ("bench.analysis",),
    ("bench.claims", "bench.questions", "bench.validity"),
    ("bench.report",),
    ("bench.published",),
    ("bench.suites", "bench.plan"),
    ("bench.execute",),
    ("bench.commands", "bench.examples", "verbs"),  # verbs lie at the top of bench/, or are what `python -m ROOM` runs
)
ORDER = [room for layer in LAYERS for room in layer]

GUESTS = {
    "bench.laws": {"bench.core.errors", "bench.core.formatting", "numpy", "scipy", "pandas"},
    "bench.published": {
        *("baselines.published", "bench.core", "bench.study.cell", "bench.study.record", "bench.cost.flops"),
        *("bench.stats", "bench.analysis", "bench.claims", "bench.report"),
        *("numpy", "scipy", "pandas", "matplotlib", "seaborn", "jinja2", "markupsafe"),
    },
}
"""A guest could leave the house: the room, and all that it imports beside itself and the standard library."""
PLUGGED_IN = ("bench.published",)
"""Guests that come by an entry point, so that nobody imports them."""


def spine(root: Path = PROJECT) -> list[str]:
    """Modules that a newcomer reads, in CONTRIBUTING's order: paths in backquotes between its two markers."""
    text = (root / "CONTRIBUTING.md").read_text()
    listed = re.search(r"<!-- spine:begin -->(.*?)<!-- spine:end -->", text, flags=re.DOTALL)
    paths = re.findall(r"`((?:bench|vit|baselines)/\S+?\.py)`", listed[1]) if listed else []
    return [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in paths]


def under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def room(module: str) -> str:
    """The room of one of the project's modules: a folder, or "verbs", which a room's `__main__` is one of."""
    if module.endswith(".__main__"):
        return "verbs"
    return next((name for name in ORDER if under(module, name)), "verbs")


def imports(path: Path, modules: frozenset[str]) -> set[str]:
    """Every module that a file imports, at any depth: inside functions and under TYPE_CHECKING too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            submodules = named & modules
            names |= submodules | ({node.module} if len(submodules) < len(named) else set())
    return names


class Structure:
    """The modules below `root`, their lines, and what each imports."""

    def __init__(self, root: Path = PROJECT) -> None:
        paths = sorted(path for package in PACKAGES for path in (root / package).rglob("*.py"))
        name = lambda path: ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")  # noqa: E731
        self.paths = {name(path): path for path in paths}

    def classes(self) -> dict[str, list[str]]:
        """Names of classes that more than one file defines, and which."""
        defined: dict[str, list[str]] = {}
        for module, path in self.paths.items():
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    defined.setdefault(node.name, []).append(module)
        return {name: modules for name, modules in sorted(defined.items()) if len(modules) > 1}

    @cached_property
    def all_imports(self) -> dict[str, set[str]]:
        return {name: imports(path, frozenset(self.paths)) for name, path in self.paths.items()}

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """Those of the project's own modules."""
        return {
            name: {other for other in imported if other in self.paths} - {name, "bench"}
            for name, imported in self.all_imports.items()
        }

    def upwards(self) -> list[str]:
        """Imports of a room that lies higher."""
        return [
            f"{importer} imports {imported}"
            for importer, names in self.imports.items()
            for imported in sorted(names)
            if ORDER.index(room(imported)) > ORDER.index(room(importer))
        ]

    def beyond(self, guest: str) -> list[str]:
        """Imports of a guest that it is not allowed: modules of the project by their names, packages as a whole."""
        allowed = GUESTS[guest] | sys.stdlib_module_names
        return [
            f"{module} imports {imported}"
            for module, names in self.all_imports.items()
            if under(module, guest)
            for imported in sorted(names)
            if not under(imported, guest) and not any(under(imported, name) for name in allowed)
        ]

    def circle(self) -> list[str]:
        """One circle of files that import each other; empty if there is none."""
        try:
            graphlib.TopologicalSorter(self.imports).prepare()
        except graphlib.CycleError as error:
            return list(error.args[1])
        return []
