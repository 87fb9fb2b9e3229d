"""All that changes weights once their gradients are there: clipping, the optimizer, and the average of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bench.study.cell import Recipe

CLIP_EPS = 1e-6  # added to the norm, as torch.nn.utils.clip_grad_norm_ does


def _bare(method: Any) -> Any:
    """A method of a torch optimizer without what torch wraps around it for `torch.compile`."""
    return getattr(method, "__wrapped__", method)


class _Eager:
    """An optimizer of one group that is never compiled. torch's own methods import its compiler at their first call,
    which takes as long again as importing torch: more than a short cell trains."""

    zero_grad = _bare(Optimizer.zero_grad)
    add_param_group = _bare(Optimizer.add_param_group)


class AdamW(_Eager, torch.optim.AdamW):
    """torch's; see `_Eager`."""

    step = torch.no_grad()(_bare(torch.optim.AdamW.step))


class SGD(_Eager, torch.optim.SGD):
    """torch's; see `_Eager`."""

    step = torch.no_grad()(_bare(torch.optim.SGD.step))


def make_optimizer(weights: Iterable[Tensor], recipe: Recipe) -> Optimizer:
    """ "adamw": the paper's Adam, decoupled weight decay on every parameter, biases and norms too, as flax.optim.Adam
    had it. "sgd": momentum without dampening, weight decay added to the gradient, as BiT was trained."""
    lr, decay = recipe.lr, recipe.weight_decay
    if recipe.optimizer == "sgd":
        return SGD(weights, lr=lr, momentum=recipe.momentum, weight_decay=decay, fused=True)
    return AdamW(weights, lr=lr, betas=recipe.betas, weight_decay=decay, fused=True)


class Update:
    """All that changes weights once their gradients are there: clipping, the optimizer, and the average.

    Args:
        dtype: a key of `precision.DTYPES`, in which the gradients were computed.
        sharded: the weights are; torch clips these.
    """

    def __init__(
        self,
        weights: list[nn.Parameter],
        *,
        recipe: Recipe,
        dtype: str,
        device: str,
        average: Ema | None = None,
        sharded: bool = False,
    ) -> None:
        self.weights, self.clip, self.average = weights, recipe.clip, average
        self.optimizer = make_optimizer(weights, recipe)
        self.together = device.partition(":")[0] in ("cpu", "cuda") or None  # elsewhere torch knows, and may refuse
        self.divides = dtype != "float32" and not sharded and bool(self.together)
        self._rate: float | None = None

    def set_rate(self, rate: float) -> None:
        """The learning rate from now on."""
        if rate == self._rate:
            return
        self._rate = rate
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def tensors(self) -> list[Tensor | None]:
        """All that an update reads and writes, besides the weights."""
        state = [value for held in self.optimizer.state.values() for value in held.values()]
        return [*(p.grad for p in self.weights), *state, *(self.average.mean.values() if self.average else ())]

    def __call__(self) -> None:
        """Change the weights. Memory is taken before anything is changed."""
        if self.average is not None:
            self.average.allocate()
        self._clip()
        self.optimizer.step()
        if self.average is not None:
            self.average.update()

    def _clip(self) -> None:
        """Scale the gradients, together, to the recipe's norm at most.

        In bfloat16 the fused optimizer divides by the excess (`grad_scale`, which it has for loss scaling): one pass
        over all gradients less. In float32 committed results would change a last bit; shards are torch's to clip.
        """
        if not self.clip:
            return
        if not self.divides:
            nn.utils.clip_grad_norm_(self.weights, self.clip, foreach=self.together)
            return
        norms = torch._foreach_norm([p.grad for p in self.weights if p.grad is not None])
        norm = torch.linalg.vector_norm(torch.stack(norms))  # torch's total norm asks each where it lies
        scale = norm.add_(CLIP_EPS).div_(self.clip).clamp_(min=1.0)
        self.optimizer.grad_scale = scale  # type: ignore[attr-defined]


def set_aside(value: Tensor) -> Tensor:
    """A copy in the CPU's memory, where there is more; the shard of a sharded tensor stays on its device."""
    return value.clone() if hasattr(value, "to_local") else value.to("cpu", copy=True)


def kept(value: Tensor, before: Tensor | None, beside: Tensor) -> Tensor:
    """A copy of a value on the device of `beside`, in the memory of `before` where it fits: a recorded update reads it
    there."""
    if before is None or before.shape != value.shape or before.dtype != value.dtype:
        return value.clone().to(beside.device)
    return before.copy_(value)


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
        self._starts = True  # with the next step
        self._weights = dict(model.named_parameters()) if decay else {}

    def allocate(self) -> None:
        """Take memory before a step changes anything."""
        if not self.mean:
            self.mean = {name: torch.empty_like(p, requires_grad=False) for name, p in self._weights.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Add the weights after a step."""
        means, weights = list(self.mean.values()), list[Tensor](self._weights.values())
        if self._starts and means:
            for mean, weight in zip(means, weights, strict=True):  # of shards torch copies no lists
                mean.copy_(weight)
        elif means:
            torch._foreach_lerp_(means, weights, 1.0 - self.decay)
        self._starts = False

    def restore(self, mean: Mapping[str, Tensor]) -> None:
        """Continue from a saved mean; an empty one starts over."""
        parameters = dict(self.model.named_parameters())
        self.mean = {name: kept(mean[name], self.mean.get(name), p) for name, p in parameters.items()} if mean else {}
        self._starts = not mean

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
