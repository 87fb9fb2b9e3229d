"""A fingerprint changes with what code does, and not with how it is written or where it lies."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from bench.core import fingerprint, registry
from tests.conftest import PROJECT

MODEL = """
    '''What it is.'''
    from __future__ import annotations
    from typing import TYPE_CHECKING
    import json as notation
    from {package} import parts
    from .parts import act, wide as broad
    if TYPE_CHECKING:
        import torch

    WIDTH = 4

    class Net:
        '''A network.'''
        depth: int = 2

        def run(self, x: int) -> int:  # a comment
            from .deeper import deep
            return act(x) + broad(x) * deep(WIDTH)
"""
PARTS = "def act(x):\n    return max(0, x)\n\n\ndef wide(x):\n    return 2 * x\n"
DEEPER = "def deep(x):\n    return x ** 2\n"
FILES = {"model": MODEL, "parts": PARTS, "deeper": DEEPER, "unused": "X = 1\n"}
COUNT = iter(range(1000))


@pytest.fixture
def taken(tmp_path, monkeypatch):
    """Takes the fingerprint of `model` in a new package made of these files."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def take(**changed: str) -> fingerprint.Fingerprint:
        package = f"package_{next(COUNT)}"
        (tmp_path / package).mkdir()
        for name, text in {"__init__": "", **FILES, **changed}.items():
            written = textwrap.dedent(text).lstrip().replace("{package}", package)
            (tmp_path / package / f"{name}.py").write_text(written)
        found = fingerprint.of_module(__import__(f"{package}.model", fromlist=["model"]))
        assert found is not None
        return found

    return take


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"unused": "X = 2\n"},
        {"model": MODEL.replace("A network.", "Another word.").replace("a comment", "b")},
        {"model": MODEL.replace("x: int) -> int", "x)").replace("depth: int = 2", "depth: float = (2)")},
        {"model": MODEL.replace("import torch", "import numpy")},
        {"parts": PARTS.replace("def act", "'''Parts.'''\n\n\n\ndef act")},
        {
            "parts": PARTS.partition("def wide")[0],
            "wider": "def wide(x):\n    return 2 * x\n",
            "model": MODEL.replace("act, wide as broad", "act\n    from .wider import wide as broad"),
        },
    ],
    ids=["same", "unused", "docstring", "annotations", "type checking", "layout", "moved"],
)
def test_what_changes_no_behaviour_changes_nothing(taken, changed):
    moved = "wider" in changed
    if moved:  # an import of two names becomes two imports
        base = taken(model=MODEL.replace("act, wide as broad", "act\n    from .parts import wide as broad"))
    else:
        base = taken()
    assert taken(**changed).digest == base.digest


@pytest.mark.parametrize(
    "changed, modules",
    [
        ({"model": MODEL.replace("WIDTH = 4", "WIDTH = 5")}, ["model"]),
        ({"parts": PARTS.replace("0", "1")}, ["parts"]),
        ({"deeper": DEEPER.replace("2", "3")}, ["deeper"]),
        ({"model": MODEL.replace("depth: int = 2", "")}, ["model"]),
        ({"model": MODEL.replace("act, wide as broad", "wide as act, act as broad")}, ["model"]),
        ({"model": MODEL.replace("json as notation", "csv as notation")}, ["model"]),
        ({"model": MODEL.replace("        def run", "        @staticmethod\n        def run")}, ["model"]),
    ],
    ids=["constant", "imported", "imported inside", "field", "names swapped", "library swapped", "static"],
)
def test_what_changes_behaviour_changes_it_and_is_located(taken, changed, modules):
    base, other = taken(), taken(**changed)
    assert base.digest != other.digest
    tails = {name.partition(".")[2]: digest for name, digest in base.modules.items()}
    assert [n for name, d in sorted(other.modules.items()) if tails[n := name.partition(".")[2]] != d] == modules


def test_installed_packages_and_the_harness_do_not_count(taken):
    found = taken(parts=PARTS + "import numpy\nimport bench.core.errors\nimport json\n")
    assert {name.partition(".")[2] for name in found.modules} == {"", "model", "parts", "deeper"}


def test_every_family_has_one_that_covers_its_network_and_needs_no_torch():
    code = """
import sys
from bench.core import fingerprint, registry
for name in ("ViT-pico/14", "R5+ViT-pico/14", "R8x0.125-s2", "pixels"):
    print(name, *fingerprint.of_model(name).modules)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT, check=True)
    modules = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert "vit.model" in modules["ViT-pico/14"].split() and "vit.model" not in modules["R8x0.125-s2"].split()
    assert not [name for line in modules.values() for name in line.split() if name.partition(".")[0] == "bench"]
    assert len({fingerprint.of_module(family).digest for family in registry.families()}) == len(registry.families())
