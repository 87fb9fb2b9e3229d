"""The three scales of the scaling and data suites.

cpu: minutes on two cores, both axes on rendered glyphs; the suite `data` asks the data-size question of photographs
(Fashion-MNIST) instead. gpu: the same questions with larger models and budgets, about an hour on one data-centre GPU.
paper: the paper's own grid (Tables 3 and 6, Figure 4), to be costed here and run where the data are.
"""

from __future__ import annotations

from dataclasses import replace

from baselines import published
from bench.data.public import SIZES
from bench.suites._grid import Grid, budgets, fewshot
from bench.suites._paper import as_published

DOWNSTREAM = ("scripts", "mnist", "fashion-mnist", "digits")
JFT = SIZES["jft-300m"][0]  # images of one epoch

CPU = Grid(
    compute_data="glyphs",
    compute={
        "ViT-pico/14": budgets(64_000, 5),
        "ViT-nano/14": budgets(48_000, 4),
        "ViT-micro/14": budgets(32_000, 4),
        "ViT-pico/7": budgets(32_000, 3),
        "R5+ViT-pico/14": budgets(24_000, 4),
        "R5+ViT-nano/14": budgets(16_000, 3),
        "R8x0.125-s2": budgets(24_000, 3),
        "R8x0.25-s2": budgets(24_000, 3),
        "R11x0.25-s2": budgets(20_000, 3),
    },
    size_data="glyphs",
    size_models={"ViT-pico/14": 32_000, "R5+ViT-pico/14": 12_000, "R11x0.25-s2": 20_000},
    sizes=(300, 1_000, 3_000),
    tasks=fewshot(*DOWNSTREAM, shots=(1, 5, 10), draws=5, test_limit=1_000, ridge="loo"),
    seeds=2,
    image_size=28,
    channels=1,
    recipe={"batch": 32, "shift": 1},
)

GPU = Grid(
    compute_data="glyphs",
    compute={
        "ViT-Ti/4": budgets(2_000_000, 4),
        "ViT-S/4": budgets(2_000_000, 4),
        "ViT-B/4": budgets(1_000_000, 4),
        "R8+ViT-Ti/4": budgets(2_000_000, 4),
        "R8+ViT-S/4": budgets(1_000_000, 4),
        "R26x1-s2": budgets(2_000_000, 4),
        "R50x1-s2": budgets(2_000_000, 4),
        "R101x1-s2": budgets(1_000_000, 4),
    },
    size_data="glyphs",
    size_models={"ViT-S/4": 500_000, "R8+ViT-S/4": 500_000, "R50x1-s2": 500_000},
    sizes=(300, 1_000, 3_000, 10_000),
    tasks=fewshot(*DOWNSTREAM, shots=(1, 5, 10, 25), draws=5, test_limit=None),
    seeds=2,
    image_size=28,
    channels=1,
    recipe={"batch": 512, "lr": 1e-3, "warmup_images": 20_000},
)


def _table_6() -> dict[str, tuple[int, ...]]:
    """Model -> its budgets: 7 epochs of JFT-300M, 14, or both."""
    found: dict[str, tuple[int, ...]] = {}
    for line in published.table("table6"):
        model = published.model_name(line["name"])
        found[model] = (*found.get(model, ()), int(line["epochs"]) * JFT)
    return found


PAPER = Grid(
    compute_data="jft-300m",
    compute=_table_6(),
    size_data="jft-300m",
    size_models=dict.fromkeys(("ViT-b/32", "ViT-B/32", "ViT-L/32", "ViT-L/16", "R50x1", "R152x2"), 7 * JFT),
    sizes=(9_000_000, 30_000_000, 90_000_000, JFT),
    tasks=(),
    seeds=1,
    image_size=224,
    channels=3,
    trained=as_published,
)

SCALES = {"cpu": CPU, "gpu": GPU, "paper": PAPER}

# The data-size question asked of photographs: a part of Fashion-MNIST comes with the project.
PHOTOGRAPHS, NUMBERS = "fashion-mnist", (100, 300, 1_000, 3_000, 10_000)
DATA_SCALES = {
    "cpu": replace(CPU, size_data=PHOTOGRAPHS, sizes=NUMBERS),
    "gpu": replace(GPU, size_data=PHOTOGRAPHS, sizes=NUMBERS),
    "paper": PAPER,
}
