"""The identity of a cell, and of the code that its results depend on."""

import json
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.core.errors import UserError
from bench.study import fingerprint, registry
from bench.study.cell import Cell, Recipe, TaskSpec, cell_from_json, cell_id, slug, to_json
from tests.conftest import PROJECT

# -- identity: a cell's hash survives new fields, changes with revisions, and round-trips through JSON -----------------


PROBE = TaskSpec(task="fewshot", data="digits", options=(("shots", (1, 10)), ("draws", 2)))
BASE = Cell(model="ViT-nano/7", data="fashion-mnist", num_images=1000, horizons=(0, 8000), tasks=(PROBE,))

# Golden: these must never change, or every stored result is orphaned.
GOLDEN = [
    (BASE, {"recipe": 1}, "ec1ddcdb88"),
    (replace(BASE, recipe=Recipe(lr=2e-3), seed=1), {"recipe": 1}, "21a690bed1"),
    (Cell(model="pixels", data="digits"), {"model": 1, "recipe": 2}, "75a345a78f"),
]

cells = st.builds(
    Cell,
    model=st.sampled_from(["ViT-B/16", "R50x1"]),
    data=st.just("digits"),
    num_images=st.none() | st.integers(1, 10**9),
    seed=st.integers(0, 5),
    horizons=st.sets(st.integers(0, 10**6), min_size=1, max_size=4).map(lambda h: tuple(sorted(h))),
    recipe=st.builds(Recipe, lr=st.floats(1e-5, 1), batch=st.integers(1, 4096), flip=st.booleans()),
    tasks=st.just(()) | st.just((PROBE,)),
)


@pytest.mark.parametrize("cell, revisions, expected", GOLDEN)
def test_golden_identities(cell, revisions, expected):
    assert cell_id(cell, revisions) == expected


@given(cell=cells)
def test_round_trip(cell):
    assert cell_from_json(json.loads(json.dumps(to_json(cell)))) == cell
    assert cell_from_json(to_json(cell, omit_defaults=True)) == cell


@given(one=cells, other=cells)
def test_equal_specs_and_only_they_share_an_identity(one, other):
    assert (cell_id(one, {}) == cell_id(other, {})) == (one == other)


def test_a_new_field_with_a_default_orphans_nothing():
    @dataclass(frozen=True, kw_only=True)
    class Later(Recipe):
        invented: float = 0.0

    assert cell_id(replace(BASE, recipe=Later()), {}) == cell_id(BASE, {})
    assert cell_id(replace(BASE, recipe=Later(invented=1.0)), {}) != cell_id(BASE, {})


def test_a_revision_changes_the_identity_and_labels_do_not():
    assert cell_id(BASE, {"recipe": 1}) != cell_id(BASE, {"recipe": 2})
    assert cell_id(replace(BASE, axes=("compute",)), {}) == cell_id(BASE, {})


def test_an_unknown_field_is_an_error_not_ignored():
    with pytest.raises(UserError, match="lrate"):
        cell_from_json({"model": "m", "data": "d", "recipe": {"lrate": 1}})


@pytest.mark.parametrize("horizons", [(), (5, 3), (1, 1), (-1,)])
def test_impossible_horizons(horizons):
    with pytest.raises(UserError, match="orizons"):
        Cell(model="m", data="d", horizons=horizons)


@given(text=st.text())
def test_names_in_paths_are_harmless(text):
    assert set(slug(text)) <= set("abcdefghijklmnopqrstuvwxyz0123456789._+-")


# -- a fingerprint changes with what code does, and not with how it is written or where it lies ------------------------


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
        taken_of = fingerprint.of_module(__import__(f"{package}.model", fromlist=["model"]))
        return taken_of

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
    fingerprint_of = taken(parts=PARTS + "import numpy\nimport bench.core.errors\nimport json\n")
    assert {name.partition(".")[2] for name in fingerprint_of.modules} == {"", "model", "parts", "deeper"}


@pytest.mark.gate
def test_every_family_has_one_that_covers_its_network_and_needs_no_torch():
    code = """
import sys
from bench.study import fingerprint, registry
for name in ("ViT-pico/14", "R5+ViT-pico/14", "R8x0.125-s2", "pixels"):
    print(name, *fingerprint.of_model(name).modules)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT, check=True)
    modules = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert "vit.model" in modules["ViT-pico/14"].split() and "vit.model" not in modules["R8x0.125-s2"].split()
    assert not [name for line in modules.values() for name in line.split() if name.partition(".")[0] == "bench"]
    families = list(registry.families())
    assert len({fingerprint.of_module(sys.modules[family.module]).digest for family in families}) == len(families)
