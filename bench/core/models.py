"""Model names to modules: asks `vit` and every file in `baselines/` who builds a name.

A family is one file with FAMILY, REVISION, names(), accepts(name) and build(name, ...); see CONTRIBUTING.md.
Looking a name up does not import torch; building does.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bench.core import registry
from bench.core.errors import UserError, unknown

if TYPE_CHECKING:
    from torch import nn


LONGEST = 100  # letters of a model's name


def families() -> tuple[ModuleType, ...]:
    """Every family's module, the subject (ViT) first."""
    from vit import family as vit_family

    others = [registry.load("family", name) for name in registry.names("family")]
    return (vit_family, *(module for module in others if hasattr(module, "FAMILY")))


def names() -> tuple[str, ...]:
    """Every registered model name. Grammars accept more (any patch size, width, …)."""
    return tuple(name for module in families() for name in module.names())


def family_of(name: str) -> ModuleType:
    """The module that builds `name`.

    Raises:
        UserError: nobody does; suggests the nearest registered names.
    """
    for module in families() if len(name) <= LONGEST else ():
        if module.accepts(name):
            return module
    error = unknown("model", name, names())
    raise UserError(error.what, f"{error.fix} How all are named: python -m bench.flops --list")


def build(name: str, *, image_size: int, channels: int, num_classes: int, **options: Any) -> nn.Module:
    """A freshly initialised model: `model(x_BCHW) -> logits_BK`, `model.features(x_BCHW) -> x_BD`.

    Raises:
        UserError: unknown name, or a size the model cannot take (an image that the patch does not divide).
    """
    module = family_of(name)
    try:
        inspect.signature(module.build).bind(
            name, image_size=image_size, channels=channels, num_classes=num_classes, **options
        )
    except TypeError as error:
        raise UserError(f"Model {name!r} cannot be built so: {error}.", "Leave that option out.") from error
    try:
        return module.build(name, image_size=image_size, channels=channels, num_classes=num_classes, **options)
    except ValueError as error:
        raise UserError(f"Model {name!r} cannot be built at {image_size} px: {error}") from error


def transferred(
    model: nn.Module, name: str, *, image_size: int, channels: int, num_classes: int, **options: Any
) -> nn.Module:
    """A copy of a trained model for another image size and other classes: its body, and a classifier of zeros.

    Raises:
        UserError: a size the model cannot take, or a family whose weights depend on the size.
    """
    from vit.transfer import carry_over

    if getattr(model, "pre_logits", None) is not None:
        options["head"] = "linear"  # the hidden layer in the head goes with the old classes
    fresh = build(name, image_size=image_size, channels=channels, num_classes=num_classes, **options)
    try:
        return carry_over(model, fresh)
    except ValueError as error:
        raise UserError(f"Model {name!r} cannot be fine-tuned at {image_size} px: {error}.") from error
