"""The layout is the architecture: import directions, file lengths, nothing unsafe, listing without torch."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("bench", "vit", "baselines")
SOURCES = sorted(path for package in PACKAGES for path in (PROJECT / package).rglob("*.py"))

# Who may not be imported by whom, anywhere in a file: (importer's prefix, forbidden prefixes).
FORBIDDEN = [
    ("vit", ("bench", "baselines", "timm", "fvcore")),
    ("baselines", ("bench",)),
    ("bench.data", ("torch", "bench.train", "bench.tasks", "bench.jobs", "bench.exec", "vit", "baselines")),
    ("bench.store", ("bench.train", "bench.tasks", "bench.jobs", "bench.exec", "bench.analysis", "vit", "baselines")),
    ("bench.train", ("bench.jobs", "bench.exec", "bench.analysis", "bench.plots", "bench.html", "vit", "baselines")),
    ("bench.tasks", ("bench.train", "bench.jobs", "bench.exec", "bench.analysis", "bench.plots", "bench.html")),
    (
        "bench.analysis",
        ("torch", "timm", "bench.train", "bench.tasks", "bench.jobs", "bench.exec", "vit", "bench.plots"),
    ),
    ("bench.plots", ("torch", "timm", "bench.train", "bench.tasks", "bench.jobs", "bench.exec", "vit", "bench.html")),
    ("bench.html", ("torch", "timm", "bench.train", "bench.tasks", "bench.jobs", "bench.exec", "vit")),
    ("bench.suites", ("torch", "timm", "bench.train", "bench.exec", "bench.store", "bench.analysis")),
]
LAZY_ALLOWED = {"bench.store.checkpoints": ("torch",)}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> set[str]:
    """Every module that a file imports, at any depth; not those under TYPE_CHECKING."""
    tree = ast.parse(path.read_text())
    hidden = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


@pytest.mark.parametrize("importer, forbidden", FORBIDDEN, ids=lambda v: v if isinstance(v, str) else "")
def test_rooms_import_only_what_they_may(importer, forbidden):
    wrong = [
        f"{module_name(path)} imports {name}"
        for path in SOURCES
        if under(module_name(path), importer)
        for name in imports(path)
        if any(under(name, prefix) for prefix in forbidden)
    ]
    assert not wrong


def test_files_stay_short():
    lengths = {module_name(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert not {name: length for name, length in lengths.items() if length > 350}
    real = [length for length in lengths.values() if length > 3]
    assert statistics.median(real) < 150


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
from bench import discover
from bench.run import cells_of
from bench.spec import directory_name
from bench.suites._contract import SuiteOptions
for name in discover.names("suite"):
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
