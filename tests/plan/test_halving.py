"""A halved sweep keeps the rate that the whole one chooses, and goes on from records."""

import json
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from bench.core import fingerprint
from bench.core.errors import UserError
from bench.core.record import Score
from bench.core.spec import RATE_MARGIN, Cell
from bench.plan.passes import halving
from bench.store.records import Outcome
from bench.store.study import CellDirectory, Study
from tests.plan.finished import finish
from tests.plan.making import cells_of

KEPT = Path(__file__).parents[1] / "records"
SWEEPS = {"rates-of-62-steps": 10}
"""Committed sweep of ten models, and how many of eleven keep their rate: the rule was made on the first."""
ONE_MORE = {  # trained for this test alone
    "R11x0.125-s2": {1e-3: 0.148, 2e-3: 0.3364, 4e-3: 0.556, 8e-3: 0.6728, 1.6e-2: 0.7492, 3.2e-2: 0.7964},
}


def chosen(accuracy: dict[float, float]) -> float:
    """The rule of the whole sweep, said again."""
    return min(rate for rate, value in accuracy.items() if value >= max(accuracy.values()) - RATE_MARGIN - 1e-9)


def searched(whole: dict[float, float]) -> dict[float, float]:
    """The part of a sweep that is trained."""
    tried: dict[float, float] = {}
    while (rate := halving.following(sorted(whole), tried)) is not None:
        assert rate not in tried
        tried[rate] = whole[rate]
    return tried


@pytest.mark.parametrize("sweep, least", SWEEPS.items())
def test_most_models_keep_their_rate_at_half_of_the_images(sweep, least):
    """Replay of sweeps whose rates were all trained."""
    values: dict[str, dict[float, float]] = defaultdict(dict) | ONE_MORE
    for path in sorted((KEPT / sweep).glob("cells/*/record.json")):
        record = json.loads(path.read_text())
        value = record["horizons"][-1]["scores"][0]["value"]
        values.setdefault(record["cell"]["model"], {})[record["cell"]["recipe"]["lr"]] = value
    tried = {model: searched(whole) for model, whole in values.items()}
    kept = [model for model, part in tried.items() if chosen(part) == chosen(values[model])]
    assert len(values) == 11 and len(kept) >= least, kept
    assert 2 * sum(map(len, tried.values())) <= sum(map(len, values.values()))
    assert all(2 * len(part) <= len(values[model]) for model, part in tried.items())


@hypothesis.example(peak=7, steps=[0.0625] * 4 + [0.015625, 0.00390625, 0.00390625, 0.0625, 0.0625])  # flat above
@hypothesis.given(
    peak=strategies.integers(0, 9), steps=strategies.lists(strategies.floats(0.001, 0.1), min_size=9, max_size=9)
)
def test_a_single_peak_near_the_middle_is_found(peak, steps):
    """Ten rates, of which five are trained: accuracy falls by some step on each side of the peak, by ever larger ones,
    as near any smooth peak."""
    below, above = sorted(steps[:peak]), sorted(steps[peak:])
    fall = [-sum(below[: peak - place]) for place in range(peak)] + [-sum(above[:n]) for n in range(10 - peak)]
    whole = {float(place): 0.9 + value for place, value in enumerate(fall)}
    tried = searched(whole)
    assert len(tried) <= 5 and 5.0 in tried
    ends = min(tried), max(tried)
    assert list(tried) != [] and sorted(tried) == [float(p) for p in range(int(ends[0]), int(ends[1]) + 1)]
    if len(tried) < 5 and chosen(whole) <= 5.0:  # not cut off
        if max(tried.values()) == max(whole.values()):
            assert chosen(tried) == chosen(whole)
        else:  # the best rate was not tried
            assert chosen(tried) <= chosen(whole)


def test_training_that_diverges_sends_it_down():
    bad = -math.inf
    whole = {1e-3: 0.5, 2e-3: 0.6, 4e-3: 0.55, 8e-3: bad, 1.6e-2: bad, 3.2e-2: bad}
    assert list(searched(whole)) == [8e-3, 4e-3, 2e-3] and chosen(searched(whole)) == 2e-3


def test_rounds_follow_from_records(tmp_path, monkeypatch):
    cells = cells_of("rates", models=("ViT-pico/14",), seeds=2)
    first = halving.next_round(cells, Study(tmp_path))
    assert first.waiting == 1 and first.at_once == 2
    assert [(c.recipe.lr, c.seed) for c in first.cells] == [(4e-3, 0), (4e-3, 1)]
    done = {(4e-3, 0): 0.5, (4e-3, 1): 0.6, (8e-3, 0): 0.9}  # one of the second round

    class Known(CellDirectory):
        def __init__(self, cell: Cell) -> None:
            super().__init__(tmp_path / "cells" / cell.readable_name)
            self.value = done.get((cell.recipe.lr, cell.seed))

        def read_outcome(self) -> Outcome | None:
            return None if self.value is None else Outcome(status="complete", reason=None)

        def read_record(self):
            score = Score(
                task="upstream",
                data="glyphs",
                metric="accuracy",
                value=self.value,
                stderr=None,
                num_test=1,
                num_classes=2,
                chance=0.5,
            )
            horizon = type("H", (), {"scores": (score,)})()
            return type("R", (), {"status": "complete", "horizons": (horizon,)})()

    monkeypatch.setattr(Study, "cell", lambda self, cell: Known(cell))
    second = halving.next_round(cells, Study(tmp_path))
    assert second.waiting == 1 and [c.recipe.lr for c in second.cells] == [4e-3, 4e-3, 8e-3, 8e-3]
    done |= {(8e-3, 1): 0.1}  # the mean, 0.5, is below 0.55
    third = halving.next_round(cells, Study(tmp_path))
    assert third.waiting == 1 and [c.recipe.lr for c in third.cells][-2:] == [2e-3, 2e-3]
    done |= {(2e-3, 0): 0.5, (2e-3, 1): 0.5}
    last = halving.next_round(cells, Study(tmp_path))
    assert last.waiting == 0 and set(last.cells) == set(third.cells) <= set(cells)  # the very cells of the whole sweep


def test_results_that_a_run_would_not_take_are_not_looked_at_and_a_plan_moves_none(tmp_path, monkeypatch):
    cells = cells_of("rates", models=("ViT-pico/14",), seeds=1)
    (first,) = halving.next_round(cells, Study(tmp_path)).cells
    study = finish(tmp_path, [first])
    assert len(halving.next_round(cells, study).cells) == 2
    there = study.cell(first).basis().code
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "of_model", lambda name: replace(there, digest="0" * 16))
        assert halving.next_round(cells, study).cells == (first,)
        assert len(halving.next_round(cells, study, other_code=True).cells) == 2
    record = study.cell(first).record
    record.write_bytes(record.read_bytes()[:-9])
    assert halving.next_round(cells, study).cells == (first,) and record.exists()


def test_only_sweeps_can_be_halved():
    with pytest.raises(UserError, match="sweeps"):
        halving.next_round([Cell(model="ViT-pico/14", data="glyphs", horizons=(64,))], Study(Path("nowhere")))
    few = [cell for cell in cells_of("rates", models=("ViT-pico/14",)) if cell.recipe.lr < 1e-2]
    with pytest.raises(UserError):
        halving.next_round(few, Study(Path("nowhere")))
