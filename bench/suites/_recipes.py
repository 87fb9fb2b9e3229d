"""The recipe shared by the suites: equal for all models except for the learning rate.

Rates were chosen per model at scale `cpu` on the upstream set's test images, never on a downstream set: of six rates
spaced x2, the lowest within two points of the best (higher ones vary more between seeds). `python -m bench.run --suite
rates` is the sweep; results/reference/rates-cpu/ is what it gave. A model that was not swept gets its family's: the
geometric mean of the family's chosen rates, down to a rate of the sweep.
"""

from __future__ import annotations

from typing import Any

from bench.core import registry
from bench.core.spec import Recipe

FAMILY_RATES = {"ViT": 2e-3, "Hybrid": 8e-3, "ResNet": 8e-3}
MODEL_RATES = {
    **dict.fromkeys(("ViT-pico/14", "ViT-nano/14", "ViT-pico/7"), 4e-3),
    "ViT-micro/14": 1e-3,
}
DEFAULT_RATE = 1e-3  # for a family without a sweep


def is_swept(model: str) -> bool:
    """Whether the learning rate of a model comes from a sweep, its own or its family's."""
    return model in MODEL_RATES or registry.family_of(model).FAMILY in FAMILY_RATES


def recipe_for(model: str, **changes: Any) -> Recipe:
    """The suites' recipe for a model; options in its name change no rate."""
    base, _ = registry.split_options(model)
    rate = MODEL_RATES.get(base) or FAMILY_RATES.get(registry.family_of(model).FAMILY, DEFAULT_RATE)
    return Recipe(**{"lr": rate, **changes})
