"""One optimizer step: loss, forward and backward pass, clipping, update, and the average of the weights.

Pre-training, fine-tuning and the speed suite share it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from bench.core.device import is_out_of_memory, release
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
    def writes_in_place(self) -> bool:
        """Whether gradients always appear at the same places in memory."""
        return False

    def network(self, network: nn.Module) -> Any:
        """What computes in place of a network."""
        return network

    def function(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """What computes in place of a function of tensors."""
        return function

    def attention(self, batch: int) -> contextlib.AbstractContextManager[Any]:
        """The context that a forward pass of so many images runs in."""
        return contextlib.nullcontext()

    def kernels(self) -> tuple[str, ...]:
        """Names of the attention kernels in use, the fastest first ("plain": none is fused, as on a CPU); none for a
        network without attention."""
        return ("plain",) if hasattr(getattr(self.model, "config", None), "attention_width") else ()

    def passes(self, both_ways: Callable[..., Tensor], *, leaves: Callable[[], list[Tensor]]) -> Callable[..., Tensor]:
        """What runs in place of forward and backward, whose gradients are found at `leaves()`."""
        return both_ways

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
    ) -> None:
        self.model, self.recipe, self.device, self.ranks = model, recipe, device, ranks
        self.optimizer = make_optimizer(model, recipe)
        self.micro_batch = recipe.micro_batch or recipe.batch
        self.dtype = dtype = precision.resolve(recipe.dtype, device, model)
        self.sharded = ranks.is_sharded(model)
        self.run_as = passes_of(
            model, device=device, dtype=precision.DTYPES[dtype], ranks=ranks.size, sharded=self.sharded
        )
        if ranks.size > 1 and not self.sharded:
            working: precision.Working = precision.SharedWorking(
                model, dtype, apart=self.compiles, share=ranks.data_parallel
            )
        else:
            working = precision.Working(model, "float32" if self.sharded else dtype, apart=self.compiles)
        self.working = working
        working.network = self.run_as.network(working.network)
        working.input = self.run_as.function(working.input)
        working.keeps_gradients = not self.run_as.writes_in_place
        loss_of, run_as = make_loss(recipe), self.run_as

        def both_ways(x_bCHW: Tensor, labels_b: Tensor, *, weight: float) -> Tensor:
            """Forward and backward of a micro-batch; a closure, so that a recording of it does not hold the step."""
            with label("forward"), run_as.attention(len(labels_b)):
                output = working(x_bCHW)
                loss = loss_of(*own_targets(output)) if isinstance(output, tuple) else loss_of(output, labels_b)
            with label("backward"):
                loss = loss * weight
                loss.backward()
            return loss.detach()

        self.both_ways = run_as.passes(both_ways, leaves=working.leaves)
        self.exchanging = working.shared if isinstance(working, precision.SharedWorking) else model

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
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        has_state = bool(self.optimizer.state)
        while True:
            try:
                loss = self.gradients_that_fit(x_BCHW, labels_B, seed)
                with label("optimizer"):
                    self._clip()
                    self.optimizer.step()
                return loss
            except (RuntimeError, MemoryError) as error:
                images = min(self.micro_batch, len(labels_B))
                if images == 1 or isinstance(error, TooLarge) or not self._lacks_memory(error, images):
                    raise
            # outside the handler the traceback is gone; the optimizer had changed nothing: it allocates before it does,
            # but a parameter may have been left with half of its state
            if not has_state:
                self.optimizer.state.clear()
            self._go_on_with(images // 2)

    def _clip(self) -> None:
        """Scale the gradients, together, to the recipe's norm at most.

        In bfloat16 the fused optimizer divides by the excess (`grad_scale`, which it has for loss scaling): one pass
        over all gradients less. In float32 committed results would change a last bit; shards are torch's to clip.
        """
        limit = self.recipe.clip
        if not limit:
            return
        if self.dtype == "float32" or self.sharded or self.device.partition(":")[0] not in ("cpu", "cuda"):
            nn.utils.clip_grad_norm_(self.model.parameters(), limit, foreach=True)
            return
        norm = nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None], foreach=True)
        self.optimizer.grad_scale = norm.add_(CLIP_EPS).div_(limit).clamp_(min=1.0)  # type: ignore[attr-defined]

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
                self.optimizer.zero_grad(set_to_none=True)
                self.working.refresh()
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
            self._go_on_with(images // 2)

    def _go_on_with(self, micro_batch: int) -> None:
        """After memory ran out: give back what can be, and take fewer images at a time."""
        self.optimizer.zero_grad(set_to_none=True)
        self.micro_batch = micro_batch
        self.run_as.forget()
        release(self.device)

    def _seed_dropout(self, seed: int) -> None:
        """`torch.manual_seed` where this step draws; it would visit every other kind of device too: 0.3 ms."""
        if self.device.partition(":")[0] == "cpu":
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)

    def gradients(self, x_BCHW: Tensor, labels_B: Tensor, seed: int, *, exchange: bool = True) -> Tensor:
        """Accumulate the gradient of the mean loss of this rank's batch, one micro-batch after another. Ranks exchange
        it while the last is in hand. Returns that loss."""
        batch = len(labels_B)
        parts = list(zip(x_BCHW.split(self.micro_batch), labels_B.split(self.micro_batch), strict=True))
        total = torch.zeros((), device=self.device)
        for index, (x_bCHW, labels_b) in enumerate(parts):
            place = self.ranks.rank * len(parts) + index  # in the global batch
            self._seed_dropout(stream(seed, "micro-batch", place) if place else seed)
            if self.ranks.size > 1:
                self.ranks.set_gradient_sync(self.exchanging, last=exchange and index == len(parts) - 1)
            # each image weighs 1 / batch, whatever the size of the micro-batch it is in
            total += self.both_ways(x_bCHW, labels_b, weight=len(labels_b) / batch)
            with label("backward"):
                self.working.collect()
        return total


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
