"""A run of a part: at most so many cells, or those alone that failed."""

from __future__ import annotations

from dataclasses import replace

from tests.execute.naps import naps
from tests.plan.making import plan_of


def states(plan, *found):
    cells = [replace(cell, state=state) for cell, state in zip(plan.cells, found, strict=True)]
    return replace(plan, cells=tuple(cells))


def test_what_is_left_is_cut_after_the_most_urgent(tmp_path):
    plan = states(plan_of(naps(5), tmp_path), "missing", "done", "partial", "failed", "refused")
    assert [cell.state for cell in plan.todo] == ["partial", "missing", "failed"]
    assert [cell.state for cell in replace(plan, most=1).todo] == ["partial"]


def test_only_what_failed(tmp_path):
    plan = replace(states(plan_of(naps(4), tmp_path), "missing", "failed", "partial", "failed"), retry="failed")
    assert [cell.state for cell in plan.todo] == ["failed", "failed"]
    assert len(replace(plan, most=1).todo) == 1


def test_a_run_of_a_part_says_so(verb, tmp_path):
    said = verb(
        "plan", "--suite", "smoke", "--scale", "cpu", "--results", tmp_path, "--max-cells", 1, "--models", "ViT-pico/14"
    )
    assert said.returncode == 0 and "This run does at most 1 cell." in said.stdout
