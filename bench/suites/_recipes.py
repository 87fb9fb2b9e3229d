"""The recipe that the suites share: the same for every model but for its learning rate.

Rates were chosen per model at scale `cpu` on held-out upstream accuracy, never on a downstream set: the best of six,
spaced x2, by `python -m bench.run --suite rates`; what they rest on is in results/reference/rates-cpu/. A model that
was not swept gets its family's.
"""

from __future__ import annotations

from typing import Any

from bench import models
from bench.spec import Recipe

FAMILY_RATES = {"ViT": 2e-3, "Hybrid": 8e-3, "ResNet": 8e-3}
MODEL_RATES = {
    **dict.fromkeys(("ViT-pico/14", "ViT-nano/14", "ViT-pico/7"), 4e-3),
    **dict.fromkeys(("R5+ViT-nano/14", "R11x0.25-s2"), 1.6e-2),
}
DEFAULT_RATE = 1e-3  # for a family that nobody has swept yet


def recipe_for(model: str, **changes: Any) -> Recipe:
    """The suites' recipe for a model."""
    rate = MODEL_RATES.get(model) or FAMILY_RATES.get(models.family_of(model).FAMILY, DEFAULT_RATE)
    return Recipe(**{"lr": rate, **changes})
