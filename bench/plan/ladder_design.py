"""Choose budgets and seeds of the smallest ladder that can answer, by simulation with the noise of known pairs of runs.
A ladder trains a baseline, and the same with a change, at several budgets (its rungs), to find out whether the gain
lasts."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.core import files
from bench.core.formatting import duration
from bench.plan.tuning import FIRST
from bench.stats.ladder import MAX_SEEDS, POWER, Truth, power, seeds_needed

PAIR = 0.9
"""Standard deviation of the difference between two runs, in percentage points: the root mean square over the networks
and budgets of results/reference/scaling-cpu."""
DETECT = 2.0  # percentage points: the gain that a ladder has to find, unless something else is asked for
FILE = "ladder_design.json"
FEWEST, SMALLEST = 3, 1 / 16  # least number of seeds; least factor on the usual budgets


@dataclass(frozen=True, kw_only=True)
class Design:
    """The design of a ladder, which compares a change with its baseline at several budgets, the rungs.

    Attributes:
        budgets: images that the baseline is trained on at each rung, ascending.
        seeds: number of seeds at every rung.
        seconds: expected seconds, on all workers together, with the runs that tune learning rates.
        power: fraction of simulated ladders that reach a verdict if the gain is the one that was asked for.
        over: whether it takes longer than was allowed, because every smaller ladder has fewer than three seeds or no
            room for the warm-up.
    """

    budgets: tuple[int, ...]
    seeds: int
    seconds: float
    power: float
    over: bool = False


def seconds(budgets: Sequence[int], seeds: int, each: Mapping[str, float], *, workers: int) -> float:
    """Return the seconds that a ladder takes, with the runs that tune learning rates.

    Args:
        budgets: images that the baseline is trained on at each rung, ascending.
        seeds: number of seeds at every rung.
        each: baseline or change -> seconds of training per image that the baseline sees.
        workers: number of runs at a time.
    """
    tuning, rungs = FIRST * (budgets[0] + budgets[-1]), seeds * sum(budgets)
    return sum(each.values()) * (tuning + rungs) / workers


def design(
    budgets: Sequence[int],
    each: Mapping[str, float],
    *,
    limit: float,
    workers: int,
    batch: int,
    detect: float = DETECT,
    shortest: int = 0,
) -> Design:
    """Design a ladder. It has the fewest seeds that find a gain of `detect` points with probability `POWER`, at the
    usual budgets or, if these take too long, at smaller ones. If there is still too little time, it has as many seeds
    as the time allows.

    Args:
        budgets: the usual budgets: images that the baseline is trained on at each rung, ascending.
        each: baseline or change -> seconds of training per image that the baseline sees.
        limit: seconds that the ladder may take.
        workers: number of runs at a time.
        batch: images per step; smaller budgets are rounded up to whole batches.
        detect: the gain to find, in percentage points.
        shortest: images that the lowest budget has at least, to leave room for the warm-up.
    """
    truth, x_R = Truth(gain=detect, pair=PAIR), np.log2(budgets)
    wanted = seeds_needed(truth, x_R) or MAX_SEEDS
    scale, made = 1.0, tuple(budgets)
    least = max(SMALLEST, shortest / budgets[0])
    while seconds(made, wanted, each, workers=workers) > limit and scale > least:
        scale = max(scale / 2, least)
        made = tuple(math.ceil(images * scale / batch) * batch for images in budgets)
    seeds = wanted
    while seeds > FEWEST and seconds(made, seeds, each, workers=workers) > limit:
        seeds -= 1
    found = power(truth, x_R, seeds=seeds)
    takes = seconds(made, seeds, each, workers=workers)
    return Design(budgets=made, seeds=seeds, seconds=takes, power=found, over=takes > limit)


def remembered(store: Path, key: Mapping[str, Any]) -> Design | None:
    """Return the design that was stored in a ladder's folder for the same request; None if there is none. So a ladder
    that is continued keeps its budgets and seeds, although speeds are measured anew.

    Args:
        store: the ladder's folder.
        key: the request, as JSON types.
    """
    try:
        found = json.loads((store / FILE).read_bytes())
        if found["asked"] != key:
            return None
        budgets = tuple(int(images) for images in found["budgets"])
        rest = {name: found[name] for name in ("seeds", "seconds", "power", "over")}
        return Design(budgets=budgets, **rest)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(store: Path, key: Mapping[str, Any], made: Design) -> None:
    """Store a design in its ladder's folder, `store`, with the request that it was made for, `key`."""
    files.write_json(store / FILE, {"asked": dict(key), **dataclasses.asdict(made)})


def words(made: Design, *, detect: float = DETECT) -> str:
    """Return a sentence on the design of a ladder, for the console. `detect`: the gain to find, in percentage
    points."""
    enough = "" if made.power >= POWER else "; more time would find more"
    budgets = ", ".join(f"{images:,}" for images in made.budgets)
    return (
        f"Design: budgets of {budgets} images, {made.seeds} seeds: a gain of {detect:g} points gets a verdict in "
        f"{made.power:.0%} of such ladders{enough}; {duration(made.seconds)}, as speeds were measured"
        + (", more than was asked for: it is the smallest." if made.over else ".")
    )
