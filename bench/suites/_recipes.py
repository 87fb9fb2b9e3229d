"""Recipes and families that the suites share: which learning rate each family trains with, and why.

One recipe for all families but for the learning rate, which was chosen per family on held-out upstream accuracy, never
on a downstream set (see results/reference/README.md for the sweep).
"""

from __future__ import annotations

from typing import Any

from bench import models
from bench.spec import Recipe

LEARNING_RATES = {"ViT": 2e-3, "Hybrid": 2e-3, "ResNet": 8e-3}
DEFAULT_RATE = 1e-3  # for a family that nobody has swept yet


def recipe_for(model: str, **changes: Any) -> Recipe:
    """The suites' recipe for a model."""
    family = models.family_of(model).FAMILY
    return Recipe(**{"lr": LEARNING_RATES.get(family, DEFAULT_RATE), **changes})
