"""timm's schedules of the learning rate, from its peak at the end of the warm-up to the end of each budget:
timm:cosine, timm:poly and timm:tanh, which end at zero, and timm:step (a tenth after every third of the steps). Every
budget is trained on its own."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from bench.study.cell import Recipe
from bench.train.parts import suffix
from bench.train.schedules.schedule import Schedule

if TYPE_CHECKING:
    from timm.scheduler.scheduler import Scheduler


def names() -> tuple[str, ...]:
    """Return the names of timm's schedules that are functions of the step alone."""
    return ("cosine", "poly", "step", "tanh")


@lru_cache(maxsize=64)
def _scheduler(name: str, steps: int) -> Scheduler:
    """Return timm's scheduler of this name ("cosine", …), for a peak learning rate of 1 and a number of steps."""
    import torch
    from timm import scheduler

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    if name == "step":
        return scheduler.StepLRScheduler(optimizer, decay_t=-(-steps // 3), decay_rate=0.1, t_in_epochs=False)
    kinds = {
        "cosine": scheduler.CosineLRScheduler,
        "poly": scheduler.PolyLRScheduler,
        "tanh": scheduler.TanhLRScheduler,
    }
    return kinds[name](optimizer, t_initial=steps, t_in_epochs=False)


def factor(recipe: Recipe, done: int, steps: int) -> float:
    """Return the learning rate of timm's schedule as a multiple of its peak.

    Args:
        done: steps done since the warm-up.
        steps: steps from the end of the warm-up to the end of the budget.
    """
    (value,) = _scheduler(suffix(recipe.schedule), steps)._get_lr(done)
    return float(value)


SCHEDULE = Schedule(names=names, factor=factor)
