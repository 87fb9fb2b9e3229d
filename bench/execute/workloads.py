"""The workloads of the speed suite: inference, a training step, a compiled model, and a reference, on made-up
images."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench.core.device import OutOfMemory, meta, release, timed
from bench.cost import timing as speed
from bench.cost.memory import AssumeFused
from bench.cost.timing import Workload
from bench.cost.trace import label
from bench.cost.units import OPTIMIZER_BYTES
from bench.study import registry
from bench.study.cell import Recipe
from bench.train import precision
from bench.train.rehearsal import rehearse
from bench.train.step import Step

CLASSES = 1000
DRAWN = 64  # distinct made-up images
MAX_MEMORY_BYTES = 16 * 2**30
BUDGET_NAME = "16 GiB, the memory of one TPUv3 core"
REFERENCE: dict[str, Any] = {"model": "ViT-nano/7", "image_size": 28, "channels": 1, "num_classes": 10}
REFERENCE_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One model at one input size on one device; `dtype` is that of the forward pass, as in training."""

    model: str
    image_size: int
    channels: int
    device: str
    dtype: str
    options: tuple[tuple[str, Any], ...] = ()

    def build(self, device: str | None = None) -> nn.Module:
        """Build the model with its initial weights, in evaluation mode; on `device` "meta" it has no weights."""
        torch.manual_seed(0)
        sizes: dict[str, Any] = {"image_size": self.image_size, "channels": self.channels, "num_classes": CLASSES}
        if device == "meta":
            with meta():
                return registry.build_model(self.model, **sizes, **dict(self.options)).eval()
        return registry.build_model(self.model, **sizes, **dict(self.options)).to(self.device).eval()

    def images(self, batch: int) -> torch.Tensor:
        """Return made-up images in [-1, 1], x_BCHW. They repeat after DRAWN, on the device: to make them all different
        would take the processor a minute, and 20 GB, where the largest batch is searched for."""
        generator = torch.Generator().manual_seed(0)
        shape = (min(batch, DRAWN), self.channels, self.image_size, self.image_size)
        drawn = torch.rand(shape, generator=generator).mul_(2).sub_(1).to(self.device)
        return drawn if batch <= DRAWN else drawn[torch.arange(batch, device=self.device) % DRAWN]

    def inference(self, model: Callable[..., Any], batch: int, *, kept: list[torch.Tensor] | None = None) -> Workload:
        """Return a forward pass as a workload. Its images are made in the first call, which is not timed, because they
        may not fit into memory.

        Args:
            kept: a list that several workloads share: it holds the largest batch that any of them has made, and the
                others use a part of that.
        """
        kept = [] if kept is None else kept

        def call() -> None:
            if not kept or len(kept[0]) < batch:
                kept[:] = [self.images(batch)]
            with torch.inference_mode(), precision.autocast(self.dtype, self.device):
                model(kept[0][:batch])

        return Workload(name=f"inference {batch}", call=call, images=batch)

    def training(self, model: nn.Module, batch: int) -> Workload:
        """Return a whole step of the training loop as a workload, at a learning rate that hardly moves the weights."""
        recipe = Recipe(batch=batch, lr=1e-6, dtype=self.dtype)
        step = Step(model=model, recipe=recipe, device=self.device)
        kept: list[torch.Tensor] = []

        def call() -> None:
            with label("data"):
                if not kept:
                    kept.extend((self.images(batch), torch.arange(batch, device=self.device) % CLASSES))
                    if step.compiles:
                        rehearse(step, *kept, whole=True)
                images, labels = kept
            step(images, labels, lr=recipe.lr, seed=0)
            if step.micro_batch < batch:  # the step was divided into parts, which is another workload
                raise OutOfMemory

        return Workload(name=f"training {batch}", call=call, images=batch)

    def largest_training(self, batch: int, *, pace: speed.Pace) -> Workload | None:
        """Return a training step, warmed up, at `batch` or the largest half, quarter, … of it that fits; None if none
        does."""
        model = self.build().train()
        while batch >= 1:
            workload = self.training(model, batch)
            try:
                speed.warm_up(workload, device=self.device, pace=pace)
                return workload
            except OutOfMemory:
                model.zero_grad(set_to_none=True)
                batch //= 2
        return None

    def largest_inference(self, *, start: int, should_stop: Callable[[], bool]) -> int:
        """Return the largest batch of inference that the device takes, found by trying."""
        model = self.build()

        def fits(batch: int) -> bool:
            if should_stop():
                return False
            try:
                timed(self.inference(model, batch).call, device=self.device)
            except OutOfMemory:
                return False
            finally:
                release(self.device)
            return True

        return speed.search_largest(fits, start=start)


# -- peak memory, predicted from shapes: every tensor that is alive at once, without what a real device needs besides
# (workspaces of its kernels, its own context, fragmentation) ------------------------------------------------------


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that are made while it is active, until they are freed. `live`: bytes at present;
    `peak`: the most at once."""

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        known = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in known:
                self._follow(tensor.untyped_storage())
        return result

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._seen:
            return
        self._seen.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.live -= size


def peak_bytes(model: nn.Module, images: torch.Tensor, *, training: bool) -> int:
    """Return the bytes alive at once at the worst moment of `model(images)`, or of a whole training step with AdamW.

    Args:
        model, images: both on the meta device; the numbers are those of their dtypes.
    """
    weights = sum(t.untyped_storage().nbytes() for t in (*model.parameters(), *model.buffers()))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    with LiveBytes() as tracker, AssumeFused():
        if training:
            model(images).sum().backward()
        else:
            with torch.no_grad():
                model(images)
    for parameter in model.parameters():
        parameter.grad = None
    extra = OPTIMIZER_BYTES * parameters if training else 0
    return weights + extra + images.untyped_storage().nbytes() + tracker.peak


def largest_batch(model: nn.Module, image_shape: tuple[int, int, int], *, budget: int, training: bool) -> int:
    """Return the most images whose step stays within `budget` bytes, since peak memory is linear in the batch size."""

    def peak(batch: int) -> int:
        return peak_bytes(model, torch.empty(batch, *image_shape, device="meta"), training=training)

    few, many = peak(8), peak(16)
    per_image = (many - few) / 8
    return max(0, int((budget - (few - 8 * per_image)) / per_image)) if per_image > 0 else 0


@functools.lru_cache(maxsize=64)  # the cells of a study ask again for every seed
def predicted_batches(subject: Subject) -> dict[str, int]:
    """Return the largest batches of inference and of training that fit in MAX_MEMORY_BYTES, from the shapes of tensors
    alive at once."""
    model, shape = subject.build("meta"), (subject.channels, subject.image_size, subject.image_size)
    return {
        mode: largest_batch(model, shape, budget=MAX_MEMORY_BYTES, training=mode == "training")
        for mode in ("inference", "training")
    }


def reference(device: str, dtype: str) -> Workload:
    """Return inference of a fixed small model as a workload: where its speed differs between two cells, the machine's
    did."""
    sizes = {key: value for key, value in REFERENCE.items() if key != "model"}
    subject = Subject(model=REFERENCE["model"], image_size=28, channels=1, device=device, dtype=dtype)
    model = registry.build_model(REFERENCE["model"], **sizes).to(device).eval()
    workload = subject.inference(model, REFERENCE_BATCH)
    workload.name = "reference"
    return workload
