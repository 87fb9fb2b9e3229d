"""The loss of a recipe, and the head's bias that goes with it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.core.errors import UserError
from bench.core.spec import Recipe

Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits_BK, labels_B) -> the batch's mean."""


def make_loss(recipe: Recipe) -> Loss:
    """Cross-entropy over classes, in float32 whatever the logits are.

    "softmax": one class of many; smoothing mixes in the uniform distribution, as in torch. "sigmoid": every class is
    decided on its own and the losses of an image's classes are added up, as in the paper's upstream runs; smoothing s
    then makes targets 1 − s and s (their public configurations: onehot on 0.9999, off 0.0001).
    """
    smoothing = recipe.label_smoothing

    def softmax(logits_BK: Tensor, labels_B: Tensor) -> Tensor:
        return F.cross_entropy(logits_BK.float(), labels_B, label_smoothing=smoothing)

    def sigmoid(logits_BK: Tensor, labels_B: Tensor) -> Tensor:
        targets_BK = torch.full_like(logits_BK, smoothing, dtype=torch.float32)
        targets_BK.scatter_(1, labels_B[:, None], 1.0 - smoothing)
        return F.binary_cross_entropy_with_logits(logits_BK.float(), targets_BK, reduction="sum") / len(labels_B)

    return sigmoid if recipe.loss == "sigmoid" else softmax


def set_head_bias(model: nn.Module, recipe: Recipe, num_classes: int) -> None:
    """With "prior", start the head's bias at −log K, so that a sigmoid begins near the rate at which a class is true.

    The paper's runs had −10 for JFT's 18,291 classes and ImageNet-21k's 21,843 (−9.8 and −10.0 by this rule) and −6.9
    for ImageNet's 1,000.

    Raises:
        UserError: the model's last parameter is not a bias over the classes.
    """
    if recipe.head_bias == "zero":
        return
    name, bias = list(model.named_parameters())[-1]
    if not name.endswith("bias") or bias.shape != (num_classes,):
        raise UserError(
            f"head_bias={recipe.head_bias} needs a model whose last parameter is the head's bias; here it is {name}.",
            "Register the head last, or leave head_bias at zero.",
        )
    nn.init.constant_(bias, -math.log(num_classes))
