"""The layout is the architecture: import directions, file lengths, nothing unsafe, listing without torch."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.house.structure import ORDER, PROJECT, Structure, under

HOUSE = Structure()
SOURCES = list(HOUSE.paths.values())
NO_TORCH = ("bench.data", "bench.stats", "bench.analysis", "bench.report", "bench.suites")


def test_every_folder_is_a_room():
    folders = {f"bench.{path.parent.name}" for path in (PROJECT / "bench").glob("*/__init__.py")}
    assert folders <= set(ORDER), "name the new folder in LAYERS"


def test_rooms_import_downwards_only():
    assert not HOUSE.upwards()


def test_no_circles_between_files():
    assert not HOUSE.circle()


def test_the_search_for_circles_sees_imports_inside_functions_and_for_types(tmp_path):
    (tmp_path / "vit").mkdir()
    (tmp_path / "vit/a.py").write_text("def f():\n    from vit import b\n")
    (tmp_path / "vit/b.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from vit.a import f\n")
    assert set(Structure(tmp_path).circle()) == {"vit.a", "vit.b"}


@pytest.mark.parametrize("name", NO_TORCH)
def test_rooms_that_need_no_torch(name):
    wrong = [
        f"{module} imports {imported}"
        for module, found in HOUSE.all_imports.items()
        if under(module, name)
        for imported in found
        if imported.split(".")[0] in ("torch", "timm", "fvcore")
    ]
    assert not wrong


def test_files_hold_one_idea():
    assert not {name: lines for name, lines in HOUSE.lines.items() if lines > 700}


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
from bench.core.registry import directory_name

from bench.suites._contract import SuiteOptions
for name in registry.names("suite"):
    for cell in cells_of(name, SuiteOptions()):
        directory_name(cell)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", SOURCES, ids=HOUSE.paths)
def test_every_module_says_what_it_is(path):
    text = path.read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text))
