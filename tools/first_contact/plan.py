"""What first contact with a GPU does, in the order of its value; and what was expected of it beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
Line = dict[str, Any]
MODE = "reduce-overhead"  # what races: blocks compiled with all that was done for speed, and recorded as CUDA graphs

RACES = {"ViT-S/16": (224, 256), "R50x1": (224, 128), "ViT-B/16": (224, 128), "R50+ViT-B/16": (224, 64)}
MORE_RACES = {"ViT-L/16": (224, 64), "ViT-Ti/16": (224, 512)}
SMALL_RACES = {"ViT-Ti/16": (32, 2)}
"""Model -> (pixels per side, images of a batch); the last are those of a rehearsal."""
SHARED = {"ViT-Ti/8": (64, 512), "ViT-nano/7": (28, 64)}
SMALL_SHARED = {"ViT-pico/14": (28, 16)}
SHARES = (1, 2, 4)  # processes on one GPU
CLASSES = 1000
WINDOWS, WINDOW_SECONDS = 8, 0.6
FEW_STEPS = 10  # of two trainings that are compared
LOSSES = f"{FEW_STEPS} losses apart from timm's, over the first"
STUDY = {  # the smallest part of the main study that is one
    "gpu": ["--models", "ViT-Ti/8,R26x1-s2", "--sizes", "1000,3000", "--horizons", "51200,102400"],
    "cpu": ["--models", "ViT-pico/14", "--sizes", "300,600", "--horizons", "640,1280"],
}
WARMUP = {"gpu": "5120", "cpu": "128"}
RATES = {"ViT-B/16": (224, 128), "R50x1": (224, 64)}
SMALL_RATES = {"ViT-Ti/16": (32, 2)}
TABLE3_STEPS = 40  # at Table 3's rate, after half as many of warm-up
NAMED, SMALL_NAMED = {"timm:convnext_tiny": (224, 64)}, {"timm:test_vit": (160, 2)}
"""A network of timm's by its name, as a user asks for one."""

EXPECTED = {
    "ViT-S/16": ((8_800, 10_500), (7_600, 9_000), (11_500, 13_000)),
    "ViT-B/16": ((3_600, 4_100), (3_200, 3_700), (4_400, 4_800)),
    "ViT-L/16": ((1_080, 1_250), (1_000, 1_150), (1_350, 1_350)),
    "R50x1": ((2_000, 3_000), (1_800, 2_500), (3_500, 3_500)),
    "R50+ViT-B/16": ((1_200, 1_700), (1_100, 1_500), (2_000, 2_000)),
}
"""Images per second on an H100 SXM, at 224 pixels, written down before anything ran on one: ours, timm's compiled, and
the best known to us of any code."""
MEMORY_WITHIN = 0.10  # of what is predicted, as expected
LOSSES_WITHIN = 2**-5
"""Losses may differ from timm's by this share of the first: bfloat16 rounds so much away in some steps."""


def beside_expected(name: str, side: str, rate: float) -> str:
    """Says how a rate compares with what was expected of "ours" or "timm"; "" where nothing was."""
    if name not in EXPECTED or side not in ("ours", "timm"):
        return ""
    low, high = EXPECTED[name][side == "timm"]
    where = "below" if rate < low else "above" if rate > high else "as expected:"
    return f"{where} {low:,} to {high:,}"


def expectations(lines: Sequence[Line]) -> str:
    """A table of what was expected and what was measured, where anything was."""
    found = {line["what"]: line for line in lines}

    def measured(what: str, key: str, shown: str) -> str:
        value = found.get(what, {}).get(key)
        return "" if value is None else format(value, shown)

    rows = [
        "| images/s | expected | measured | timm's, expected | measured | best known "
        f"| memory, of what was predicted (expected: {1 - MEMORY_WITHIN:g} to {1 + MEMORY_WITHIN:g}) "
        f"| {LOSSES} (expected: {LOSSES_WITHIN:.2g} at most) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, ranges in EXPECTED.items():
        ours, theirs, best = (f"{low:,}" if low == high else f"{low:,} to {high:,}" for low, high in ranges)
        rates = [measured(f"{name}: {side}", "images_per_second", ",.0f") for side in ("ours", "timm")]
        memory = measured(f"{name}: memory", "over_predicted", ".2f")
        losses = measured(f"{name}: {LOSSES}", "value", ".2g")
        rows.append(f"| {name} | {ours} | {rates[0]} | {theirs} | {rates[1]} | {best} | {memory} | {losses} |")
    return "\n".join(rows) + "\n"


@dataclass(frozen=True)
class Step:
    """A step, the seconds it may take, and the fewest with which it is begun."""

    name: str
    limit: float
    least: float = 10.0


def stages(*, rehearsal: bool) -> list[list[Step]]:
    """Steps of a stage run side by side; stages one after the other."""
    races = SMALL_RACES if rehearsal else RACES
    right = [
        Step("check:numerics", 170),
        Step("check:recorded steps,resuming,memory", 170),
        Step("check:large gradients", 170),
        Step("check:kills", 200),
        Step("study:smoke", 170),
        Step("study:smoke:cpu", 170),
        *(Step(f"warm:{name}", 170) for name in races),
        *(Step(f"named:{name}", 170) for name in (SMALL_NAMED if rehearsal else NAMED)),
        Step("warm:shared", 170),
    ]
    alone = [
        *(Step(f"race:{name}", 75, 25) for name in races),
        Step("share", 80, 40),
        Step("share:mps", 80, 40),
        Step("study:scaling", 90, 45),
        Step("check:decoding", 45, 20),
        Step(f"mixed:{next(iter(races))}", 60, 30),
        *(Step(f"rates:{name}", 45, 20) for name in (SMALL_RATES if rehearsal else RATES)),
        Step("check:feed", 90, 30),
        Step("check:evaluation", 60, 25),
        Step("check:timing", 60, 25),
        *([] if rehearsal else [Step(f"race:{name}", 90, 50) for name in MORE_RACES]),
        *([] if rehearsal else [Step("check:too little memory", 120, 60)]),
    ]
    if rehearsal:  # what needs a GPU is not tried
        alone = [step for step in alone if not step.name.startswith("check:")]
        left_out = ("check:numerics", "check:large", "check:kills", "study:smoke:")
        right = [step for step in right if not step.name.startswith(left_out)]
    first = [[Step("imports", 60)], [Step("check:machine,ceilings", 60)]]
    return [*first, right, [Step("same", 20)], *([step] for step in alone)]
