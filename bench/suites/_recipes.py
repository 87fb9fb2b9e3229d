"""The recipe shared by the suites: equal for all models except for the learning rate.

Learning rates are plain numbers per scale, model and budget, chosen by upstream (pre-training) accuracy, never on a
downstream set: `vit-bench run --suite rates` sweeps each model at a short and a long budget with several seeds. Its
report fits a smooth curve through the runs and prints the maximum in the form of the lines below. Between two budgets,
the logarithm of the learning rate is linear in the logarithm of the images seen; beyond them, the rate is that of the
nearer budget. A learning rate is for the batch size of its sweep. The suites use the rate of the longest budget that
was swept, since all budgets of a network branch off one training, which has one learning rate.

A model without a sweep gets, by the first rule that applies to it:

- its family's learning rate at this scale: the geometric mean over the family's models that `rates` swept;
- at every scale but `cpu`, the learning rate of its own row in the ViT paper's Table 3 for JFT-300M, the one set that
  has rows of all three families, × √(batch / 4096), the rule for Adam (`_paper.py`);
- at the same scales, the learning rate of the network of its kind in that table that is nearest in width, × the same
  factor × that network's width / its own width (Yang et al. 2022, arXiv:2203.03466: with Adam, the best rate of hidden
  weights falls as 1 / width). The width is that of the transformer, also in a hybrid, and the width factor of a ResNet.
  A model whose name does not say its width gets the rate of its kind's smallest network, unscaled by width. The suite
  `rates` tests the rule where it is run: its plan names the rates that the rule gives;
- `DEFAULT_RATE`.

The learning rates at scale `cpu` come from `results/reference/rates-cpu/`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.analysis.families import kind_of
from bench.study import registry
from bench.study.cell import Recipe
from bench.study.names import ModelName
from bench.suites import _paper
from vit.config import config_for

FAMILY_RATES: dict[str, dict[str, float]] = {}
"""Scale -> family -> learning rate, for models without a sweep."""
MODEL_RATES: dict[str, dict[str, dict[int, float]]] = {}
"""Scale -> model -> budget in images seen -> learning rate, as swept."""
FAMILY_RATES["cpu"] = {"ViT": 2.1e-3, "Hybrid": 4.1e-3, "ResNet": 4.0e-3}
MODEL_RATES["cpu"] = {
    "ViT-atto/7": {16_704: 1.1e-2, 133_504: 6.4e-3},
    "ViT-femto/7": {19_008: 3.6e-3, 152_000: 3.1e-3},
    "ViT-pico-2/7": {8_864: 1.5e-3, 70_816: 1.9e-3},
    "ViT-pico/7": {12_064: 2.9e-3, 96_416: 1.8e-3},
    "ViT-Lite-2/7": {4_832: 1.2e-3, 38_592: 6.5e-4},
    "ResNet-8x0.5-s4+ViT-atto/8": {7_328: 7.8e-3, 58_528: 4.4e-3},
    "ResNet-8x0.5-s4+ViT-femto/8": {56_448: 9.1e-3},
    "ResNet-8-s4+ViT-pico-2/8": {5_312: 2.0e-3, 42_528: 2.7e-3},
    "ResNet-8-s4+ViT-pico/8": {8_288: 2.6e-3, 66_336: 2.3e-3},
    "R5x0.125+ViT-pico/7": {2_560: 1.3e-2, 19_584: 4.4e-3},
    "ResNet-8x0.5-s4": {16_672: 1.3e-2, 133_344: 5.3e-3},
    "ResNet-8-s4": {35_136: 6.3e-3, 281_088: 2.2e-3},
    "R11x0.25": {3_680: 5.1e-3, 29_536: 4.9e-3},
    "ResNet-8-s2": {8_512: 3.6e-3, 68_128: 4.4e-3},
}
MODEL_RATES["cpu"] |= {  # larger networks, of the suite `photographs`; from results/reference/photograph-rates-cpu/
    "ViT-Lite-2/4": {12_384: 1.1e-3, 49_472: 6.1e-4},
    "ViT-Lite-4/4": {6_208: 1.1e-3, 24_864: 7.8e-4},
    "ResNet-20-s2+ViT-nano/8": {11_872: 2.5e-3, 47_520: 1.2e-3},
    "CCT-2/3x2": {5_664: 2.2e-3, 22_720: 2.6e-3},
    "R11x0.5": {125_632: 3.5e-3},
    "ResNet-20-s2": {81_664: 1.5e-3},
    "ResNet-20": {4_992: 2.1e-3, 20_032: 1.1e-3},
}
DEFAULT_RATE = 1e-3  # for a model that no rule knows
SWEPT, FAMILY, PAPER, WIDTH, DEFAULT = (
    "swept",
    "its family's",
    "Table 3",
    "nearest of Table 3",
    "no rule",
)
"""The rules that a learning rate can come from."""


@dataclass(frozen=True)
class Rate:
    """A learning rate, and the rule that gave it: `SWEPT`, `FAMILY`, `PAPER`, `WIDTH` or `DEFAULT`."""

    value: float
    rule: str


def rate_and_rule(model: str, *, scale: str, images: int | None = None, batch: int = Recipe.batch) -> Rate:
    """Return the learning rate of a model at a scale, and the rule that gave it. Options in a model's name do not
    change its rate.

    Args:
        images: the budget, in images seen; None: the longest that was swept.
        batch: the batch size, to which a learning rate from the ViT paper is scaled.
    """
    base, family = ModelName.parse(model).base, registry.family_of(model).label
    if budgets := MODEL_RATES.get(scale, {}).get(base):
        return Rate(at_budget(budgets, images), SWEPT)
    families, kind = FAMILY_RATES.get(scale, {}), kind_of(family) or family
    if rate := families.get(family) or families.get(kind):
        return Rate(rate, FAMILY)
    return (None if scale == "cpu" else by_paper(base, kind, batch=batch)) or Rate(DEFAULT_RATE, DEFAULT)


def rate_of(model: str, *, scale: str, images: int | None = None, batch: int = Recipe.batch) -> float | None:
    """Return the learning rate of a model at a scale; None if no rule gives one. `images`, `batch`: as for
    `rate_and_rule`."""
    found = rate_and_rule(model, scale=scale, images=images, batch=batch)
    return None if found.rule == DEFAULT else found.value


def recipe_for(model: str, *, scale: str = "cpu", images: int | None = None, **changes: Any) -> Recipe:
    """Return the suites' recipe for a model at a scale.

    Args:
        images: the budget whose learning rate is wanted, as for `rate_and_rule`; for a cell, its longest horizon.
        changes: fields of the recipe that are set to other values.
    """
    found = rate_and_rule(model, scale=scale, images=images, batch=changes.get("batch", Recipe.batch))
    return Recipe(**{"lr": found.value, **changes})


def at_budget(budgets: Mapping[int, float], images: int | None) -> float:
    """Return the learning rate at a budget: linear in logarithms between the budgets that were swept, constant beyond
    them.

    Args:
        budgets: images seen -> learning rate, as swept.
        images: the budget in images seen; None: the longest that was swept.
    """
    swept = sorted(budgets)
    if images is None or images >= swept[-1]:
        return budgets[swept[-1]]
    if images <= swept[0]:
        return budgets[swept[0]]
    high = next(number for number in swept if number > images)
    low = swept[swept.index(high) - 1]
    share = math.log(images / low) / math.log(high / low)
    return float(budgets[low] ** (1 - share) * budgets[high] ** share)


# -- from the paper's table --------------------------------------------------------------------------------------------


def by_paper(model: str, kind: str, *, batch: int) -> Rate | None:
    """Return the learning rate that the ViT paper's Table 3 gives a model, or that of the nearest network of its kind,
    scaled by width; None for a kind that the table does not have.

    Args:
        kind: "ViT", "Hybrid" or "ResNet".
        batch: the batch size, to which the learning rate is scaled.
    """
    table = {row.model: row.lr for row in _paper.rows().values() if row.data == "JFT-300M"}
    for_batch = math.sqrt(batch / _paper.BATCH)
    if (named := _paper.NEAREST_IN_TABLE.get(model, model)) in table:
        return Rate(table[named] * for_batch, PAPER)
    kin = [name for name in table if registry.family_of(name).label == kind]
    if not kin:
        return None
    width = width_of(model)
    if width is None:
        return Rate(table[_paper.SMALLEST[kind]] * for_batch, WIDTH)

    def distance(name: str) -> tuple[float, float]:
        return abs(math.log(_known_width(name) / width)), abs(math.log(_depth(name) / _depth(model)))

    nearest = min(kin, key=distance)
    return Rate(table[nearest] * for_batch * _known_width(nearest) / width, WIDTH)


def width_of(model: str) -> float | None:
    """Return the width of a transformer, or the width factor of a ResNet, as its name states it; None if the name does
    not."""
    if found := re.fullmatch(r"R\d+x(\d+(?:\.\d+)?)(?:-s[12])?", model):
        return float(found[1])
    try:
        transformer = model[model.index("ViT-") :]
        patch = int(transformer.rpartition("/")[2])
        return float(config_for(transformer, image_size=patch, channels=3, num_classes=1).width)
    except (ValueError, KeyError):
        return None


def _known_width(model: str) -> float:
    width = width_of(model)
    assert width is not None, model
    return width


def _depth(model: str) -> int:
    """Return the depth of a ResNet, the number after the R in its name; 1 for other models, whose depth goes with their
    width."""
    found = re.match(r"R(\d+)x", model)
    return int(found[1]) if found else 1
