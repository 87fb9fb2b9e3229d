"""What stands in short: nothing that holds for the headline tasks alone is said of all, and no refusal without its
reason; and remarks on what a study was never meant to show are left out."""

from __future__ import annotations

from typing import Any

import pytest

from bench.analysis import validity as checks
from bench.report.finding import Finding
from bench.report.summary import AHEAD, summary
from tests.analysis._records import World
from tests.analysis._study import read

PIXELS = "Do trained networks beat raw pixels on the {} tasks (a, b)?"


def about(question: str, subject: str, verdict: Any, answer: str = "+1.0 points.", *, main: bool = True) -> Finding:
    return Finding(question=question, subject=subject, verdict=verdict, answer=answer, main=main)


def test_what_far_tasks_contradict_is_not_said_of_all() -> None:
    near = [about(PIXELS.format("headline"), name, "yes") for name in ("ViT", "ResNet")]
    far = [about(PIXELS.format("far"), "ViT", "no", main=False),
           about(PIXELS.format("far"), "ResNet", "cannot tell", main=False)]  # fmt: skip
    (text,) = summary([*near, *far])
    assert "better for ViT and ResNet on the headline tasks" in text
    assert "on the far tasks worse for ViT; cannot tell for ResNet" in text
    (alike,) = summary([*near, *(about(PIXELS.format("far"), name, "yes", main=False) for name in ("ViT", "ResNet"))])
    assert "on the headline and the far tasks" in alike and "worse" not in alike
    (alone,) = summary(near)
    assert "tasks" not in alone


def test_cannot_tell_comes_with_its_reason() -> None:
    (text,) = summary([about(AHEAD, "ViT or ResNet", "cannot tell", "Their ranges hardly overlap, if at all.")])
    assert "ViT or ResNet (their ranges hardly overlap, if at all)" in text
    pairs = [about(AHEAD, pair, "cannot tell", "The difference is within its interval: +3.9 points [-0.9, +8.8].")
             for pair in ("ViT or Hybrid", "ViT or ResNet")]  # fmt: skip
    assert "any two families (the difference is within its interval)" in summary(pairs)[0]


def records(**recipe: Any) -> list[dict[str, Any]]:
    world = World(seed=1)
    world.sizes = (30_000,)
    made = world.records()
    for record in made:
        record["cell"]["recipe"] |= recipe
    return made


def said(made: list[dict[str, Any]], name: str) -> list[str]:
    return [check.text for check in checks.run(read(made)) if check.name == name]


def test_recipes_that_differ_alike_in_every_family_are_no_difference_between_families() -> None:
    made = records(cooldown=0.2, lr=0.004)
    assert said(made, "recipes") == []
    for record in made:
        if record["cell"]["seed"] == 0:
            record["cell"]["recipe"]["cooldown"] = 1.0
    (alike,) = said(made, "recipes")
    assert "within every family: cooldown (0.2, 1.0)" in alike and "Part of a difference" not in alike
    for record in made:
        if record["model"]["family"] == "ResNet":
            record["cell"]["recipe"]["lr"] = 0.001
    (both,) = said(made, "recipes")
    assert "between families: learning rate" in both and "ResNet 0.001" in both and "within every family" in both


@pytest.mark.parametrize("budgets, warned", [(1, False), (2, True)])
def test_no_trend_is_missed_where_one_budget_was_meant(budgets: int, warned: bool) -> None:
    made = [r for r in records() if r["model"]["family"] == "ViT" and r["cell"]["model"] == "ViT-mini/7"]
    for record in made:
        trained = [h for h in record["horizons"] if h["images_seen"] > 0]
        record["horizons"] = trained[:budgets]
    assert made and bool(said(made, "narrow compute")) is warned
