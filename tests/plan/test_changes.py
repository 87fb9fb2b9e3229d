"""A ladder's cells: arms that are tuned alike, rungs that are paired, equal compute, images or time."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from bench.commands import ladder as verb
from bench.core import cli
from bench.core.errors import UserError
from bench.plan import forecast_at, ladder_design
from bench.plan.expand import expand
from bench.plan.passes import changes
from bench.plan.sizes import DataSizes
from bench.plan.tuning import FIRST, MOST, Trials, choice, further
from bench.study import suite as suites
from bench.study.cell import Cell
from bench.study.ladder import BASELINE, LadderPlace, place_of
from bench.study.options import StudyOptions

BEST = {"adamw": 4e-3, "timm:muon": 2e-1}  # rates
SPEED = {"adamw": 100.0, "timm:muon": 50.0}  # images a second


def record(cell: Cell) -> Any:
    """A finished run whose accuracy is a parabola over the logarithm of the rate, about the best of its optimizer."""
    name = cell.recipe.optimizer
    accuracy = 0.8 - 0.02 * math.log(cell.recipe.lr / BEST[name]) ** 2
    score = SimpleNamespace(task="upstream", metric="accuracy", value=accuracy)
    horizon = SimpleNamespace(scores=(score,), images_per_second=SPEED[name])
    return SimpleNamespace(status="complete", horizons=(horizon,))


def cells(*change: str, records: bool = True, monkeypatch: Any = None, **options: Any) -> tuple[Cell, ...]:
    if records:
        monkeypatch.setattr(changes, "_record", lambda cell, request: record(cell))
    given = {"suite": "ladder", "scale": "cpu", "change": change, "seeds": 2, "horizons": ("8000", "16000", "32000")}
    asked = StudyOptions.of(given | options)
    return expand(suites.load("ladder"), asked.what, asked.overrides, DataSizes(), store=Path()).cells


def on(made: tuple[Cell, ...], change: str, rung: int) -> list[Cell]:
    return [cell for cell in made if place_of(cell.axes) == LadderPlace(change=change, rung=rung)]


def test_rates_are_tuned_before_anything_else_is_trained(monkeypatch) -> None:
    monkeypatch.setattr(changes, "_record", lambda cell, request: None)
    made = cells("optimizer=timm:muon", records=False)
    assert len(made) == FIRST * 2 * 2 and all(cell.held_out and cell.axes == ("rates",) for cell in made)
    assert {cell.horizons for cell in made} == {(8000,), (32000,)}
    assert {cell.seed for cell in made}.isdisjoint({0, 1}), "no run is both tuned with and reported"


def test_every_arm_is_tuned_as_often_and_finds_its_best_rate(monkeypatch) -> None:
    made = cells("optimizer=timm:muon", monkeypatch=monkeypatch)
    tuning = [cell for cell in made if cell.held_out]
    counts = {(c.recipe.optimizer, c.horizons): 0 for c in tuning}
    for cell in tuning:
        counts[cell.recipe.optimizer, cell.horizons] += 1
    assert len(counts) == 4 and len(set(counts.values())) == 1
    for name, change in (("adamw", BASELINE), ("timm:muon", "optimizer=timm:muon")):
        for rung in range(3):
            for cell in on(made, change, rung):
                assert cell.recipe.optimizer == name and cell.recipe.lr == pytest.approx(BEST[name], rel=0.02)


def test_arms_are_paired_by_seed_and_nothing_but_the_change_differs(monkeypatch) -> None:
    made = cells("optimizer=timm:muon", monkeypatch=monkeypatch)
    for rung in range(3):
        pairs = zip(on(made, BASELINE, rung), on(made, "optimizer=timm:muon", rung), strict=True)
        for seed, (base, change) in enumerate(pairs):
            assert base.seed == change.seed == seed and not change.held_out
            alike = replace(change.recipe, optimizer="adamw", lr=base.recipe.lr)
            assert replace(change, recipe=alike) == base


@pytest.mark.parametrize("equal, images", [("flops", None), ("images", 8000), ("seconds", 4000)])
def test_what_is_equal(monkeypatch, equal: str, images: int | None) -> None:
    made = cells("optimizer=timm:muon", "patch=14", monkeypatch=monkeypatch, equal=equal)
    (first, _), (patched, _) = on(made, "optimizer=timm:muon", 0), on(made, "patch=14", 0)
    assert first.horizons == ((images or 8000),)
    if equal == "flops":
        spent, base = (cell.horizons[0] * changes._flops(cell) for cell in (patched, on(made, BASELINE, 0)[0]))
        assert spent == pytest.approx(base, rel=0.02) and patched.horizons[0] > 8000
        assert patched.model == "ViT-femto/14"


def test_several_sizes_make_rungs_in_order_of_compute(monkeypatch) -> None:
    made = cells(
        "loss=sigmoid", monkeypatch=monkeypatch, models=("ViT-atto/7", "ViT-femto/7"), horizons=("8000", "32000")
    )
    rungs = [on(made, BASELINE, rung)[0] for rung in range(4)]
    spent = [cell.horizons[0] * changes._flops(cell) for cell in rungs]
    assert spent == sorted(spent) and {cell.model for cell in rungs} == {"ViT-atto/7", "ViT-femto/7"}


@pytest.mark.parametrize(
    "change, said",
    [
        (("optimizer=adamw",), "changes nothing"),
        (("optimizer=timm:nothing",), "Unknown optimizer"),
        (("colour=red",), "Unknown field of a recipe"),
        (("ViT-colossal/7",), "Unknown model"),
        (("patch=x",), "Unknown model"),
    ],
)
def test_a_change_that_is_none_is_refused(monkeypatch, change: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        cells(*change, monkeypatch=monkeypatch)


def test_two_rungs_are_too_few_and_other_suites_compare_no_changes(monkeypatch) -> None:
    with pytest.raises(UserError, match="three rungs"):
        cells("loss=sigmoid", monkeypatch=monkeypatch, horizons=("8000", "16000"))
    with pytest.raises(UserError, match="compares no changes"):
        asked = StudyOptions.of({"suite": "smoke", "scale": "cpu", "change": ("loss=sigmoid",)})
        expand(suites.load("smoke"), asked.what, asked.overrides, DataSizes())


def test_trials_go_on_past_an_edge_for_all_and_end(monkeypatch) -> None:
    rising = Trials(rates=(1.0, 3.0, 9.0, 27.0), scores=(0.1, 0.2, 0.3, 0.4))
    inside = Trials(rates=(1.0, 3.0, 9.0, 27.0), scores=(0.1, 0.4, 0.3, None))
    more = further({"a": rising, "b": inside})
    assert more["a"].rates[-1] == 81.0 and len(more["b"].rates) == 5
    assert more["b"].rates[2] == pytest.approx(math.sqrt(27), rel=0.01)
    assert not further({"b": inside}), "the best lies inside"
    long = Trials(rates=tuple(3.0**k for k in range(MOST)), scores=tuple(0.01 * k for k in range(MOST)))
    assert not further({"a": long}) and choice(long) == long.rates[-1]


def test_the_choice_is_the_top_of_a_parabola() -> None:
    rates = (0.5, 1.1, 4.0, 9.0)
    scores = tuple(0.9 - (math.log(rate / 2.0)) ** 2 / 50 for rate in rates)
    assert choice(Trials(rates=rates, scores=scores)) == pytest.approx(2.0, rel=0.01)
    assert choice(Trials(rates=rates, scores=(0.1, 0.5, None, None))) == 1.1


def test_a_design_pays_for_what_it_needs_and_no_more() -> None:
    each = {"baseline": 1e-4, "change": 1e-4}
    usual = (16_000, 64_000, 256_000)
    rich, poor = (ladder_design.design(usual, each, limit=s, workers=2, batch=32) for s in (1e6, 60.0))
    assert rich.budgets == usual and rich.power >= 0.8 and rich.seconds < 1e6
    assert poor.seconds <= 60.0 and poor.budgets[-1] < usual[-1] and poor.seeds <= rich.seeds
    warm = ladder_design.design(usual, each, limit=1.0, workers=2, batch=32, shortest=2_560)
    assert warm.over and "more than was asked for" in ladder_design.words(warm) and not rich.over
    assert warm.budgets[0] == 2_560, "the warm-up is at most a quarter of the lowest budget"
    less = ladder_design.design(usual, each, limit=1e6, workers=2, batch=32, detect=4.0)
    assert less.seeds < rich.seeds, "a larger gain takes fewer seeds"


def test_a_design_is_kept_for_the_same_request_alone(tmp_path) -> None:
    made = ladder_design.design((16_000, 64_000, 256_000), {"a": 1e-4}, limit=60.0, workers=2, batch=32)
    key = {"budget": "20min", "detect": 2.0, "study": "suite = 'ladder'"}
    assert ladder_design.remembered(tmp_path, key) is None
    ladder_design.remember(tmp_path, key, made)
    assert ladder_design.remembered(tmp_path, key) == made
    assert ladder_design.remembered(tmp_path, key | {"budget": "30min"}) is None
    (tmp_path / ladder_design.FILE).write_text("{")
    assert ladder_design.remembered(tmp_path, key) is None, "a damaged one is made again"


@pytest.mark.parametrize(
    "text, read",
    [
        ("1e18", 1e18),
        ("ViT-B/16:300epochs", "ViT-B/16:300epochs"),
        ("ViT-S/16@384:1e8images", "ViT-S/16@384:1e8images"),
        ("90epochs", "90epochs"),
        ("ViT-B/16:pooling=mean:2 epochs", "ViT-B/16:pooling=mean:2 epochs"),
    ],
)
def test_a_place_of_a_forecast_is_read(text: str, read: float | str) -> None:
    assert cli.place(text) == read


@pytest.mark.parametrize("text", ["ViT-B/16", "ViT-B/16:300", "epochs", "0epochs", "-1", "ViT-B/16:manyepochs"])
def test_what_names_no_place_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        cli.place(text)


def test_a_network_and_epochs_are_counted_as_flops() -> None:
    """ViT-B/16 at 224 px has 17.6 GMACs (Dosovitskiy et al. 2021 and every library); training takes three times them,
    of two FLOPs each. The paper's convention counts about as much."""
    cell = Cell(model="ViT-femto/7", data="fashion-mnist", num_images=1_000, horizons=(8_000,), seed=0)
    total, said = forecast_at.counted("ViT-B/16:300epochs", (cell,), DataSizes())
    assert total == pytest.approx(300 * 1_000 * 6 * 17.6e9, rel=0.1) and "ViT-B/16 at 224 px" in said
    more, _ = forecast_at.counted("ViT-B/16@384:1000images", (cell,), DataSizes())
    assert more == pytest.approx(1_000 * 6 * 55.5e9, rel=0.1)
    own, said = forecast_at.counted("2epochs", (cell, replace(cell, model="ViT-atto/7")), DataSizes())
    assert own == pytest.approx(2_000 * changes._flops(cell)) and "ViT-femto/7 at 28 px" in said, "the largest"
    with pytest.raises(UserError, match="Unknown model"):
        forecast_at.counted("ViT-colossal/16:3epochs", (cell,), DataSizes())
    with pytest.raises(UserError, match="no number of pixels"):
        forecast_at.counted("ViT-B/16@large:3epochs", (cell,), DataSizes())


def test_a_design_counts_an_arm_by_its_own_images(monkeypatch) -> None:
    """A larger network sees fewer images at equal compute: what it costs is said per image of the baseline."""
    monkeypatch.setattr(changes, "_record", lambda cell, request: None)
    made = cells("ViT-pico/7", records=False)
    assert made[0].model == "ViT-femto/7", "the baseline's cells come first"
    planned = [SimpleNamespace(cell=cell, images=cell.horizons[-1], seconds=1e-3 * cell.horizons[-1]) for cell in made]
    speeds = verb._speeds(SimpleNamespace(cells=planned), StudyOptions.of({"change": ("ViT-pico/7",)}))
    fewer = sum(c.horizons[-1] for c in made if c.model == "ViT-pico/7") / sum(
        c.horizons[-1] for c in made if c.model == "ViT-femto/7"
    )
    assert fewer < 0.5 and list(speeds.values()) == pytest.approx([1e-3, 1e-3 * fewer])
    alone = [one for one in planned if one.cell.model == "ViT-femto/7"]
    speeds = verb._speeds(SimpleNamespace(cells=alone), StudyOptions.of({"change": ("loss=sigmoid",)}))
    assert list(speeds.values()) == pytest.approx([1e-3, 1e-3]), "a change of the recipe costs as much"


def test_a_budget_is_said_once_and_not_beside_what_it_chooses() -> None:
    assert verb.budget_of(None, 20) == "20min" and verb.budget_of("2gpuh", None) == "2gpuh"
    assert verb.budget_of(None, None) is None
    with pytest.raises(UserError, match="both given"):
        verb.budget_of("2gpuh", 20)
    asked = StudyOptions.of({"suite": "ladder", "change": ("loss=sigmoid",), "seeds": 3})
    with pytest.raises(UserError, match="choose budgets and seeds"):
        verb.designed(asked, Console(), budget="20min")


def test_one_rung_alone_can_get_more_seeds(monkeypatch) -> None:
    monkeypatch.setattr(changes, "_record", lambda cell, request: record(cell))
    asked = StudyOptions.of(
        {
            "suite": "ladder",
            "scale": "cpu",
            "change": ("weight_decay=0.3",),
            "seeds": 5,
            "horizons": ("8000", "16000", "32000"),
        }
    )
    only = [f"axis={LadderPlace(change=arm, rung=2).axis}" for arm in (BASELINE, "weight_decay=0.3")]
    monkeypatch.setitem(BEST, "adamw", 4e-3)
    made = expand(suites.load("ladder"), asked.what, asked.overrides, DataSizes(), only=only, store=Path()).chosen
    assert len(made) == 10 and {place_of(cell.axes).rung for cell in made} == {2}
