"""The recipe shared by the suites: equal for all models except for the learning rate.

Rates are chosen per scale and model on the upstream set's test images, never on a downstream set: of six rates spaced
x2, the lowest within two points of the best (higher ones vary more between seeds). `vit-bench run --suite rates`
is the sweep; results/reference/rates-cpu/ is what it gave at scale `cpu`. A model that was not swept gets its family's:
the geometric mean of the family's chosen rates, down to a rate of the sweep. A scale that was not swept has none.
The batch is not looked at: a suite that changes it keeps these rates until `rates` is run again.

The warm-up decides which rate is best. The main study, and the sweep behind its rates, warm up for 23 steps, as their
shortest budgets allow. Suites without such budgets keep the recipe's own warm-up of 62 steps: where it makes another
rate the best, `LONG_WARMUP_RATES` has it.
"""

from __future__ import annotations

from typing import Any

from bench.core import registry
from bench.core.spec import Recipe

FAMILY_RATES: dict[str, dict[str, float]] = {}
"""Scale -> family -> rate."""
MODEL_RATES: dict[str, dict[str, float]] = {}
"""Scale -> model -> rate, where it is not the family's."""
FAMILY_RATES["cpu"] = {"ViT": 2e-3, "Hybrid": 4e-3, "ResNet": 4e-3}
MODEL_RATES["cpu"] = {
    **dict.fromkeys(("ViT-pico/14", "ViT-pico/7"), 4e-3),
    "ViT-micro/14": 1e-3,
    **dict.fromkeys(("R5x0.125+ViT-pico/14", "R5+ViT-pico/14", "R11x0.25-s2"), 8e-3),
}
LONG_WARMUP_RATES = {"cpu": dict.fromkeys(("R8x0.125-s2", "R8x0.25-s2"), 8e-3)}
"""Scale -> model -> rate, of recipes whose warm-up is no shorter than their own (results/reference/transfer-rates/)."""
DEFAULT_RATE = 1e-3  # for a scale or family without a sweep


def rate_of(model: str, *, scale: str, warmup_images: int = 0) -> float | None:
    """The rate that a sweep at this scale chose for a model, or for its family, whatever the batch; None without one.

    Options in a name change none.
    """
    longer = LONG_WARMUP_RATES.get(scale, {}) if warmup_images >= Recipe.warmup_images else {}
    models, families = MODEL_RATES.get(scale, {}) | longer, FAMILY_RATES.get(scale, {})
    return models.get(registry.split_options(model)[0]) or families.get(registry.family_of(model).label)


def recipe_for(model: str, *, scale: str = "cpu", **changes: Any) -> Recipe:
    """The suites' recipe for a model at a scale, but for `changes`."""
    rate = rate_of(model, scale=scale, warmup_images=changes.get("warmup_images", Recipe.warmup_images))
    return Recipe(**{"lr": rate or DEFAULT_RATE, **changes})
