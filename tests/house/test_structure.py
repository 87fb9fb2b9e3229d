"""The layout is the architecture: import directions, file lengths, nothing unsafe, listing without torch."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("bench", "vit", "baselines")
SOURCES = sorted(path for package in PACKAGES for path in (PROJECT / package).rglob("*.py"))

# The house from the ground up: a room may import rooms of the lines above its own. Rooms that share a line are listed
# lowest first and may import what stands before them in it. DESIGN: data flows one way.
LAYERS = (
    ("vit",),
    ("baselines",),
    ("bench.core",),
    ("bench.data", "bench.store", "bench.cost"),
    ("bench.train", "bench.tasks", "bench.stats"),
    ("bench.analysis",),
    ("bench.report",),
    ("bench.suites", "bench.plan"),
    ("bench.execute",),
    ("verbs",),
)
ORDER = [room for layer in LAYERS for room in layer]
PLUGIN_FOLDERS = {"bench.core.registry"}  # names folders of plug-ins as strings; imports none of them by name
NO_TORCH = ("bench.data", "bench.stats", "bench.analysis", "bench.report", "bench.suites")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in SOURCES}


def imports(path: Path) -> set[str]:
    """Every module that a file imports, at any depth: inside functions and under TYPE_CHECKING too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            submodules = named & set(MODULES)
            found |= submodules | ({node.module} if len(submodules) < len(named) else set())
    return found


def under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def room(module: str) -> str:
    """The room of one of the project's modules: a folder, or "verbs" for what lies at the top of bench/."""
    return next((name for name in ORDER if under(module, name)), "verbs")


IMPORTS = {name: {other for other in imports(path) if other in MODULES} - {name} for name, path in MODULES.items()}


def test_every_folder_is_a_room():
    folders = {module_name(path.parent) for path in SOURCES if path.parent.parent.name == "bench"}
    assert folders <= set(ORDER), "name the new folder in LAYERS"


def test_rooms_import_downwards_only():
    wrong = [
        f"{importer} imports {imported}"
        for importer, found in sorted(IMPORTS.items())
        for imported in sorted(found)
        if imported != "bench" and ORDER.index(room(imported)) > ORDER.index(room(importer))
    ]
    assert not wrong


def test_no_circles_between_files():
    graph = graphlib.TopologicalSorter({name: found - {"bench"} for name, found in IMPORTS.items()})
    try:
        graph.prepare()
    except graphlib.CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


@pytest.mark.parametrize("importer", NO_TORCH)
def test_rooms_that_need_no_torch(importer):
    heavy = ("torch", "timm", "fvcore")
    wrong = [
        f"{name} imports {imported}"
        for name, path in MODULES.items()
        if under(name, importer)
        for imported in imports(path)
        if any(under(imported, package) for package in heavy)
    ]
    assert not wrong


def test_files_hold_one_idea():
    lengths = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert not {name: length for name, length in lengths.items() if length > 700}


UNSAFE_CALLS = {("pickle", "load"), ("pickle", "loads"), ("yaml", "load"), ("os", "system"), ("marshal", "loads")}


def test_nothing_unsafe_is_called():
    wrong = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
            bad = tuple(name.rsplit(".", 1)) in UNSAFE_CALLS or name in ("eval", "exec")
            bad |= keywords.get("allow_pickle") == "True" or keywords.get("shell") == "True"
            bad |= name == "torch.load" and keywords.get("weights_only") != "True"
            bad |= name.endswith(".extractall") and keywords.get("filter") != "'data'"
            if bad:
                wrong.append(f"{path.relative_to(PROJECT)}:{node.lineno}: {ast.unparse(node)[:80]}")
    assert not wrong


BLOCK_TORCH = """
import sys, importlib.abc
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "timm", "torchvision", "fvcore"):
            raise ImportError(f"{name} is not needed here")
sys.meta_path.insert(0, Block())
"""

VERBS = sorted(path.stem for path in (PROJECT / "bench").glob("*.py") if "__main__" in path.read_text())


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_examples_and_needs_no_torch(verb):
    run = f"import runpy\nsys.argv = ['{verb}', '--help']\nrunpy.run_module('bench.{verb}', run_name='__main__')"
    code = f"{BLOCK_TORCH}\n{run}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
    if verb != "worker":  # started by the executor, not by people
        assert "examples:" in done.stdout
        assert f"python -m bench.{verb}" in done.stdout
        assert "--json" in done.stdout


def test_listing_suites_and_their_cells_needs_no_torch():
    code = f"""{BLOCK_TORCH}
from bench.core import registry
from bench.run import cells_of
from bench.core.spec import directory_name
from bench.suites._contract import SuiteOptions
for name in registry.names("suite"):
    for cell in cells_of(name, SuiteOptions()):
        directory_name(cell)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_every_module_says_what_it_is(path):
    text = path.read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text))
