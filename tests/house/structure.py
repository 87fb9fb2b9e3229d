"""The project's rooms, who imports whom, and how much a reader must hold.

`python -m tests.house.structure [FOLDER]` prints statements per room, what a study loads and can reach, the spine,
imports that go upwards, circles, class names with two meanings, and files that only one other file imports.

Size is counted in statements: nodes of `ast.stmt` without docstrings. No formatting changes them.
"""

import argparse
import ast
import graphlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
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
    ("bench.questions",),
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
    "bench.questions.",
    "bench.plan.passes.",
    "bench.plan.cost_models.",
    "bench.report.figures.",
    "bench.report.quoted.",
    "bench.execute.jobs.",
    "bench.trackers.",
    "baselines.",
)
"""Folders whose files are found by name, not imported."""


STUDY = ("bench.run", "bench.worker")
"""Where a study starts: the command, and the process that trains a cell."""

NOTE_MODULES = """
import atexit, json, os, sys
def note():
    with open(os.path.join(os.environ["MODULES_FOLDER"], f"{os.getpid()}.json"), "w") as file:
        json.dump(sorted(sys.modules), file)
atexit.register(note)
"""
"""A `sitecustomize.py`: every process writes down at its end what it has imported."""


def statements(path: Path) -> int:
    """Statements of a file, docstrings left out."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = sum(isinstance(node, documented) and ast.get_docstring(node, False) is not None for node in nodes)
    return sum(isinstance(node, ast.stmt) for node in nodes) - docstrings


def spine(root: Path = PROJECT) -> list[str]:
    """Modules that a newcomer reads, in CONTRIBUTING's order: paths in backquotes between its two markers."""
    text = (root / "CONTRIBUTING.md").read_text()
    listed = re.search(r"<!-- spine:begin -->(.*?)<!-- spine:end -->", text, flags=re.DOTALL)
    paths = re.findall(r"`((?:bench|vit|baselines)/\S+?\.py)`", listed[1]) if listed else []
    return [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in paths]


def loaded_by_a_study(folder: Path) -> set[str]:
    """Modules that any process of `bench.run --suite scaling` imports: plan, workers, jobs and report of two short
    cells, run for the purpose in `folder`."""
    (folder / "modules").mkdir()
    (folder / "sitecustomize.py").write_text(NOTE_MODULES)
    environment = os.environ | {"MODULES_FOLDER": str(folder / "modules"), "PYTHONPATH": f"{folder}:{PROJECT}"}
    command = [sys.executable, "-m", "bench.run", "--suite", "scaling", "--scale", "cpu", "--device", "cpu"]
    command += ["--models", "ViT-pico/14,R8x0.125-s2", "--horizons", "0,640", "--set", "warmup=10%", "--seeds", "1"]
    command += ["--only", "*_glyphs_s0", "--results", str(folder / "results")]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return {name for path in (folder / "modules").glob("*.json") for name in json.loads(path.read_text())}


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

    @cached_property
    def lines(self) -> dict[str, int]:
        return {name: len(path.read_text().splitlines()) for name, path in self.paths.items()}

    @cached_property
    def statements(self) -> dict[str, int]:
        return {name: statements(path) for name, path in self.paths.items()}

    def size(self, modules: Iterable[str]) -> int:
        """Statements of those of the modules that are the project's own."""
        return sum(self.statements.get(name, 0) for name in set(modules))

    def reached(self, *roots: str) -> set[str]:
        """Modules that imports lead to from `roots`, deferred ones included; what is loaded by name is not."""
        seen: set[str] = set()
        todo = list(roots)
        while todo:
            name = todo.pop()
            if name in seen or name not in self.paths:
                continue
            seen.add(name)
            parts = name.split(".")
            todo += [".".join(parts[:count]) for count in range(1, len(parts))]
            todo += self.imports.get(name, ())
        return seen

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
        for importer, names in self.imports.items():
            for imported in names:
                importers[imported].append(importer)
        return {
            name: names[0]
            for name, names in importers.items()
            if len(names) == 1
            and not name.startswith(PLUGINS)
            and room(name) != "verbs"
            and self.paths[name].name not in ("__init__.py", "__main__.py")
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=PROJECT, help="a checkout (default: this one)")
    root = parser.parse_args().folder.resolve()
    house = Structure(root)
    counted: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for name, number in house.statements.items():
        counted[room(name)] += number
        files[room(name)] += number > 0
    for name in ORDER:
        print(f"{name:16} {counted[name]:6,} statements {files[name]:4} files")
    print(f"installed: {counted.total():,} statements in {files.total()} files")
    for folder in ("tests", "tools"):
        print(f"{folder}: {sum(map(statements, (root / folder).rglob('*.py'))):,}")
    reached = house.reached(*STUDY)
    print(f"reached by a study without a registry: {house.size(reached):,} in {len(reached)} files")
    print(f"the spine: {house.size(spine(root)):,} in {len(spine(root))} files")
    if root == PROJECT:
        with tempfile.TemporaryDirectory() as folder:
            loaded = loaded_by_a_study(Path(folder)) & set(house.paths)
        print(f"loaded by a study: {house.size(loaded):,} in {len(loaded)} files")
    print("class names with several meanings:", ", ".join(house.classes()) or "none")
    print("upwards:", "; ".join(house.upwards()) or "none")
    print("circle:", " -> ".join(house.circle()) or "none")
    single = house.one_importer()
    print(f"one importer: {len(single)} files, {house.size(single):,} statements")
    for name, importer in single.items():
        print(f"  {name} ({house.statements[name]}) <- {importer}")


if __name__ == "__main__":
    main()
