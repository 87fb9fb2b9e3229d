"""Change the weights by their gradients: clipping, the optimizer, and the moving average of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bench.core.errors import UserError
from bench.study.cell import Recipe
from bench.study.registry import load

CLIP_EPS = 1e-6  # added to the gradients' norm, as in torch.nn.utils.clip_grad_norm_


def make_optimizer(weights: Sequence[nn.Parameter], recipe: Recipe) -> Optimizer:
    """Return the optimizer that the recipe names (bench/train/optimizers/)."""
    made: Optimizer = load("optimizer", recipe.optimizer).make(weights, recipe)
    return made


class OptimizerState:
    """The state of an optimizer as tensors by name, for checkpoints: what it keeps for each weight, and the numbers of
    its parameter groups that it changes (Lamb counts its steps there).

    Args:
        optimizer: the optimizer whose state this is.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._fresh = [_numbers(group) for group in optimizer.param_groups]

    def clear(self) -> None:
        """Reset the optimizer to its initial state."""
        self.optimizer.state.clear()
        for group, fresh in zip(self.optimizer.param_groups, self._fresh, strict=True):
            for key in set(_numbers(group)) - set(fresh):
                del group[key]
            group |= {key: _copy(value) for key, value in fresh.items()}

    def tensors(self, weights: Iterable[tuple[str, nn.Parameter]]) -> dict[str, Tensor]:
        """Return the optimizer's state by the names in a checkpoint: a tensor of a weight as "optimizer.KEY.WEIGHT", a
        number as "optimizer_number.KEY.WEIGHT" (see `KINDS`). Numbers become tensors.

        Args:
            weights: (name, parameter) of each weight.

        Raises:
            UserError: the state holds something that is neither a tensor nor a number.
        """
        made: dict[str, Tensor] = {}
        for name, weight in weights:
            for key, value in self.optimizer.state.get(weight, {}).items():
                if isinstance(value, Tensor):
                    made[f"{TENSOR}.{key}.{name}"] = value
                elif isinstance(value, bool | int | float):
                    made[f"{NUMBER}.{key}.{name}"] = _as_tensor(value)
                elif value is not None:
                    raise UserError(
                        f"{type(self.optimizer).__name__} keeps a {type(value).__name__} as its {key!r}, which no "
                        "checkpoint holds.",
                        "Take another optimizer, or one that keeps tensors and numbers.",
                    )
        for index, (group, fresh) in enumerate(zip(self.optimizer.param_groups, self._fresh, strict=True)):
            for key, value in _numbers(group).items():
                if fresh.get(key) != value:
                    kind = GROUP_TENSOR if isinstance(value, Tensor) else GROUP
                    made[f"{kind}.{key}.{index}"] = _as_tensor(value)
        return made

    def restore(self, tensors: Mapping[str, Tensor], weights: Mapping[str, nn.Parameter]) -> None:
        """Set the optimizer's state to what `tensors()` returned. Tensors are written into the memory of the present
        state where shapes and types agree, because a recorded update reads them there.

        Args:
            tensors: name in the checkpoint -> tensor.
            weights: name -> parameter.
        """
        before = dict(self.optimizer.state)
        self.clear()
        for full, value in tensors.items():
            kind, _, rest = full.partition(".")
            key, _, name = rest.partition(".")
            if kind in (GROUP, GROUP_TENSOR):
                self.optimizer.param_groups[int(name)][key] = value.item() if kind == GROUP else value.clone()
            elif kind == NUMBER:
                self.optimizer.state[weights[name]][key] = value.item()
            elif kind == TENSOR:
                held = before.get(weights[name], {}).get(key)
                self.optimizer.state[weights[name]][key] = kept(value, held, weights[name])


KINDS = TENSOR, NUMBER, GROUP, GROUP_TENSOR = (
    "optimizer",
    "optimizer_number",
    "optimizer_group",
    "optimizer_tensor",
)
"""Prefixes of names in a checkpoint: a tensor or a number kept for a weight, a number or a tensor of a parameter
group."""
Number = bool | int | float | Tensor


def _numbers(group: Mapping[str, Any]) -> dict[str, Number]:
    """Return copies of the numbers in a parameter group of an optimizer, by name, without its learning rate, which the
    schedule sets."""
    return {k: _copy(v) for k, v in group.items() if isinstance(v, Number) and k != "lr"}


def _copy(value: Number) -> Number:
    return value.clone() if isinstance(value, Tensor) else value


def _as_tensor(value: Number) -> Tensor:
    """Return a number as a tensor that holds it exactly: a Python float becomes float64, because torch's default,
    float32, would round it."""
    if isinstance(value, Tensor):
        return value
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)


class Update:
    """Changes the weights by their gradients when called: clips the gradients, calls the optimizer, and updates the
    moving average of the weights.

    Args:
        weights: the parameters to train.
        recipe: optimizer and clipping.
        dtype: the precision in which gradients are computed, a key of `precision.DTYPES`.
        average: the moving average; None without one.
        sharded: whether the weights are sharded over ranks; torch clips such gradients.
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
        self.state = OptimizerState(self.optimizer)
        self.fused: bool = load("optimizer", recipe.optimizer).fused
        if sharded and not self.fused:
            raise UserError(
                f"{recipe.optimizer} looks at whole weights, which sharding=fsdp divides among devices.",
                "Take adamw or sgd, or leave sharding at replicate.",
            )
        self.together = device.partition(":")[0] in ("cpu", "cuda") or None  # None lets torch decide on other devices
        self.divides = dtype != "float32" and not sharded and bool(self.together) and self.fused
        self._rate: float | None = None

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next updates."""
        if rate == self._rate:
            return
        self._rate = rate
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def tensors(self) -> list[Tensor | None]:
        """Return all tensors that an update reads or writes, except the weights; None for a missing gradient."""
        state = [v for held in self.optimizer.state.values() for v in held.values() if isinstance(v, Tensor)]
        return [*(p.grad for p in self.weights), *state, *(self.average.mean.values() if self.average else ())]

    def __call__(self) -> None:
        """Change the weights. Memory is allocated before anything is changed, so that a step which ran out of memory
        can be repeated."""
        if self.average is not None:
            self.average.allocate()
        self._clip()
        self.optimizer.step()
        if self.average is not None:
            self.average.update()

    def _clip(self) -> None:
        """Clip the gradients: scale all of them together so that their norm is at most the recipe's `clip`.

        In bfloat16 the fused optimizer divides gradients by how many times their norm exceeds `clip` (through
        `grad_scale`, which it has for loss scaling). This saves one pass over all gradients. In float32 it is not done,
        because committed results would change in their last bit, nor with sharded weights, whose gradients torch clips.
        """
        if not self.clip:
            return
        if not self.divides:
            nn.utils.clip_grad_norm_(self.weights, self.clip, foreach=self.together)
            return
        norms = torch._foreach_norm([p.grad for p in self.weights if p.grad is not None])
        norm = torch.linalg.vector_norm(torch.stack(norms))  # torch's own total norm also checks each tensor's device
        scale = norm.add_(CLIP_EPS).div_(self.clip).clamp_(min=1.0)
        self.optimizer.grad_scale = scale  # type: ignore[attr-defined]


def set_aside(value: Tensor) -> Tensor:
    """Return a copy of a tensor in host memory, which is larger than a device's; a copy of a sharded tensor stays on
    its device."""
    return value.clone() if hasattr(value, "to_local") else value.to("cpu", copy=True)


def kept(value: Tensor, before: Tensor | None, beside: Tensor) -> Tensor:
    """Return a copy of `value`: in the memory of `before` if shape and dtype agree, because a recorded update reads it
    there, else in new memory on the device of `beside`."""
    if before is None or before.shape != value.shape or before.dtype != value.dtype:
        return value.clone().to(beside.device)
    return before.copy_(value)


class Ema:
    """The exponential moving average of a model's parameters (Polyak averaging), with which it is evaluated: a ← decay
    · a + (1 − decay) · p after every step, a = p after the first. Buffers are not averaged.

    The average is part of the training's state: a cool-down that branches off the shared trunk continues the trunk's
    average, and the trunk gets its own back afterwards.

    Args:
        decay: 0 switches averaging off: nothing is kept, and the model's own weights are evaluated.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.mean: dict[str, Tensor] = {}
        self._starts = True  # whether the average starts anew with the next step
        self._weights = dict(model.named_parameters()) if decay else {}

    def allocate(self) -> None:
        """Allocate the average's memory, before a step changes anything."""
        if not self.mean:
            self.mean = {name: torch.empty_like(p, requires_grad=False) for name, p in self._weights.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Update the average with the model's present weights, after a step."""
        means, weights = list(self.mean.values()), list[Tensor](self._weights.values())
        if self._starts and means:
            for mean, weight in zip(means, weights, strict=True):  # torch cannot copy lists of sharded tensors at once
                mean.copy_(weight)
        elif means:
            torch._foreach_lerp_(means, weights, 1.0 - self.decay)
        self._starts = False

    def restore(self, mean: Mapping[str, Tensor]) -> None:
        """Set the average to a saved one, by the names of the parameters; if it is empty, the average starts anew with
        the next step."""
        parameters = dict(self.model.named_parameters())
        self.mean = {name: kept(mean[name], self.mean.get(name), p) for name, p in parameters.items()} if mean else {}
        self._starts = not mean

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights inside the `with` block; afterwards it has exactly its own again."""
        if not self.mean:
            yield
            return
        own = {name: set_aside(value) for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.mean, strict=False)
        try:
            yield
        finally:
            self.model.load_state_dict(own)
