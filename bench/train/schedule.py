"""Learning rates and segments of training: a trunk at constant learning rate, and a cool-down branch for each compute
budget.

The schedule "branch" trains the trunk once for all budgets, so that K budgets cost far less than K runs (Hägele et al.
2024, with the 1 − √ shape that they recommend). "separate" trains every budget from the start. In either, warm-up comes
first, then the trunk's own decay if any, then the cool-down. A cool-down of 1 starts right after the warm-up, which
gives the linear and cosine schedules of the paper (as in big_vision/utils.py, `create_learning_rate_schedule`). A
linear or cosine decay of the trunk without a cool-down gives one training that is evaluated at every horizon on its
way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bench.core.errors import UserError
from bench.study.cell import Recipe
from bench.study.registry import load
from bench.train.schedules.schedule import Schedule

SHAPES = {
    "1-sqrt": lambda x: 1.0 - math.sqrt(x),
    "linear": lambda x: 1.0 - x,
    "cosine": lambda x: 0.5 * (1.0 + math.cos(math.pi * x)),
}

WARMUP_PART = 4  # a warm-up may take at most 1 / WARMUP_PART of the shortest budget


@dataclass(frozen=True)
class Segment:
    """A part of a cell's training: steps from `start` to before `end`, counted from the start of training.

    Attributes:
        origin: what it starts from: "init", the initial weights, or "trunk", the state that the trunk has reached.
        start: first step.
        end: the step after its last one.
        horizon: the compute budget in images at which it ends and the model is evaluated; None for a part of the trunk.
    """

    origin: str  # "init" | "trunk"
    start: int
    end: int
    horizon: int | None = None

    @property
    def is_branch(self) -> bool:
        return self.horizon is not None


def schedule_of(recipe: Recipe) -> Schedule:
    """Return the schedule that a recipe names (bench/train/schedules/)."""
    found: Schedule = load("schedule", recipe.schedule)
    return found


def shares_trunk(recipe: Recipe) -> bool:
    """Return whether a cell's budgets share a trunk, instead of being trained separately."""
    return schedule_of(recipe).shares_trunk


def total_steps(images: int, batch: int) -> int:
    """Return the steps of a horizon of this many images: rounded to the nearest whole batch, and at least one."""
    return max(1, round(images / batch))


def warmup_steps(recipe: Recipe) -> int:
    """Return the steps of warm-up. They depend on the recipe only: cells with the same recipe warm up alike, whatever
    their budgets."""
    return round(recipe.warmup_images / recipe.batch)


def longest_warmup(horizons: tuple[int, ...], batch: int) -> int | None:
    """Return the steps of the longest warm-up that leaves every budget enough time at the full learning rate: a quarter
    of the shortest budget. None for a cell that trains nothing."""
    trained = [h for h in horizons if h > 0]
    return total_steps(min(trained), batch) // WARMUP_PART if trained else None


def segments(recipe: Recipe, horizons: tuple[int, ...]) -> tuple[Segment, ...]:
    """Return the segments of a cell's training, in order. Horizon 0 (the untrained network) needs none.

    Raises:
        UserError: a reciprocal-root decay has no timescale; a decay to zero ends before the last horizon; or a horizon
            ends before its warm-up.
    """
    warmup, how = warmup_steps(recipe), schedule_of(recipe)
    if recipe.decay == "rsqrt" and not (recipe.timescale_images or warmup):
        raise UserError("A reciprocal root needs a timescale or a warm-up.", "Set timescale_images, e.g. 10000.")
    if recipe.decay in SHAPES and recipe.timescale_images < horizons[-1]:
        raise UserError(
            f"A {recipe.decay} decay over {recipe.timescale_images:,} images ends before a budget of {horizons[-1]:,}.",
            f"Set timescale_images={horizons[-1]}.",
        )
    work: list[Segment] = []
    position = 0
    for horizon in (h for h in horizons if h > 0):
        end = total_steps(horizon, recipe.batch)
        if end < warmup:
            raise UserError(
                f"A budget of {horizon:,} images ({end:,} steps) ends before its warm-up of {warmup:,} steps.",
                "Shorten the warm-up (--set warmup=0 leaves it out), or give a longer budget.",
            )
        branch_at = warmup if how.factor else max(warmup, end - round(end * recipe.cooldown))
        if not how.shares_trunk:
            work.append(Segment("init", 0, branch_at))
        elif branch_at > position or not work:
            work.append(Segment("trunk" if work else "init", position, branch_at))
            position = branch_at
        work.append(Segment("trunk", branch_at, end, horizon))
    return tuple(work)


def learning_rate(recipe: Recipe, *, step: int, warmup: int, segment: Segment) -> float:
    """Return the learning rate of one step. `step` counts from the start of training, not of the segment."""
    rate = recipe.lr * min(1.0, (step + 1) / warmup) if warmup else recipe.lr
    if (factor := schedule_of(recipe).factor) is not None:
        return rate * factor(recipe, step - segment.start, segment.end - segment.start) if segment.is_branch else rate
    if recipe.decay == "rsqrt" and step > warmup:
        timescale = recipe.timescale_images / recipe.batch or warmup
        rate /= math.sqrt(1.0 + (step - warmup) / timescale)
    elif recipe.decay in SHAPES and step > warmup:
        rate *= SHAPES[recipe.decay]((step - warmup) / (total_steps(recipe.timescale_images, recipe.batch) - warmup))
    if segment.is_branch and segment.end > segment.start:
        rate *= SHAPES[recipe.cooldown_shape]((step - segment.start) / (segment.end - segment.start))
    return rate


def images_trained(recipe: Recipe, horizons: tuple[int, ...]) -> int:
    """Return the number of images seen in training a cell; the shared trunk counts once."""
    return sum(s.end - s.start for s in segments(recipe, horizons)) * recipe.batch
