"""Identity: a cell's hash survives new fields, changes with revisions, and round-trips through JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.core.errors import UserError
from bench.core.spec import Cell, Recipe, TaskSpec, cell_from_json, cell_id, slug, to_json

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

    later = replace(BASE, recipe=Later())
    assert cell_id(later, {}) == cell_id(BASE, {})
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
