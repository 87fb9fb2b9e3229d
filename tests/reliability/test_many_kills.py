"""One study, killed at every named point again and again: it ends with the same weights and scores, to the last bit."""

import signal

import pytest

from bench.store import faults
from bench.store.study import Study, state_of
from bench.study.cell import Cell, TaskSpec
from bench.suites._recipes import recipe_for
from tests.reliability._attempt import attempt
from tests.reliability.storms import leftovers, outcome

HORIZONS = (0, 160, 320, 640, 960)
PROBE = TaskSpec(task="fewshot", data="fashion-mnist", options=(("shots", (1,)), ("draws", 2), ("test_limit", 100)))
CELL = Cell(
    model="ViT-pico/14",
    data="fashion-mnist",
    num_images=100,
    horizons=HORIZONS,
    seed=1,
    tasks=(PROBE,),
    recipe=recipe_for("ViT-pico/14", batch=32, warmup_images=64, average=0.9),
)

AT_EVALUATION = ("after-evaluation", "checkpoint-before-rename", "checkpoint-after-rename")
KILLS = (
    *AT_EVALUATION,  # of the untrained network
    *(("training-step", "training-step:4", *AT_EVALUATION) * (len(HORIZONS) - 1)),
    "record-before-replace",
    "record-after-replace",
    *(f"during-report:{number}" for number in range(1, 7)),
)


@pytest.mark.gate
def test_thirty_kills_at_every_named_point_change_nothing(tmp_path):
    assert len(KILLS) >= 30 and {kill.partition(":")[0] for kill in KILLS} == set(faults.POINTS)
    whole, killed = tmp_path / "whole" / "study", tmp_path / "killed" / "study"
    for store in (whole, killed):
        store.parent.mkdir()
    assert attempt(whole, [CELL]) == 0
    done = 0.0
    for number, kill in enumerate(KILLS):
        assert attempt(killed, [CELL], kill) == -signal.SIGKILL, f"kill {number}, {kill}, did not happen"
        state, fraction, *_ = state_of(Study(killed).cell(CELL))  # whatever was killed can be looked at
        assert state != "damaged" and fraction >= done
        done = fraction
    assert attempt(killed, [CELL]) == 0
    assert outcome(killed) == outcome(whole) != {}
    assert (killed / "tables/scores.csv").read_bytes() == (whole / "tables/scores.csv").read_bytes()
    assert len(Study(killed).cell(CELL).attempts()) == KILLS.index("record-after-replace") + 1
    assert leftovers(killed) == []
