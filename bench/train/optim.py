"""The loss, optimizer and weight averaging of a recipe."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

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


def _bare(method: Any) -> Any:
    """A method of a torch optimizer without what torch wraps around it for `torch.compile`."""
    return getattr(method, "__wrapped__", method)


class _Eager:
    """An optimizer that is never compiled. torch's own methods import its compiler at their first call, which takes as
    long again as importing torch: more than a short cell trains."""

    zero_grad = _bare(Optimizer.zero_grad)
    add_param_group = _bare(Optimizer.add_param_group)


class AdamW(_Eager, torch.optim.AdamW):
    """torch's; see `_Eager`."""

    step = torch.no_grad()(_bare(torch.optim.AdamW.step))


class SGD(_Eager, torch.optim.SGD):
    """torch's; see `_Eager`."""

    step = torch.no_grad()(_bare(torch.optim.SGD.step))


def make_optimizer(model: nn.Module, recipe: Recipe) -> Optimizer:
    """ "adamw": the paper's Adam, decoupled weight decay on every parameter, biases and norms too, as flax.optim.Adam
    had it. "sgd": momentum without dampening, weight decay added to the gradient, as BiT was trained."""
    parameters, lr, decay = model.parameters(), recipe.lr, recipe.weight_decay
    if recipe.optimizer == "sgd":
        return SGD(parameters, lr=lr, momentum=recipe.momentum, weight_decay=decay, fused=True)
    return AdamW(parameters, lr=lr, betas=recipe.betas, weight_decay=decay, fused=True)


def set_aside(value: Tensor) -> Tensor:
    """A copy in the CPU's memory, where there is more; the shard of a sharded tensor stays on its device."""
    return value.clone() if hasattr(value, "to_local") else value.to("cpu", copy=True)


class Ema:
    """The exponential moving average of a model's parameters (Polyak averaging), by which it is evaluated:
    a ← decay · a + (1 − decay) · p after every step, a = p at the first. Buffers are not averaged.

    The average is part of the training's state: a branch continues the trunk's, and the trunk gets its own back.

    Args:
        decay: 0 switches averaging off: nothing is kept, and evaluation sees the model.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.mean: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self) -> None:
        """Add the weights after a step."""
        if not self.decay:
            return
        now = {name: p.detach() for name, p in self.model.named_parameters()}
        if self.mean:
            torch._foreach_lerp_(list(self.mean.values()), list(now.values()), 1.0 - self.decay)
        else:
            self.mean = {name: p.clone() for name, p in now.items()}

    def restore(self, mean: Mapping[str, Tensor]) -> None:
        """Continue from a saved mean; an empty one starts over."""
        parameters = dict(self.model.named_parameters())
        self.mean = {name: mean[name].clone().to(p.device) for name, p in parameters.items()} if mean else {}

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the model has the averaged weights; afterwards exactly its own again."""
        if not self.mean:
            yield
            return
        own = {name: set_aside(value) for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.mean, strict=False)
        try:
            yield
        finally:
            self.model.load_state_dict(own)
