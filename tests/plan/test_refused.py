"""A model that cannot be trained is told so by name and file before anything is trained, and the others are run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.core.spec import cell_from_json
from bench.execute import local
from bench.execute.prepare import begin
from bench.plan.plan import Plan, PlannedCell
from bench.plan.view import plan_summary
from bench.store import grid

BAD = """
from torch import nn

def net(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(7, num_classes))
"""


@pytest.fixture
def plan(verb, tmp_path):
    """The plan of a study of a good and of a bad model."""
    (tmp_path / "bad.py").write_text(BAD)
    return lambda *models: verb("plan", "--suite", "smoke", "--models", ",".join(models), "--json", "--workers", "1")


def test_one_bad_model_never_ends_a_study_of_others(plan, tmp_path):
    done = plan("ViT-pico/14", "bad.py:net")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    cells = {cell["cell"]["model"]: cell for cell in made["cells"]}
    assert cells["bad.py:net"]["state"] == "refused" and cells["ViT-pico/14"]["state"] == "missing"
    assert "bad.py:net" in cells["bad.py:net"]["note"] and "784" in cells["bad.py:net"]["note"]
    assert made["expected_seconds"] > 0 and not any("bad.py" in note for note in made["notes"])

    refused = [
        PlannedCell(
            cell=cell_from_json(cell["cell"]),
            name=cell["name"],
            state=cell["state"],
            fraction=0.0,
            images=cell["images"],
            note=cell["note"],
        )
        for cell in made["cells"]
        if cell["state"] == "refused"
    ]
    left = Plan(
        suite="smoke",
        question="?",
        scale="cpu",
        store=tmp_path / "s",
        cells=tuple(refused),
        device="cpu",
        workers=1,
        threads=1,
        ranks=1,
    )
    assert left.todo == () and "2 that cannot be run" in plan_summary(left)[0]
    failures = local.run(left, on_event=lambda *_: None, tick=lambda: None)
    assert [failure.cell for failure in failures] == [cell.name for cell in refused]
    names = tuple(cell.name for cell in refused)
    for looked_at in (left.cells, ()):  # a later run whose --only leaves them out forgets nothing
        begin(replace(left, grid=names, cells=looked_at))
        kept = grid.read(left.store)
        assert kept is not None and kept.refused == {cell.name: cell.note for cell in refused}
    begin(replace(left, grid=names, cells=tuple(replace(cell, state="missing", note=None) for cell in left.cells)))
    assert (kept := grid.read(left.store)) is not None and kept.refused == {}
    done_already = replace(left, cells=tuple(replace(cell, state="done") for cell in refused))
    assert local.run(done_already, on_event=lambda *_: None, tick=lambda: None) == []


@pytest.mark.slow
def test_where_no_model_can_be_trained_nothing_is_planned(plan):
    done = plan("bad.py:net")
    assert done.returncode == 2 and "bad.py:net" in done.stderr and "784" in done.stderr
