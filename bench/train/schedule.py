"""Learning rates and segments of training: a trunk, which budgets share, and for each budget a branch, the cool-down of
the learning rate to zero.

The schedule "branch" trains the trunk once for all budgets, so that K budgets cost far less than K runs (Hägele et al.
2024, with the 1 − √ shape that they recommend). "separate" trains every budget from the start. In either, warm-up comes
first, then the trunk's own decay (by default none: a constant learning rate), then the cool-down. A cool-down of 1
starts right after the warm-up, which gives the linear and cosine schedules of the ViT paper (as in big_vision/utils.py,
`create_learning_rate_schedule`). A linear or cosine decay of the trunk without a cool-down gives one training that is
evaluated at every budget on its way.
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
    """A part of the training of a cell (one model, for several budgets): a part of the trunk, which budgets share, or a
    branch, the cool-down to one budget.

    Attributes:
        origin: what it starts from: "init", the initial weights, or "trunk", the state that the trunk has reached.
        start: number of its first step, counted from the start of training.
        end: number of the step after its last one.
        horizon: the budget in images at which a branch ends and the model is evaluated; None for a part of the trunk.
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
    """Return whether the budgets of a cell (training run) share one training (the trunk), from which each cools down,
    instead of being trained separately."""
    return schedule_of(recipe).shares_trunk


def total_steps(images: int, batch: int) -> int:
    """Return the number of steps of a budget of `images` images: rounded to the nearest whole batch, and at least
    one."""
    return max(1, round(images / batch))


def warmup_steps(recipe: Recipe) -> int:
    """Return the number of steps of warm-up. It depends on the recipe only: training runs with the same recipe warm up
    alike, whatever their budgets."""
    return round(recipe.warmup_images / recipe.batch)


def longest_warmup(horizons: tuple[int, ...], batch: int) -> int | None:
    """Return the number of steps of the longest warm-up that leaves every budget enough time at the full learning rate:
    a quarter of the shortest budget. None if nothing is trained.

    Args:
        horizons: budgets in images; 0 is the untrained network.
        batch: images per step.
    """
    trained = [h for h in horizons if h > 0]
    return total_steps(min(trained), batch) // WARMUP_PART if trained else None


def segments(recipe: Recipe, horizons: tuple[int, ...]) -> tuple[Segment, ...]:
    """Return the segments of the training of a cell (one model, for several budgets), in order: parts of the trunk,
    which budgets share, and the cool-down to each budget.

    Args:
        horizons: the budgets in images, ascending; 0, the untrained network, needs no segment.

    Raises:
        UserError: a reciprocal-root decay has no timescale; a decay to zero ends before the last budget; or a budget
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
    """Return the learning rate of one step.

    Args:
        step: number of the step, counted from the start of training, not of the segment.
        warmup: number of steps of warm-up.
        segment: the segment of training that the step belongs to.
    """
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
    """Return the number of images that pass through training for all budgets of a cell (training run); a part of the
    training that budgets share counts once.

    Args:
        horizons: the budgets in images.
    """
    return sum(s.end - s.start for s in segments(recipe, horizons)) * recipe.batch
