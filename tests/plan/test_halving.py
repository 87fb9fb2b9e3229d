"""Halving keeps the rate that the whole sweep chooses, by upstream loss alone, and goes on from records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.analysis.lr_sweep import MARGIN
from bench.core.errors import UserError
from bench.core.record import Score
from bench.core.spec import Cell
from bench.plan import halving
from bench.store.study import Study
from tests.plan.making import cells_of

RUNGS = Path(__file__).with_name("rates_rungs.json")
REFERENCE = Path(__file__).parents[2] / "results" / "reference" / "rates-cpu"


def chosen(accuracy: dict[float, float]) -> float:
    """The rule of the whole sweep, said again."""
    return min(rate for rate, value in accuracy.items() if value >= max(accuracy.values()) - MARGIN - 1e-9)


def test_the_chosen_rate_is_kept_at_less_than_two_thirds_of_the_images():
    """Replay: losses after an eighth of the budget (trained for this test, `rates_rungs.json`), accuracies after all of
    it from the committed sweep."""
    kept = []
    rungs = json.loads(RUNGS.read_text())
    for found in rungs.values():
        whole = {float(rate): value for rate, value in found["accuracy_in_full"].items()}
        short = [(float(rate), loss) for rate, loss in found["loss_after_an_eighth"].items()]
        left = halving.finalists(short)
        assert len(left) == halving.FINALISTS
        kept.append(chosen({rate: whole[rate] for rate in left}) == chosen(whole))
        assert 1 / halving.PART + len(left) / len(whole) < 2 / 3
    assert len(kept) >= 10 and kept.count(False) <= 1, dict(zip(rungs, kept, strict=True))


def test_replayed_accuracies_are_the_committed_ones():
    rungs = json.loads(RUNGS.read_text())
    for path in sorted(REFERENCE.glob("cells/*/record.json")):
        record = json.loads(path.read_text())
        found = rungs[record["cell"]["model"]]["accuracy_in_full"]
        rate = f"{record['cell']['recipe']['lr']:g}"
        assert found[rate] == record["horizons"][-1]["scores"][0]["value"]


def test_rates_that_diverged_are_out():
    assert halving.finalists([(1e-3, 3.0), (2e-3, 2.0), (4e-3, float("inf")), (8e-3, float("nan"))]) == (1e-3, 2e-3)


def test_rounds_follow_from_records(tmp_path, monkeypatch):
    cells = cells_of("rates", models=("ViT-pico/14",))
    study = Study(tmp_path)
    first = halving.next_round(cells, study)
    assert first.waiting == 1 and {c.horizons for c in first.cells} == {(2000,)} and len(first.cells) == len(cells)
    losses = {cell.recipe.lr: 1.0 + n for n, cell in enumerate(reversed(cells))}  # the highest rates look best

    class Known:
        def __init__(self, cell: Cell) -> None:
            self.cell = cell

        def is_done(self) -> bool:
            return True

        def read_record(self):
            score = Score(task="upstream", data="glyphs", metric="accuracy", value=0.1, stderr=None, num_test=1,
                          num_classes=2, chance=0.5, detail={"loss": losses[self.cell.recipe.lr]})  # fmt: skip
            horizon = type("H", (), {"scores": (score,)})()
            return type("R", (), {"status": "complete", "horizons": (horizon,)})()

    monkeypatch.setattr(Study, "cell", lambda self, cell: Known(cell))
    second = halving.next_round(cells, study)
    full = [cell for cell in second.cells if cell.horizons == cells[0].horizons]
    assert second.waiting == 0 and [cell.recipe.lr for cell in full] == [8e-3, 1.6e-2, 3.2e-2]
    assert set(full) <= set(cells)  # the very cells of the whole sweep


def test_only_sweeps_can_be_halved():
    with pytest.raises(UserError, match="sweeps"):
        halving.next_round([Cell(model="ViT-pico/14", data="glyphs", horizons=(64,))], Study(Path("nowhere")))
    cells = [replace(cell, horizons=(64, 128)) for cell in cells_of("rates", models=("ViT-pico/14",))]
    with pytest.raises(UserError):
        halving.next_round(cells, Study(Path("nowhere")))
