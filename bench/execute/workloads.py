"""The workloads that the job `speed` times: inference, a training step, a compiled model and a reference model, on
made-up images."""

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
    """The model that is timed, at one input size on one device.

    Attributes:
        model: name of the model.
        image_size: pixels per side.
        channels: channels of the images.
        device: such as "cpu" or "cuda".
        dtype: precision of the forward pass, as in training.
        options: (name, value) of each option of the model.
    """

    model: str
    image_size: int
    channels: int
    device: str
    dtype: str
    options: tuple[tuple[str, Any], ...] = ()

    def build(self, device: str | None = None) -> nn.Module:
        """Return the model with its initial weights, in evaluation mode. `device`: "meta" for a model without memory
        for weights; None: the subject's device."""
        torch.manual_seed(0)
        sizes: dict[str, Any] = {"image_size": self.image_size, "channels": self.channels, "num_classes": CLASSES}
        if device == "meta":
            with meta():
                return registry.build_model(self.model, **sizes, **dict(self.options)).eval()
        return registry.build_model(self.model, **sizes, **dict(self.options)).to(self.device).eval()

    def images(self, batch: int) -> torch.Tensor:
        """Return `batch` made-up images in [-1, 1], x_BCHW, on the device. They repeat after DRAWN images: to make all
        of them different would take the processor a minute, and 20 GB, in the search for the largest batch."""
        generator = torch.Generator().manual_seed(0)
        shape = (min(batch, DRAWN), self.channels, self.image_size, self.image_size)
        drawn = torch.rand(shape, generator=generator).mul_(2).sub_(1).to(self.device)
        return drawn if batch <= DRAWN else drawn[torch.arange(batch, device=self.device) % DRAWN]

    def inference(self, model: Callable[..., Any], batch: int, *, kept: list[torch.Tensor] | None = None) -> Workload:
        """Return a forward pass as a workload. Its images are made in the first call, which is not timed; they are not
        made earlier because memory may not suffice for them.

        Args:
            batch: number of images.
            kept: a list that several workloads share: it holds the largest batch of images that any of them has made,
                of which the others use a part. None: the workload keeps its own.
        """
        kept = [] if kept is None else kept

        def call() -> None:
            if not kept or len(kept[0]) < batch:
                kept[:] = [self.images(batch)]
            with torch.inference_mode(), precision.autocast(self.dtype, self.device):
                model(kept[0][:batch])

        return Workload(name=f"inference {batch}", call=call, images=batch)

    def training(self, model: nn.Module, batch: int) -> Workload:
        """Return a whole step of the training loop as a workload. Its learning rate is so small that the weights hardly
        change."""
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
        """Return a training step as a workload, warmed up, at the first batch size of `batch`, a half, a quarter, …
        that fits into memory; None if not even one image fits. `pace`: how long the warm-up takes."""
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
        """Return the largest batch size at which inference fits into the device's memory, found by trying. `start`: the
        first size to try; `should_stop`: returns whether to end the search."""
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
    """Context manager that counts the bytes of tensors that are made within it, until they are freed.

    Attributes:
        live: bytes at present.
        peak: the largest value of `live` so far.
    """

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
    """Return the most bytes that are alive at once in `model(images)` or, if `training`, in a whole training step with
    AdamW.

    Args:
        model, images: both on the meta device, so that nothing is computed; their dtypes determine the sizes.
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
    """Return the largest batch size whose step needs at most `budget` bytes. It follows from two small batches, since
    peak memory is linear in the batch size. `image_shape`: (channels, height, width)."""

    def peak(batch: int) -> int:
        return peak_bytes(model, torch.empty(batch, *image_shape, device="meta"), training=training)

    few, many = peak(8), peak(16)
    per_image = (many - few) / 8
    return max(0, int((budget - (few - 8 * per_image)) / per_image)) if per_image > 0 else 0


@functools.lru_cache(maxsize=64)  # the cells of a study ask again for every seed
def predicted_batches(subject: Subject) -> dict[str, int]:
    """Return "inference" or "training" -> the largest batch size that fits into MAX_MEMORY_BYTES, predicted from the
    shapes of the tensors that are alive at once."""
    model, shape = subject.build("meta"), (subject.channels, subject.image_size, subject.image_size)
    return {
        mode: largest_batch(model, shape, budget=MAX_MEMORY_BYTES, training=mode == "training")
        for mode in ("inference", "training")
    }


def reference(device: str, dtype: str) -> Workload:
    """Return inference of a fixed small model as a workload. If its speed differs between two cells, the machine was in
    another state."""
    sizes = {key: value for key, value in REFERENCE.items() if key != "model"}
    subject = Subject(model=REFERENCE["model"], image_size=28, channels=1, device=device, dtype=dtype)
    model = registry.build_model(REFERENCE["model"], **sizes).to(device).eval()
    workload = subject.inference(model, REFERENCE_BATCH)
    workload.name = "reference"
    return workload
