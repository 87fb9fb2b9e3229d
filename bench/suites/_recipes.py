"""Recipes and families that the suites share: which learning rate each family trains with, and why.

Rates were chosen on held-out upstream accuracy (never on a downstream set); see results/reference/README.md.
"""

from __future__ import annotations

from bench import models
from bench.spec import Recipe

# Per family: the smallest models of a family take the highest rate that was stable.
LEARNING_RATES = {"ViT": 2e-3, "Hybrid": 2e-3, "ResNet": 4e-3}
DEFAULT_RATE = 1e-3  # for a family that nobody has swept yet


def recipe_for(model: str, **changes: object) -> Recipe:
    """The suites' recipe for a model: one for all families but for the learning rate."""
    family = models.family_of(model).FAMILY
    return Recipe(**{"lr": LEARNING_RATES.get(family, DEFAULT_RATE), **changes})  # type: ignore[arg-type]
