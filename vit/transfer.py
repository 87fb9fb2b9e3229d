"""A trained body in a model of another image size or number of classes: where fine-tuning starts."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from vit import positions
from vit.resize import resize_grid

HEAD = ("head.", "pre_logits.")  # the paper drops the classifier and the hidden layer before it (section 3.1)


@torch.no_grad()
def carry_over(source: nn.Module, target: nn.Module) -> nn.Module:
    """Fill `target` with the trained body of `source`, and its classifier with zeros; works for any family.

    Position tables are interpolated to the target's grid, the fixed ones too: a token keeps the position that its
    place in the picture had, and none lies outside what the body was trained on (section 3.2).

    Returns:
        `target`.

    Raises:
        ValueError: there is no classifier, or another tensor of the body depends on the image size.
    """
    trained = {name: value for name, value in source.state_dict().items() if not name.startswith(HEAD)}
    body = {name: value for name, value in target.state_dict().items() if not name.startswith(HEAD)}
    if hasattr(target, "positions"):
        trained |= _fitted_tables(source, target, trained)
    wrong = [
        f"{name} is {tuple(trained[name].shape) if name in trained else 'absent'}, {tuple(value.shape)} is needed"
        for name, value in body.items()
        if name not in trained or trained[name].shape != value.shape
    ]
    if wrong:
        raise ValueError(f"its trained weights do not fit this image size: {'; '.join(wrong[:3])}")
    for name, value in body.items():
        value.copy_(trained[name])
    head = [parameter for name, parameter in target.named_parameters() if name.startswith("head.")]
    if not head:
        raise ValueError("it has no classifier to fine-tune")
    for parameter in head:
        parameter.zero_()
    return target


def _fitted_tables(source: Any, target: Any, trained: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The learned position tables at the target's grid; fixed ones, which no state holds, are put in place."""
    for old, new in zip(source.positions, target.positions, strict=True):
        if new.kind == "sincos-2d":
            new.fixed.copy_(resize_grid(old.fixed, old.grid, new.grid))
    tables = {name: value for name, value in trained.items() if name.startswith("positions.")}
    placed = positions.fitted(target, tables, "own", source.config.grid, True)
    return placed.found
