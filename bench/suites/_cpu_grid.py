"""The grid of the scale `cpu`: the models, budgets and data of a study of some minutes on two cores, on the 12,000
photographs of clothes that come with the project.

Its networks are those that people who know a family would take for images of 28 px: ViTs of 16 patches; the ResNets for
small images of He et al. 2016, section 4.2, and a narrow BiT; hybrids, which are a small ViT behind such a ResNet. Each
family has three sizes or more, a factor of two to four apart in FLOPs. The smallest is as small as others build them
for these budgets, because at a given compute a network that is too large sees too few images, and a family whose
smallest network is too large looks worse than it is. All models are trained at budgets of one series in FLOPs
(`LADDER`), so that families are compared at compute at which each was measured; a model's budgets begin where its
warm-up is a ninth of the training. The learning rates are those of the suite `rates`.

The networks were chosen in November 2026, and changed twice, because of two comparisons with networks of others. In the
first, hybrids with a stem of the ViT paper's kind, and a CCT, were 13 points behind networks that others wrote. For the
second, somebody who knew only the images and the budgets built networks with a loop of their own
(`results/reference/own-loop`): at 52 GFLOPs a ViT of a tenth of ours in size, whose head reads all tokens in place of
their mean, was 26 points better. So each family got smaller sizes, and ViTs as small as these got that head.
`results/reference/control-cpu` compares today's networks with those that others wrote.
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
    "ViT-Lite-2/7": 21.55e6,
    "R5x0.125+ViT-pico/7": 21.25e6,
    "ResNet-8-s4+ViT-pico/8": 12.54e6,
    "CCT-2/3x2": 146.49e6,
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
"""Model -> FLOPs of one training image of 28 px and one channel, forward and backward, in the ViT paper's
convention. tests/suites/test_suites.py compares them with the counter: listing a study must not build its networks."""

LADDER = tuple(6.5e9 * 2**rung for rung in range(8))  # budgets in FLOPs: 6.5, 13, … 832 GFLOPs
RUNGS = {
    "ViT-atto/7": 6,
    "ViT-femto/7": 7,
    "ViT-pico-2/7": 7,
    "ResNet-8x0.5-s4+ViT-atto/8": 6,
    "ResNet-8x0.5-s4+ViT-femto/8": 7,
    "ResNet-8-s4+ViT-pico-2/8": 7,
    "ResNet-8x0.5-s4": 6,
    "ResNet-8-s4": 7,
    "ResNet-8-s2": 7,
    "R11x0.25": 5,
}
"""Model -> number of budgets of `LADDER`, from the smallest on, at which it is trained. The smallest model of each
family goes on up to budgets at which the next size, in a first run of this grid, had not yet passed it."""
RATE_RUNGS = {
    "ViT-atto/7": 5,
    "ResNet-8x0.5-s4+ViT-atto/8": 5,
    "ResNet-8x0.5-s4+ViT-femto/8": 6,
    "ResNet-8x0.5-s4": 5,
    "ResNet-8-s4": 8,
    "ResNet-8-s2": 8,
    "R11x0.25": 6,
    "ViT-pico/7": 8,
    "ViT-Lite-2/7": 8,
    "ResNet-8-s4+ViT-pico/8": 8,
    "R5x0.125+ViT-pico/7": 7,
}
"""Model -> number of budgets of `LADDER` up to which its learning rate is swept, if that is not the number at which it
is trained; also for networks that only other suites train."""
BATCH, WARMUP_STEPS = 32, 20
FEWEST_STEPS = 9 * WARMUP_STEPS  # a warm-up takes at most a ninth of a run
DATA, TRANSFER = "fashion-mnist:part", "mnist"
SIZES = (300, 1_000, 3_000)
SIZE_FLOPS = LADDER[3]
SIZE_MODELS = ("ViT-femto/7", "ResNet-8x0.5-s4+ViT-femto/8", "ResNet-8-s4")


def images(model: str, flops: float) -> int:
    """Return the number of images, in whole batches, on which a budget in FLOPs trains a model. `model`: a key of
    `TRAIN_FLOPS`."""
    return BATCH * round(flops / TRAIN_FLOPS[model] / BATCH)


def horizons(model: str, ladder: tuple[float, ...] = LADDER) -> tuple[int, ...]:
    """Return a model's horizons in images seen: 0, the untrained network, and every budget of the ladder that leaves
    room for the warm-up.

    Args:
        model: a key of `TRAIN_FLOPS`.
        ladder: budgets in FLOPs, ascending.
    """
    return (0, *(seen for flops in ladder if (seen := images(model, flops)) >= FEWEST_STEPS * BATCH))


def recipe(data: str) -> dict[str, Any]:
    """Return the fields of a recipe that are the same for every model: batch size, warm-up and augmentation. Only
    images of clothes are mirrored, because a mirrored letter is another letter or none. `data`: name of the upstream
    (pre-training) set."""
    return {"batch": BATCH, "warmup_images": WARMUP_STEPS * BATCH, "shift": 1, "flip": data.startswith("fashion-mnist")}


CPU = Grid(
    compute_data=DATA,
    compute={model: horizons(model, LADDER[:rungs]) for model, rungs in RUNGS.items()},
    swept={model: images(model, LADDER[rungs - 1]) for model, rungs in RATE_RUNGS.items()},
    size_data=DATA,
    size_models={model: images(model, SIZE_FLOPS) for model in SIZE_MODELS},
    sizes=SIZES,
    tasks=fewshot(TRANSFER, shots=(1, 5, 10), draws=5, test_limit=1_000, ridge="loo"),
    seeds=2,
    image_size=28,
    channels=1,
    recipe=recipe,
)
