"""The project's rooms and who imports whom.

`python -m tests.house.structure [FOLDER]` prints lines per room, imports that go upwards, circles, and files that only
one other file imports.
"""

from __future__ import annotations

import argparse
import ast
import graphlib
from collections import Counter
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
    ("bench.data", "bench.store", "bench.cost"),
    ("bench.train", "bench.tasks", "bench.stats", "bench.trackers"),
    ("bench.analysis",),
    ("bench.report",),
    ("bench.suites", "bench.plan"),
    ("bench.execute",),
    ("verbs",),  # what lies at the top of bench/, and what `python -m ROOM` runs
)
ORDER = [room for layer in LAYERS for room in layer]
PLUGINS = (
    "bench.data.sets.",
    "bench.tasks.",
    "bench.suites.",
    "bench.report.figures.",
    "bench.execute.jobs.",
    "bench.trackers.",
    "baselines.",
)
"""Folders whose files are found by name, not imported."""


def under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def room(module: str) -> str:
    """The room of one of the project's modules: a folder, or "verbs", which a room's `__main__` is one of."""
    if module.endswith(".__main__"):
        return "verbs"
    return next((name for name in ORDER if under(module, name)), "verbs")


def imports(path: Path, modules: frozenset[str]) -> set[str]:
    """Every module that a file imports, at any depth: inside functions and under TYPE_CHECKING too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            submodules = named & modules
            found |= submodules | ({node.module} if len(submodules) < len(named) else set())
    return found


class Structure:
    """The modules below `root`, their lines, and what each imports."""

    def __init__(self, root: Path = PROJECT) -> None:
        paths = sorted(path for package in PACKAGES for path in (root / package).rglob("*.py"))
        name = lambda path: ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")  # noqa: E731
        self.paths = {name(path): path for path in paths}

    @cached_property
    def lines(self) -> dict[str, int]:
        return {name: len(path.read_text().splitlines()) for name, path in self.paths.items()}

    @cached_property
    def all_imports(self) -> dict[str, set[str]]:
        return {name: imports(path, frozenset(self.paths)) for name, path in self.paths.items()}

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """Those of the project's own modules."""
        return {
            name: {other for other in found if other in self.paths} - {name, "bench"}
            for name, found in self.all_imports.items()
        }

    def upwards(self) -> list[str]:
        """Imports of a room that lies higher."""
        return [
            f"{importer} imports {imported}"
            for importer, found in self.imports.items()
            for imported in sorted(found)
            if ORDER.index(room(imported)) > ORDER.index(room(importer))
        ]

    def circle(self) -> list[str]:
        """One circle of files that import each other; empty if there is none."""
        try:
            graphlib.TopologicalSorter(self.imports).prepare()
        except graphlib.CycleError as error:
            return list(error.args[1])
        return []

    def one_importer(self) -> dict[str, str]:
        """Files that one other file imports, and which; not plug-ins, verbs and packages."""
        importers: dict[str, list[str]] = {name: [] for name in self.paths}
        for importer, found in self.imports.items():
            for imported in found:
                importers[imported].append(importer)
        return {
            name: found[0]
            for name, found in importers.items()
            if len(found) == 1
            and not name.startswith(PLUGINS)
            and room(name) != "verbs"
            and self.paths[name].name not in ("__init__.py", "__main__.py")
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=PROJECT, help="a checkout (default: this one)")
    house = Structure(parser.parse_args().folder.resolve())
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for name, number in house.lines.items():
        lines[room(name)] += number
        files[room(name)] += number > 0
    for name in ORDER:
        print(f"{name:16} {lines[name]:6,} lines {files[name]:4} files")
    print(f"{'all':16} {lines.total():6,} lines {files.total():4} files")
    print("upwards:", "; ".join(house.upwards()) or "none")
    print("circle:", " -> ".join(house.circle()) or "none")
    single = house.one_importer()
    print(f"one importer: {len(single)} files, {sum(house.lines[name] for name in single):,} lines")
    for name, importer in single.items():
        print(f"  {name} ({house.lines[name]}) <- {importer}")


if __name__ == "__main__":
    main()
