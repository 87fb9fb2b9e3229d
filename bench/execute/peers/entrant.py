"""One contender in a process of its own: the task as JSON on the first line of standard input, then a number of steps
per line; answers are JSON lines on standard output. Between two lines it waits and takes no processor time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.core import registry
from bench.core.spec import Cell, Recipe, cell_from_json
from bench.cost import timing as speed
from bench.data.image_set import ImageSet
from bench.data.load import load
from bench.execute.peers import builders
from bench.execute.peers.contenders import Contender
from bench.tasks._features import network_input
from bench.train.batches import Batches
from bench.train.step import Step

COMPARED = 5  # first steps whose losses are kept, to show that all do the same work
HEAD_STD = 0.02  # of the head's initial weights: the paper's zeros would hide the body from the first step

StepOnce = Callable[[int], Tensor]
"""Number of the step -> its loss."""


def resident(cell: Cell, root: Path | None = None) -> ImageSet:
    """The cell's images at the model's size, in memory as uint8: no contender decodes or resizes while it is timed."""
    images = load(cell.data, "train", root=root, num_images=cell.num_images)
    sizes = {"image_size": cell.image_size, "channels": cell.channels}
    x_NCHW = network_input(torch.from_numpy(np.array(images.images_NHWC[:])), **sizes)
    pixels_NHWC = x_NCHW.add_(1.0).mul_(127.5).round_().clamp_(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
    return ImageSet(
        name=images.name,
        split=images.split,
        images_NHWC=pixels_NHWC.contiguous().numpy(),
        labels_N=images.labels_N,
        class_names=images.class_names,
        kind=images.kind,
    )


def network(cell: Cell, num_classes: int) -> nn.Module:
    """Our model with the weights that every contender starts from."""
    torch.manual_seed(cell.seed)
    sizes: dict[str, Any] = {"image_size": cell.image_size, "channels": cell.channels, "num_classes": num_classes}
    model = registry.build_model(cell.model, **sizes, **dict(cell.model_options))
    head = [p for name, p in model.named_parameters() if name.startswith("head.") and name.endswith("weight")]
    for weight in head:
        nn.init.normal_(weight, std=HEAD_STD)
    return model


def own_step(model: nn.Module, recipe: Recipe, batches: Batches, device: str) -> tuple[StepOnce, str]:
    """This project's step, and the dtype that its policy chose."""
    step = Step(model=model, recipe=recipe, device=device)
    if step.compiles:
        step.rehearse(*batches(0))

    def once(number: int) -> Tensor:
        loss = step(*batches(number), lr=recipe.lr, seed=number)
        if step.micro_batch < recipe.batch:  # the others' batches are not done in parts
            raise speed.OutOfMemory
        return loss

    return once, step.dtype


def plain_step(model: nn.Module, recipe: Recipe, batches: Batches, device: str, contender: Contender) -> StepOnce:
    """The loop that everybody writes: zero_grad, forward, backward, clip, step."""
    options = {"fused": True} if contender.tuned else {}
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.lr, betas=recipe.betas, weight_decay=recipe.weight_decay, **options
    )
    forward = with_compile(model, device) if contender.compiled else model

    def once(number: int) -> Tensor:
        x_BCHW, labels_B = batches(number)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16, enabled=contender.tuned):
            loss = F.cross_entropy(forward(x_BCHW), labels_B)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        return loss.detach()

    return once


def with_compile(model: nn.Module, device: str) -> Callable[[Tensor], Tensor]:
    """On a GPU the whole model. On a CPU its Transformer blocks, which share one compilation: nearly all of the gain in
    seconds instead of minutes.

    Raises:
        NoCounterpart: on a CPU, a model without such blocks.
    """
    if device != "cpu":
        return torch.compile(model, mode="max-autotune")
    blocks = getattr(model, "blocks", None)
    if blocks is None:
        raise builders.NoCounterpart("has no Transformer blocks; compiling convolutions for a CPU takes minutes")
    for block in blocks:
        block.compile()
    return model


def prepare(task: dict[str, Any]) -> tuple[StepOnce, dict[str, Any]]:
    """The step that a task asks for, and what is known about it before it runs."""
    cell, contender, device = cell_from_json(task["cell"]), Contender(**task["contender"]), task["device"]
    images = resident(cell, Path(task["data_root"]) if task["data_root"] else None)
    scaled = True if contender.package else None  # only our step takes pixels
    batches = Batches(images, recipe=cell.recipe, seed=cell.seed, device=device, scaled=scaled)
    ours = network(cell, images.num_classes)
    facts: dict[str, Any] = {"same_function": True, "dtype": contender.dtype, "params": count_params(ours)}
    if contender.package is None:
        step, facts["dtype"] = own_step(ours.to(device).train(), cell.recipe, batches, device)
        return step, facts
    model, facts["same_function"] = builders.build(
        contender.package, ours, name=cell.model, image_size=cell.image_size, num_classes=images.num_classes
    )
    facts["params"] = count_params(model)
    return plain_step(model.to(device).train(), cell.recipe, batches, device, contender), facts


def count_params(model: nn.Module) -> int:
    """Number of weights."""
    return sum(p.numel() for p in model.parameters())


class Entrant:
    """Counts steps, so that every call trains on the next batch."""

    def __init__(self, step: StepOnce, device: str) -> None:
        self.step, self.device, self.number = step, device, 0
        self.losses: list[Tensor] = []

    def once(self) -> None:
        loss = self.step(self.number)
        if len(self.losses) < COMPARED:
            self.losses.append(loss)
        self.number += 1

    def warm_up(self, batch: int, pace: speed.Pace) -> dict[str, Any]:
        """The compared steps, then until the time of a step settles."""
        workload = speed.Workload(name="step", call=self.once, images=batch)
        first = speed.timed(self.once, device=self.device)
        speed.timed(self.once, device=self.device, calls=COMPARED - 1)
        speed.warm_up(workload, device=self.device, pace=pace)
        losses = [float(loss) for loss in self.losses]
        return {"first_call_seconds": first, "call_seconds": workload.call_seconds, "losses": losses}

    def window(self, calls: int) -> float:
        """Seconds of `calls` steps."""
        return speed.timed(self.once, device=self.device, calls=calls)


def main() -> None:
    def say(**values: Any) -> None:
        print(json.dumps(values), flush=True)

    task = json.loads(sys.stdin.readline())
    torch.set_num_threads(task["threads"])
    try:
        step, facts = prepare(task)
        entrant = Entrant(step, task["device"])
        pace = speed.Pace() if task["device"] != "cpu" else speed.CPU_PACE
        say(**facts, **entrant.warm_up(task["cell"]["recipe"]["batch"], pace))
        for line in sys.stdin:
            say(seconds=entrant.window(int(line)))
    except builders.NoCounterpart as error:
        say(left_out=str(error))
    except speed.OutOfMemory:
        say(left_out="out of memory")


if __name__ == "__main__":
    main()
