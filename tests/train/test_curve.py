"""The learning curve: its points are the losses of the run, whatever interrupted it."""

from __future__ import annotations

import itertools

import pytest
import torch

from bench.core.errors import Interrupted
from bench.core.spec import Recipe
from bench.train.loss_curve import MAX_POINTS, LossCurve
from bench.train.schedule import segments
from tests.train.test_loop import trainer

RECIPE = Recipe(batch=16, lr=1e-2, warmup_images=64)


def test_points_are_means_of_the_losses_between_them(tmp_path):
    t = trainer(tmp_path, recipe=RECIPE)
    seen = []
    step = t.train_step
    t.train_step = lambda *a, **k: seen.append(loss := step(*a, **k)) or loss
    t.train_step.micro_batch = 16
    t.drive()
    points = t.curve.points()
    assert len(seen) == t.total_work and len(points) <= MAX_POINTS
    for segment, horizon in zip(t.segments, (None, 320, None, 640, None, 1280), strict=True):
        mine = [p for p in points if p["horizon"] == horizon and segment.start * 16 < p["images"] <= segment.end * 16]
        edges = [segment.start, *(p["images"] // 16 for p in mine)]
        for (first, last), point in zip(itertools.pairwise(edges), mine, strict=True):
            losses = [seen.pop(0).item() for _ in range(last - first)]
            assert point["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-12)
    assert not seen


def test_a_stopped_run_has_the_same_curve_to_the_bit(tmp_path):
    whole = trainer(tmp_path / "whole", recipe=RECIPE)
    whole.drive()
    for _ in range(100):
        steps = iter(range(13))
        part = trainer(tmp_path / "parts", recipe=RECIPE, stop=lambda s=steps: next(s, None) is None)
        part.resume()
        try:
            part.drive()
            break
        except Interrupted:
            continue
    assert part.progress.work > 50
    assert part.curve.points() == whole.curve.points()


@pytest.mark.parametrize("kind", ["branch", "separate"])
@pytest.mark.parametrize("images", [320, 3_000, 100_000])
def test_few_points_each_belonging_to_what_it_was_trained_for(kind, images):
    horizons = (images, 2 * images, 4 * images)
    work = segments(Recipe(batch=16, schedule=kind, warmup_images=64), horizons)
    curve = LossCurve(work, batch=16, device="cpu")
    for number, segment in enumerate(work):
        for step in range(segment.start, segment.end):
            curve.add(torch.tensor(1.0), segment=number, step=step)
    points = curve.points()
    assert len(points) <= MAX_POINTS
    assert {p["horizon"] for p in points} - {None} == set(horizons)
    assert (None in {p["horizon"] for p in points}) == (kind == "branch")
    assert {p["loss"] for p in points} == {1.0}
    for horizon in horizons:
        last = [p["images"] for p in points if p["horizon"] == horizon][-1]
        assert abs(last - horizon) <= 15  # the whole number of batches that a horizon is rounded to


def test_a_loss_that_is_not_finite_ends_the_curve():
    work = segments(Recipe(batch=1, cooldown=0.0, warmup_images=0), (10,))
    curve = LossCurve(work, batch=1, device="cpu")
    for step, loss in enumerate((2.0, 1.0, float("nan"), 1.0)):
        curve.add(torch.tensor(loss), segment=0, step=step)
    assert [p["loss"] for p in curve.points()] == [2.0, 1.0]
