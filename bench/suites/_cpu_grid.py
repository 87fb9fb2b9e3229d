"""The grid of the scale `cpu`: minutes on two cores, on the 12,000 photographs of clothes that come with the project.

Its networks are the ones that people who know a family would take for 28 px images: ViTs of 16 patches and more, of
which ViT-Lite is of Hassani et al. 2021; the ResNets for small images of He et al. 2016, section 4.2, and a narrow
BiT; a small ViT behind such a ResNet, and behind a narrow BiT, as in the paper. They were chosen in November 2026,
and changed once, by `results/reference/control-cpu`: hybrids with a stem of the paper's kind alone, and a CCT, were
13 points behind networks of other hands, the smallest ViT and ResNet, which had been trained at small budgets only, are
the best of their family at large ones too, and two networks between others in size are the best of theirs nowhere.
Every model is trained at the budgets of one ladder, in FLOPs,
so that families are compared where each was measured, from where its warm-up is a ninth of the training. The learning
rates are those of the suite `rates`.
"""

from __future__ import annotations

from typing import Any

from bench.suites._grid import Grid, fewshot

TRAIN_FLOPS = {
    "ViT-atto/7": 0.779e6,
    "ViT-femto/7": 2.737e6,
    "ViT-pico-2/7": 5.875e6,
    "ResNet-8x0.5-s4+ViT-atto/8": 1.777e6,
    "ResNet-8x0.5-s4+ViT-femto/8": 3.685e6,
    "ResNet-8-s4+ViT-pico-2/8": 9.78e6,
    "ResNet-8x0.5-s4": 0.78e6,
    "ViT-pico/7": 8.63e6,
    "ViT-nano/7": 19.97e6,
    "ViT-Lite-2/7": 21.55e6,
    "R5x0.125+ViT-pico/7": 21.25e6,
    "R8x0.125+ViT-pico/4": 32.93e6,
    "ResNet-8-s4+ViT-pico/8": 12.54e6,
    "ResNet-8-s2+ViT-pico/8": 23.96e6,
    "CCT-2/3x2": 146.49e6,
    "CCT-2/3x2:width=64": 60.08e6,
    "ResNet-8-s4": 2.96e6,
    "R11x0.25": 7.04e6,
    "ResNet-8-s2": 12.21e6,
    "ViT-Lite-2/4": 67.27e6,
    "ViT-Lite-4/4": 133.93e6,
    "ResNet-20-s2+ViT-nano/8": 70.04e6,
    "ResNet-20-s2": 40.75e6,
    "ResNet-20": 166.21e6,
    "R11x0.5": 26.49e6,
}
"""Model -> FLOPs of one training image of 28 px and one channel, forward and backward, in the paper's convention.
tests/suites/test_suites.py compares them with the counter: listing a study must not build its networks."""

LADDER = tuple(13e9 * 2**rung for rung in range(7))  # FLOPs: 13, 26, … 832 GFLOPs
RUNGS = {
    "ViT-pico/7": 7,
    "ViT-Lite-2/7": 7,
    "ResNet-8-s4+ViT-pico/8": 7,
    "R5x0.125+ViT-pico/7": 6,
    "ResNet-8-s4": 7,
    "R11x0.25": 5,
    "ResNet-8-s2": 7,
}
"""Model -> how far up the ladder it is trained."""
BATCH, WARMUP_STEPS = 32, 20
FEWEST_STEPS = 9 * WARMUP_STEPS  # a warm-up takes at most a ninth of a run
DATA, TRANSFER = "fashion-mnist:part", "mnist"
SIZES = (300, 1_000, 3_000)
SIZE_FLOPS = LADDER[3]
SIZE_MODELS = ("ViT-pico/7", "ResNet-8-s4+ViT-pico/8", "ResNet-8-s4")


def images(model: str, flops: float) -> int:
    """Images, in whole batches, that a budget in FLOPs trains a model of the table on."""
    return BATCH * round(flops / TRAIN_FLOPS[model] / BATCH)


def horizons(model: str, ladder: tuple[float, ...] = LADDER) -> tuple[int, ...]:
    """The untrained network, and every budget of the ladder that leaves room for the warm-up."""
    return (0, *(seen for flops in ladder if (seen := images(model, flops)) >= FEWEST_STEPS * BATCH))


def recipe(data: str) -> dict[str, Any]:
    """Batch, warm-up and augmentation, the same for every model. Clothes may be mirrored, letters may not."""
    return {"batch": BATCH, "warmup_images": WARMUP_STEPS * BATCH, "shift": 1, "flip": data.startswith("fashion-mnist")}


CPU = Grid(
    compute_data=DATA,
    compute={model: horizons(model, LADDER[:rungs]) for model, rungs in RUNGS.items()},
    size_data=DATA,
    size_models={model: images(model, SIZE_FLOPS) for model in SIZE_MODELS},
    sizes=SIZES,
    tasks=fewshot(TRANSFER, shots=(1, 5, 10), draws=5, test_limit=1_000, ridge="loo"),
    seeds=2,
    image_size=28,
    channels=1,
    recipe=recipe,
)
