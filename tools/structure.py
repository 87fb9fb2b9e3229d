"""Sizes of the project, counted: what is watched, and held by no test.

    python -m tools.structure [FOLDER] [--study]

Prints statements and files of each room, the spine of CONTRIBUTING and the files that it imports directly, what a study
can reach and (`--study`, half a minute) what its processes load, imports that go upwards, circles, the files that each
group of options enters, and files that only one other file imports. A statement is a node of `ast.stmt` that is no
docstring, so that formatting changes no count.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.house.structure import ORDER, PROJECT, Structure, room, spine

STUDY = ("bench.run", "bench.worker")
"""A study starts in these modules: the command, and the process that trains a cell."""
OPTIONS = "bench.study.options"
BY_NAME = (
    "bench.data.sets.",
    "bench.tasks.",
    "bench.suites.",
    "bench.questions.",
    "bench.validity.",
    "bench.claims.",
    "bench.plan.passes.",
    "bench.plan.cost_models.",
    "bench.report.figures.",
    "bench.report.quoted.",
    "bench.execute.jobs.",
    "bench.execute.executors.",
    "bench.trackers.",
    "baselines.",
)
"""Files of these folders are found by their names, so that nobody imports them."""
NOTE_MODULES = """
import atexit, json, os, sys
def note():
    with open(os.path.join(os.environ["MODULES_FOLDER"], f"{os.getpid()}.json"), "w") as file:
        json.dump(sorted(sys.modules), file)
atexit.register(note)
"""
"""A `sitecustomize.py` by which every process writes down at its end what it has imported."""


def statements(path: Path) -> int:
    """Statements of a file without docstrings."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = sum(isinstance(node, documented) and ast.get_docstring(node, False) is not None for node in nodes)
    return sum(isinstance(node, ast.stmt) for node in nodes) - docstrings


def reached(house: Structure, roots: Iterable[str]) -> set[str]:
    """Modules that imports lead to from `roots`, also those inside functions; what is loaded by name is not among
    them."""
    seen: set[str] = set()
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name not in seen and name in house.paths:
            seen.add(name)
            parts = name.split(".")
            todo += [".".join(parts[:count]) for count in range(1, len(parts))]
            todo += house.imports[name]
    return seen


def loaded_by_a_study(folder: Path) -> set[str]:
    """Modules that any process of `bench.run --suite scaling` imports: plan, workers, jobs and report of two short
    cells, run for the purpose in `folder`."""
    (folder / "modules").mkdir()
    (folder / "sitecustomize.py").write_text(NOTE_MODULES)
    environment = os.environ | {"MODULES_FOLDER": str(folder / "modules"), "PYTHONPATH": f"{folder}:{PROJECT}"}
    command = [sys.executable, "-m", "bench.run", "--suite", "scaling", "--scale", "cpu", "--device", "cpu"]
    command += ["--models", "ViT-pico/7,ResNet-8-s4", "--horizons", "0,640", "--set", "warmup=10%", "--seeds", "1"]
    command += ["--only", "*_fashion-mnist-part_s0", "--results", str(folder / "results")]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return {name for path in (folder / "modules").glob("*.json") for name in json.loads(path.read_text())}


def one_importer(house: Structure) -> dict[str, str]:
    """Files that one other file imports, and which; not plug-ins, verbs and packages."""
    importers: dict[str, list[str]] = {name: [] for name in house.paths}
    for importer, names in house.imports.items():
        for imported in names:
            importers[imported].append(importer)
    return {
        name: names[0]
        for name, names in importers.items()
        if len(names) == 1
        and not name.startswith(BY_NAME)
        and room(name) != "verbs"
        and house.paths[name].name not in ("__init__.py", "__main__.py")
    }


def walks(house: Structure) -> dict[str, list[str]]:
    """Files that take a group of options, by the group: they import its class, or read it of all options."""
    whole = next(
        node
        for node in ast.parse(house.paths[OPTIONS].read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "StudyOptions"
    )
    fields = [node for node in whole.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    groups = {ast.unparse(field.target): ast.unparse(field.annotation) for field in fields}
    entered: dict[str, list[str]] = {group: [] for group in groups.values()}
    for module, path in house.paths.items():
        taken = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                taken |= {alias.name for alias in node.names} & entered.keys()
            elif (
                isinstance(node, ast.Attribute) and node.attr in groups and ast.unparse(node.value).endswith("options")
            ):
                taken.add(groups[node.attr])
        for group in taken if module != OPTIONS else ():
            entered[group].append(module)
    return entered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=PROJECT, help="a checkout (default: this one)")
    parser.add_argument("--study", action="store_true", help="run a short study and count what it loads")
    options = parser.parse_args()
    root = options.folder.resolve()
    house = Structure(root)
    counts = {name: statements(path) for name, path in house.paths.items()}

    def told(what: str, modules: Iterable[str]) -> None:
        own = set(modules) & set(counts)
        print(f"{what:50} {sum(counts[name] for name in own):6,} statements {len(own):4} files")

    sizes, files = Counter[str](), Counter[str]()
    for name, number in counts.items():
        sizes[room(name)] += number
        files[room(name)] += number > 0
    for name in ORDER:
        print(f"{name:50} {sizes[name]:6,} statements {files[name]:4} files")
    told("all that is installed", counts)
    for folder in ("tests", "tools"):
        paths = list((root / folder).rglob("*.py"))
        print(f"{folder:50} {sum(map(statements, paths)):6,} statements {len(paths):4} files")
    listed = spine(root)
    told("the spine", listed)
    told("files that the spine imports directly", set().union(*(house.imports[name] for name in listed)) - set(listed))
    told("what a study reaches without a registry", reached(house, STUDY))
    if options.study:
        with tempfile.TemporaryDirectory() as made:
            told("what a study loads", loaded_by_a_study(Path(made)))
    print("class names with several meanings:", ", ".join(house.classes()) or "none")
    print("upwards:", "; ".join(house.upwards()) or "none")
    print("circle:", " -> ".join(house.circle()) or "none")
    for group, modules in walks(house).items():
        print(f"options {group:42} {len(modules):2} files of {', '.join(sorted({room(name) for name in modules}))}")
    single = one_importer(house)
    told("files with one importer", single)
    for name, importer in single.items():
        print(f"  {name} ({counts[name]}) <- {importer}")


if __name__ == "__main__":
    main()
