"""The layout is the architecture: import directions, nothing unsafe, listing without torch."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

from bench import __main__ as script
from bench.core.errors import EXIT_USAGE
from tests.house.structure import (
    GUESTS,
    ORDER,
    PACKAGES,
    PROJECT,
    Structure,
    spine,
    under,
)
from tests.house.unsafe import unsafe

HOUSE = Structure()
SOURCES = list(HOUSE.paths.values())
NO_TORCH = ("bench.data", "bench.stats", "bench.analysis", "bench.questions", "bench.report", "bench.suites")


def test_every_folder_is_a_room():
    folders = {f"bench.{path.parent.name}" for path in (PROJECT / "bench").glob("*/__init__.py")}
    assert folders <= set(ORDER), "name the new folder in LAYERS"


def test_rooms_import_downwards_only():
    assert not HOUSE.upwards()


@pytest.mark.parametrize("guest", GUESTS)
def test_a_guest_imports_only_what_its_line_says(guest):
    assert not HOUSE.beyond(guest)


def test_what_a_guest_may_not_import_is_seen_wherever_it_stands(tmp_path):
    (tmp_path / "bench/laws").mkdir(parents=True)
    for room in ("core", "stats"):
        (tmp_path / f"bench/{room}").mkdir()
        (tmp_path / f"bench/{room}/errors.py").touch()
    allowed = "import math\nimport numpy as np\nfrom bench.core.errors import UserError\nfrom bench.laws import b\n"
    (tmp_path / "bench/laws/a.py").write_text(allowed)
    (tmp_path / "bench/laws/b.py").write_text("def f():\n    import torch\n    from bench.stats import errors\n")
    wrong = ["bench.laws.b imports bench.stats.errors", "bench.laws.b imports torch"]
    assert Structure(tmp_path).beyond("bench.laws") == wrong


def test_of_the_laws_others_import_what_its_page_lists_as_public():
    """The table of bench/laws/README.md is the surface: no module more, and none that nobody uses."""
    page = (PROJECT / "bench/laws/README.md").read_text()
    public, internal = page.partition("\n## Modules")[2].split("\nInternal: ")
    listed = {f"bench.laws.{name}" for name in re.findall(r"^\| `(\w+)` \|", public, re.MULTILINE)}
    inside = {f"bench.laws.{name}" for name in re.findall(r"`(\w+)`", internal.partition("\n\n")[0])}
    used = {name for module, names in HOUSE.imports.items() if not under(module, "bench.laws") for name in names}
    assert listed == {name for name in used if name.startswith("bench.laws.")}
    assert listed | inside == {name for name in HOUSE.paths if name.startswith("bench.laws.")} and not listed & inside


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
        for module, names in HOUSE.all_imports.items()
        if under(module, name)
        for imported in names
        if imported.split(".")[0] in ("torch", "timm", "fvcore")
    ]
    assert not wrong


IMPORTED_AS = {
    "yaml": "pyyaml",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "pynvml": "nvidia-ml-py",
    "triton": "torch",
}


def test_what_is_imported_is_declared():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    entries = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    declared = {re.match(r"[\w-]+", entry)[0].replace("-", "_") for entry in entries}
    imported = {name.partition(".")[0] for names in HOUSE.all_imports.values() for name in names}
    packages = {IMPORTED_AS.get(name, name).replace("-", "_") for name in imported - set(PACKAGES)}
    assert packages - sys.stdlib_module_names <= declared


def test_extras_that_recipes_and_pages_install_are_declared():
    """pip only warns of one that is not."""
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    documents = (path for path in (PROJECT / "docs").rglob("*") if path.is_file() and path.suffix != ".png")
    pages = [PROJECT / "README.md", *documents]
    named = {
        (path.name, extra)
        for path in pages
        for extras in re.findall(r"(?:'\.|vit-scaling-bench)\[([\w,]+)\]", path.read_text())
        for extra in extras.split(",")
    }
    assert len(named) > 5 and not {(name, extra) for name, extra in named if extra not in declared}


def test_what_is_installed_without_torch_is_declared_and_all_else_of_it():
    """Its list is the dependencies but for torch and what needs it."""
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    light = (PROJECT / "docs/recipes/without-torch.txt").read_text().splitlines()[1:]
    heavy = {re.match(r"[\w-]+", entry)[0] for entry in set(declared) - set(light)}
    assert set(light) < set(declared)
    assert heavy == {"torch", "torchvision", "timm", "huggingface_hub", "fvcore", "torch-tb-profiler", "tensorboard"}


def test_the_spine_exists():
    assert len(spine()) > 20 and set(spine()) <= set(HOUSE.paths)


def test_class_names_have_one_meaning():
    assert not HOUSE.classes()


def test_nothing_unsafe_is_called():
    calls = {path: list(unsafe(path.read_text())) for path in SOURCES}
    assert not {str(path.relative_to(PROJECT)): what for path, what in calls.items() if what}


STARTS = {"DataLoader": "multiprocessing_context", "ProcessPoolExecutor": "mp_context"}
DEFAULT = ("Pool", "Process", "Queue", "Value", "Array", "Manager", "set_start_method")  # of multiprocessing itself


def left_to_python(text):
    """Calls that start processes as this version of Python does by default."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            owner, _, name = ast.unparse(node.func).rpartition(".")
            given = {keyword.arg for keyword in node.keywords}
            if STARTS.get(name, "") not in given | {""} or (owner == "multiprocessing" and name in DEFAULT):
                yield ast.unparse(node)


def test_how_processes_start_is_never_left_to_python():
    """Its default has changed. The loaders of others, in a race, start as their users have them."""
    tools = [path for path in (PROJECT / "tools").rglob("*.py") if path.name != "loaders.py"]
    calls = {path: list(left_to_python(path.read_text())) for path in (*SOURCES, *tools)}
    assert not {str(path): what for path, what in calls.items() if what}
    seen = "import multiprocessing as m; DataLoader(x); futures.ProcessPoolExecutor(2); multiprocessing.Pool(2)"
    assert len(list(left_to_python(seen))) == 3


UNSAFE = """
import pickle; pickle.load(f)
import pickle as p; p.loads(b)
from pickle import load; load(f)
from pickle import loads as read; read(b)
import pickle; pickle.Unpickler(f).load()
import pickle; class R(pickle.Unpickler): pass
import pickle; read = pickle.load; read(f)
import pickle; getattr(pickle, "load")(f)
__import__("pickle").load(f)
import importlib; importlib.import_module("pickle").load(f)
import importlib; importlib.import_module(x).loads(b)
import importlib; getattr(importlib.import_module(x), "load")(f)
import numpy as np; np.load(f, None, True)
import numpy as np; np.load(f, allow_pickle=True)
import numpy as np; np.load(f)
from numpy import load; load(f)
import numpy as np; read = np.load; read(f, allow_pickle=wish)
import torch; torch.load(f)
import torch; torch.load(f, weights_only=False)
from torch import load as read; read(f)
import subprocess; subprocess.run(c, shell=1)
import subprocess; subprocess.run(c, shell=True)
import subprocess as s; s.getoutput(c)
from os import system; system(c)
import os; os.popen(c)
tar.extractall(folder)
tar.extract(member, folder)
import shutil; shutil.unpack_archive(f)
import pandas as pd; pd.read_pickle(f)
import yaml; yaml.load(f, yaml.Loader)
import marshal; marshal.load(f)
import shelve; shelve.open(f)
import joblib; joblib.load(f)
eval(text)
run = exec; run(text)
"""
SAFE = """
import numpy as np; np.load(f, allow_pickle=False)
import torch; torch.load(f, weights_only=True)
import subprocess; subprocess.run([a], shell=False)
tar.extractall(folder, filter="data")
import zipfile; z = zipfile.ZipFile(f); z.extract(member, folder)
import ast; ast.literal_eval(text)
model.eval()
import json; json.load(f)
import re; re.compile(text)
"""


@pytest.mark.parametrize("line", UNSAFE.strip().splitlines())
def test_what_is_unsafe_is_found_whatever_it_is_called(line):
    assert list(unsafe(line.replace("; class", "\nclass")))


@pytest.mark.parametrize("line", SAFE.strip().splitlines())
def test_what_is_safe_is_left_alone(line):
    assert not list(unsafe(line))


BLOCK_TORCH = """
import sys, importlib.abc
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "timm", "torchvision", "fvcore"):
            raise ModuleNotFoundError(f"{name} is not needed here", name=name)
sys.meta_path.insert(0, Block())
"""

VERBS = sorted({*(name for name, path in script.verbs().items() if path.stem == name), "worker"})


HELP = """
import contextlib, io, json, runpy, traceback
said = {}
for verb in sys.argv[1:]:
    named, words = ("bench.worker", []) if verb == "worker" else ("bench", [verb])
    sys.argv, output, end = [named, *words, "--help"], io.StringIO(), None
    with contextlib.redirect_stdout(output):
        try:
            runpy.run_module(named, run_name="__main__")
        except BaseException as error:
            end = error.code if isinstance(error, SystemExit) else traceback.format_exc()
    said[verb] = end, output.getvalue()
print(json.dumps(said))
"""


READ = """
import contextlib, io, json
from bench.__main__ import main
said = []
for words in json.loads(sys.argv[1]):
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        said.append((main(words), output.getvalue()))
print(json.dumps(said))
sys.exit(main(["flops", "ViT-B/16"]))
"""


@pytest.fixture(scope="module")
def helps():
    """Verb -> how `python -m bench VERB --help` ends (0 or None: well), and what it prints; all in one process."""
    command = [sys.executable, "-W", "ignore::RuntimeWarning:runpy", "-c", BLOCK_TORCH + HELP, *VERBS]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.gate
@pytest.mark.parametrize("verb", VERBS)
def test_help_has_examples_and_needs_no_torch(verb, helps):
    end, said = helps[verb]
    assert not end, end
    if verb != "worker":  # started by the executor, not by people
        assert "examples:" in said
        assert f"vit-bench {verb}" in said
        assert "--json" in said


@pytest.mark.gate
def test_reading_needs_no_torch_and_the_rest_says_so(tmp_path):
    """The commands that only read, where torch is not installed; and one that counts."""
    kept = PROJECT / "tests/records/scaling"
    for cell in (kept / "cells").glob("*_glyphs_s0-*"):
        shutil.copytree(cell, tmp_path / "results/presets/cells" / cell.name)
    runs = ["family,compute,error", *(f"ViT,1e{power},{0.9**power}" for power in range(12, 19))]
    (tmp_path / "runs.csv").write_text("\n".join(runs))
    compared = ["compare", "ViT-pico/14", "R8x0.125-s2", "--suite", kept.name, "--results", str(kept.parent)]
    light = [["fit", "runs.csv", "--x", "compute", "--y", "error"], ["report", "--suite", "presets"], ["status"]]
    light += [compared, ["flops", "--list"], ["published", "--reach", "85%"], ["data"]]
    light += [["plan", "--suite", "scaling", "--scale", "paper", "--hardware", "8xH100", "--price", "2.5/gpuh"]]
    command = [sys.executable, "-c", BLOCK_TORCH + READ, json.dumps(light)]
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == EXIT_USAGE, done.stderr
    said = json.loads(done.stdout)
    assert [code for code, _ in said] == [0] * len(light), said
    assert not [text for _, text in said if re.search(r"\btorch\b", text)]
    assert done.stderr.startswith("error: This needs torch, which is not installed.\n  pip install torch")


HIDE = """
import builtins, importlib, sys
real = builtins.__import__
def guarded(name, names=None, *rest):
    ours = ((names or {}).get("__name__") or "").partition(".")[0] in ("bench", "vit", "baselines")
    if ours and name in ("fcntl", "resource", "pwd", "grp", "termios"):
        raise ModuleNotFoundError(name, name=name)
    return real(name, names, *rest)
builtins.__import__ = guarded
for module in sys.argv[1:]:
    importlib.import_module(module)
from bench.core import files
from pathlib import Path
assert not files.has_locks(Path("."))
files.write_new(Path("new"), b"whole")
"""


@pytest.mark.gate
def test_importing_needs_nothing_that_windows_does_not_have(tmp_path):
    """And where files cannot be locked, they are written."""
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", HIDE, *HOUSE.paths]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0 and (tmp_path / "new").read_bytes() == b"whole", done.stderr


@pytest.mark.gate
def test_listing_suites_and_their_cells_needs_no_torch():
    code = f"""{BLOCK_TORCH}
from bench.study import registry
from bench.study.registry import directory_name
from bench.plan.expand import expand
from bench.study.options import What
from bench.study.overrides import Overrides
from bench.plan.sizes import DataSizes
from bench.study.suite import load
for name in registry.names("suite"):
    scale = "paper" if name == "whole-paper" else "cpu"
    for cell in expand(load(name), What(scale=scale), Overrides(), DataSizes(published=scale == "paper")).cells:
        directory_name(cell)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
