"""One optimizer step: loss, forward and backward pass, clipping, update, and the average of the weights.

Pre-training, fine-tuning and the speed suite share it.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from bench.core.device import generators, is_out_of_memory, release
from bench.core.errors import UserError
from bench.core.seeds import stream
from bench.core.spec import Recipe
from bench.cost.trace import label
from bench.train import modes, precision
from bench.train.ranks import ONE_RANK, RankOutOfMemory, Ranks

if TYPE_CHECKING:
    from bench.train.compiled import Compiled

CLIP_EPS = 1e-6  # added to the norm, as torch.nn.utils.clip_grad_norm_ does


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
        recordable: whether the rate is a tensor on the device, so that a CUDA graph can be told another one. It is then
            a float32.
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
        recordable: bool = False,
        sharded: bool = False,
    ) -> None:
        self.weights, self.clip, self.average = weights, recipe.clip, average
        self.optimizer = make_optimizer(weights, recipe)
        self.together = device.partition(":")[0] in ("cpu", "cuda") or None  # elsewhere torch knows, and may refuse
        self.divides = dtype != "float32" and not sharded and bool(self.together)
        self._rate: float | None = None
        if recordable:
            # what torch warns of where a graph could be recorded and is not, as in every first step
            self.optimizer._warned_capturable_if_run_uncaptured = True  # type: ignore[attr-defined]
            rate = torch.zeros((), device=device)
            for group in self.optimizer.param_groups:
                group |= {"lr": rate, "capturable": True}

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


def small_update(recipe: Recipe, *, dtype: str, device: str) -> Update:
    """An update of a few weights by a recipe, whose gradients are there, to be tried."""
    weight = nn.Parameter(torch.linspace(-1.0, 1.0, 8, device=device))
    weight.grad = torch.linspace(3.0, -1.0, 8, device=device)
    average = Ema(nn.ParameterList([weight]), recipe.average)
    made = Update([weight], recipe=recipe, dtype=dtype, device=device, average=average, recordable=True)
    made.set_rate(recipe.lr)
    return made


class AsWritten:
    """How the passes of a network are run: here as they are written, elsewhere compiled (`bench.train.compiled`).

    Attributes:
        mode: of `bench.train.modes`.
        obstacle: why nothing was compiled that should have been.
    """

    mode = "off"
    obstacle: str | None = None

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    @property
    def compiles(self) -> bool:
        return self.mode != "off"

    @property
    def how(self) -> str:
        """The mode, and what kept it from being another."""
        return self.mode

    @property
    def records(self) -> bool:
        """Whether what can be is recorded as CUDA graphs."""
        return False

    @property
    def writes_in_place(self) -> bool:
        """Whether gradients always appear at the same places in memory."""
        return False

    def network(self, network: nn.Module) -> Any:
        """The module that computes in place of a network."""
        return network

    def function(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The function that computes in place of a function of tensors."""
        return function

    def attention(self, batch: int) -> contextlib.AbstractContextManager[Any]:
        """The context that a forward pass of so many images runs in."""
        return contextlib.nullcontext()

    def kernels(self) -> tuple[str, ...]:
        """Names of the attention kernels in use, the fastest first ("plain": none is fused, as on a CPU); none for a
        network without attention."""
        return ("plain",) if hasattr(getattr(self.model, "config", None), "attention_width") else ()

    def passes(self, both_ways: Callable[..., Tensor], *, leaves: Callable[[], list[Tensor]]) -> Callable[..., Tensor]:
        """The function that runs in place of forward and backward, whose gradients are found at `leaves()`."""
        return both_ways

    def update(self, run: Update, *, like_it: Callable[[], Update]) -> Callable[[], None]:
        """The function that runs in place of an update: see `bench.train.recorded.RecordedUpdate`."""
        return run

    def forget(self) -> None:
        """Give back memory that is kept between steps."""


def passes_of(model: nn.Module, *, device: str, dtype: torch.dtype, ranks: int, sharded: bool) -> AsWritten | Compiled:
    """How a network's passes are run on a device. One that is sharded is never compiled as a whole."""
    mode = "off" if sharded else modes.mode_for(device, ranks=ranks)
    if mode == "off" and not device.startswith("cuda"):
        return AsWritten(model)
    from bench.train.compiled import Compiled

    return Compiled(model, device=device, dtype=dtype, mode=mode, ranks=ranks)


class TooLarge(torch.OutOfMemoryError):
    """Not even one image at a time fits."""


def own_targets(output: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Logits and the targets that a self-supervised network brings.

    Raises:
        UserError: it returns something else, such as the logits of an auxiliary head.
    """
    if len(output) != 2 or output[1].is_floating_point():
        raise UserError(
            f"In training the network returns {len(output)} tensors that are not logits and class numbers.",
            "Return the logits alone, or with the class number that each row of them is to predict.",
        )
    return output[0], output[1]


def working_weights(model: nn.Module, dtype: str, *, run_as: AsWritten | Compiled, ranks: Ranks) -> precision.Working:
    """The weights in the precision in which passes compute, run as `run_as` says."""
    sharded = ranks.is_sharded(model)
    if ranks.size > 1 and not sharded:
        working: precision.Working = precision.SharedWorking(
            model, dtype, apart=run_as.compiles, share=ranks.data_parallel
        )
    else:
        working = precision.Working(model, "float32" if sharded else dtype, apart=run_as.compiles)
    working.network = run_as.network(working.network)
    working.input = run_as.function(working.input)
    working.keeps_gradients = not run_as.writes_in_place
    return working


def forward_and_backward(
    working: precision.Working, loss_of: Loss, *, run_as: AsWritten | Compiled
) -> Callable[..., Tensor]:
    """The function that leaves the gradients of a micro-batch and returns its loss. A recording of it does not hold the
    step."""

    def both_ways(x_bCHW: Tensor, labels_b: Tensor, *, weight: float, alone: bool) -> Tensor:
        """Forward and backward of a micro-batch, and where it is `alone` all that belongs to a batch."""
        if alone:
            working.refresh()
        with label("forward"), run_as.attention(len(labels_b)):
            output = working(x_bCHW)
            loss = loss_of(*own_targets(output)) if isinstance(output, tuple) else loss_of(output, labels_b)
        with label("backward"):
            loss = loss * weight
            loss.backward()
        if alone:
            working.collect()
        return loss.detach()

    return both_ways


class Step:
    """Forward, loss, backward, clipping and update of one batch.

    Where memory runs out the micro-batch is halved and the step done again from the weights before it: nothing is
    changed before all gradients are there. Then `micro_batch` is the size that fitted, also for the steps that follow.
    Several ranks end instead, with an error that names a smaller micro-batch: the others wait in the middle of a pass.

    Args:
        model: on `device`, in training mode.
        recipe: optimizer, precision, loss, clipping, and the first micro-batch: images that pass through the network at
            once. Gradients add up to those of the whole batch, within rounding; but dropout draws differ, as would
            statistics over a batch.
        average: of the weights, kept up to date.
        ranks: the processes that share each batch. Dropout follows the micro-batch's place in the global batch, so
            that draws do not depend on the number of ranks where `micro_batch` divides every rank's share.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        recipe: Recipe,
        device: str,
        ranks: Ranks = ONE_RANK,
        average: Ema | None = None,
    ) -> None:
        self.model, self.recipe, self.device, self.ranks = model, recipe, device, ranks
        self.weights, self._generators = list(model.parameters()), generators(device)
        self.micro_batch = recipe.micro_batch or recipe.batch
        self.dtype = dtype = precision.resolve(recipe.dtype, device, model)
        self.sharded = ranks.is_sharded(model)
        self.run_as = passes_of(
            model, device=device, dtype=precision.DTYPES[dtype], ranks=ranks.size, sharded=self.sharded
        )
        self.working = working_weights(model, dtype, run_as=self.run_as, ranks=ranks)
        both_ways = forward_and_backward(self.working, make_loss(recipe), run_as=self.run_as)
        self.both_ways = self.run_as.passes(both_ways, leaves=self.working.leaves)
        self.rule = Update(
            self.weights,
            recipe=recipe,
            dtype=dtype,
            device=device,
            average=average,
            recordable=self.run_as.records,
            sharded=self.sharded,
        )
        self.update = self.run_as.update(
            self.rule, like_it=functools.partial(small_update, recipe, dtype=dtype, device=device)
        )
        self.optimizer = self.rule.optimizer
        self.exchanging = self.working.shared if isinstance(self.working, precision.SharedWorking) else model

    @property
    def compiles(self) -> bool:
        return self.run_as.compiles

    def __call__(self, x_BCHW: Tensor, labels_B: Tensor, *, lr: float, seed: int) -> Tensor:
        """Update the model once, at rate `lr`; dropout draws from `seed`. Ranks get their own share of the batch.

        Returns:
            The mean loss over the global batch, detached and on the device: reading it is what waits for the device.

        Raises:
            TooLarge: not even one image at a time fits.
            RankOutOfMemory: memory ran out on this rank, one of several.
        """
        self.rule.set_rate(lr)
        has_state = bool(self.optimizer.state)
        while True:
            try:
                loss = self.gradients_that_fit(x_BCHW, labels_B, seed)
                with label("optimizer"):
                    self.update()
                return loss
            except (RuntimeError, MemoryError) as error:
                images = min(self.micro_batch, len(labels_B))
                if images == 1 or isinstance(error, TooLarge) or not self._lacks_memory(error, images):
                    raise
            # outside the handler the traceback is gone; the optimizer had changed nothing: it allocates before it does,
            # but a parameter may have been left with half of its state
            if not has_state:
                self.optimizer.state.clear()
            self.go_on_with(images // 2)

    def _lacks_memory(self, error: Exception, images: int) -> bool:
        """Whether memory ran out, with so many images at a time.

        Raises:
            RankOutOfMemory: it did on one of several ranks.
        """
        if isinstance(error, dist.DistError) or not is_out_of_memory(error):
            return False
        if self.ranks.size > 1:
            raise RankOutOfMemory(images) from error
        return True

    def gradients_that_fit(self, x_BCHW: Tensor, labels_B: Tensor, seed: int) -> Tensor:
        """Leave the gradients of the global batch with the weights; returns its loss."""
        while True:
            try:
                self.clear()
                loss = self.gradients(x_BCHW, labels_B, seed)
                return loss if self.ranks.size == 1 else self.ranks.mean(loss)
            except (RuntimeError, MemoryError) as error:
                images = min(self.micro_batch, len(labels_B))
                if not self._lacks_memory(error, images):
                    raise
                reason = str(error) or "out of memory"
            # outside the handler the traceback, which holds the activations, is gone
            if images == 1:
                raise TooLarge(reason)
            self.go_on_with(images // 2)

    def clear(self) -> None:
        """Forget all gradients."""
        for weight in self.weights:
            weight.grad = None

    def go_on_with(self, micro_batch: int) -> None:
        """After memory ran out: give back what can be, and take fewer images at a time."""
        self.clear()
        self.micro_batch = micro_batch
        self.working.sums.clear()
        self.run_as.forget()
        release(self.device)

    def gradients(self, x_BCHW: Tensor, labels_B: Tensor, seed: int, *, exchange: bool = True) -> Tensor:
        """Accumulate the gradient of the mean loss of this rank's batch, one micro-batch after another. Ranks exchange
        it while the last is in hand. Returns that loss."""
        batch = len(labels_B)
        parts = list(zip(x_BCHW.split(self.micro_batch), labels_B.split(self.micro_batch), strict=True))
        total: Tensor | None = None
        alone = len(parts) == 1
        if not alone:
            self.working.refresh()
        for index, (x_bCHW, labels_b) in enumerate(parts):
            place = self.ranks.rank * len(parts) + index  # in the global batch
            for generator in self._generators:
                generator.manual_seed(stream(seed, "micro-batch", place) if place else seed)
            if self.ranks.size > 1:
                self.ranks.set_gradient_sync(self.exchanging, last=exchange and index == len(parts) - 1)
            # each image weighs 1 / batch, whatever the size of the micro-batch it is in
            loss = self.both_ways(x_bCHW, labels_b, weight=len(labels_b) / batch, alone=alone)
            total = loss.clone() if total is None else total.add_(loss)
            if not alone:
                with label("backward"):
                    self.working.collect(last=index == len(parts) - 1)
        assert total is not None
        return total


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
