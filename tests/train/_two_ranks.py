"""What each of two ranks does in test_distributed.py: `torchrun --nproc-per-node=2 -m tests.train._two_ranks FOLDER`.

Every rank writes what it saw to FOLDER/rank<number>.json. Importing this module gives the same training on one rank.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.core import registry
from bench.core.errors import Interrupted, UserError
from bench.core.record import Result
from bench.core.spec import Cell, Recipe, TaskSpec, to_json
from bench.data.image_set import ImageSet
from bench.execute.jobs._contract import JobContext
from bench.store.study import CellDirectory
from bench.train.batches import Batches
from bench.train.ranks import ONE_RANK, Ranks
from bench.train.trainer import Saving, Trainer

STEPS, SAVED, CONTINUED = 50, 6, 14  # all; before which a checkpoint is written; to which it is continued
FLOAT = Recipe(batch=16, lr=1e-3, warmup_images=160, dtype="float32", cooldown=0.0)
DROPOUT = (("dropout", 0.2),)

# name: (model, its options, recipe). A micro-batch that divides each rank's share keeps dropout's draws.
CASES: dict[str, tuple[str, tuple, Recipe]] = {
    "vit": ("ViT-pico/14", DROPOUT, replace(FLOAT, micro_batch=4, average=0.9)),
    "vit-fsdp": ("ViT-pico/14", DROPOUT, replace(FLOAT, micro_batch=4, average=0.9, sharding="fsdp")),
    "bit": ("R8x0.125-s2", (), replace(FLOAT, flip=True)),
    "bit-micro": ("R8x0.125-s2", (), replace(FLOAT, flip=True, micro_batch=4)),
    "hybrid-fsdp": ("R5+ViT-pico/4", (), replace(FLOAT, sharding="fsdp")),
    "low": ("ViT-pico/14", DROPOUT, replace(FLOAT, micro_batch=4, dtype="bfloat16")),
    "low-fsdp": ("ViT-pico/14", DROPOUT, replace(FLOAT, micro_batch=4, dtype="bfloat16", sharding="fsdp")),
    "low-whole": ("ViT-pico/14", (), replace(FLOAT, dtype="bfloat16")),
}
ROOM, TRIES = 2, 3  # images that fit where memory is short; steps that are tried there
SHORT = {"vit-fsdp": 14, "low-fsdp": 4, "bit": 12, "bit-micro": 12, "hybrid-fsdp": 6, "low": 6, "low-whole": 6}


def images() -> ImageSet:
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 3
    pixels = (rng.integers(0, 120, (300, 28, 28, 1)) + 60 * labels[:, None, None, None]).astype(np.uint8)
    return ImageSet(
        name="grey", split="train", images_NHWC=pixels, labels_N=labels, class_names=("a", "b", "c"), kind="rendered"
    )


def trainer(case: str, folder: Path, ranks: Ranks = ONE_RANK) -> Trainer:
    """A trainer of the case, at its initial weights."""
    name, options, recipe = CASES[case]
    torch.manual_seed(3)
    whole = registry.build_model(name, image_size=28, channels=1, num_classes=3, **dict(options))
    ranks.check_model(whole)
    model = ranks.shard_model(whole, sharding=recipe.sharding, dtype=recipe.dtype)
    batches = Batches(images(), recipe=recipe, seed=5, device="cpu", ranks=ranks)
    made = Trainer(
        model=model, batches=batches, recipe=recipe, horizons=(STEPS * recipe.batch,), seed=5, device="cpu",
        saving=Saving(folder=folder), ranks=ranks,
    )  # fmt: skip
    model.train()
    return made


def losses(made: Trainer, steps: int, *, save_at: int | None = None) -> list[float]:
    """Losses of the steps up to `steps`; a checkpoint is written before step `save_at`."""
    while made.progress.step < steps:
        if made.progress.step == save_at:
            made.save()
        made.step()
        made.progress.step += 1
        made.progress.work += 1
    return [float(loss) for loss in made.losses]


def caught(work: Callable[[], Any]) -> str:
    """How `work` ends."""
    try:
        return f"returned {work()}"
    except (UserError, Interrupted) as error:
        return f"{type(error).__name__}: {error}"


def fails_on(number: int, ranks: Ranks) -> int:
    if ranks.rank == number:
        raise ValueError("a fuse blew")
    return 7


def interrupted() -> None:
    raise Interrupted("saved at step 3")


def decisions(ranks: Ranks) -> dict[str, Any]:
    """The answers of the calls that ranks decide by."""
    late = [ranks.agree(stop=ranks.rank == 1 and step == 1, save=step == 0) for step in range(4)]
    return {
        "lead": caught(lambda: ranks.run_on_rank0(lambda: {"number": ranks.rank})),
        "lead fails": caught(lambda: ranks.run_on_rank0(lambda: fails_on(0, ranks))),
        "lead interrupted": caught(lambda: ranks.run_on_rank0(interrupted)),
        "everywhere": caught(lambda: ranks.run_on_all(lambda: 7)),
        "everywhere fails": caught(lambda: ranks.run_on_all(lambda: fails_on(1, ranks))),
        "everywhere interrupted": caught(lambda: ranks.run_on_all(lambda: ranks.is_rank0 or interrupted())),
        "exchange": ranks.exchange(ranks.rank),
        "batch norm": caught(lambda: ranks.check_model(nn.Sequential(nn.BatchNorm2d(3)))),
        "agree": late,
    }


TUNING = (("steps", 2), ("batch", 8), ("rates", (0.1,)), ("train_limit", 40), ("test_limit", 50))
JOB = Cell(
    model="ViT-pico/14", data="fashion-mnist", num_images=200, horizons=(0, 96, 192), seed=1,
    tasks=(TaskSpec(task="finetune", data="mnist", options=TUNING), TaskSpec(task="fewshot", data="digits")),
    recipe=replace(FLOAT, cooldown=0.2, micro_batch=4, sharding="fsdp"),
)  # fmt: skip


def job(folder: Path, ranks: Ranks = ONE_RANK) -> Result:
    """What the training job finds, sharded where there are ranks."""
    from bench.execute.jobs.train import run

    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    context = JobContext(
        directory=CellDirectory(folder), attempt=folder, device="cpu", threads=1, progress=nothing,
        should_stop=lambda: False, log=nothing, ranks=ranks,
    )  # fmt: skip
    return run(JOB, context)


class Short(torch.autograd.Function):
    """Nothing, but on a device without room for more than ROOM images at a time: it runs out where it is told."""

    @staticmethod
    def forward(ctx, x, where, room):
        ctx.short = where == "backward" and len(x) > room
        if where == "forward" and len(x) > room:
            raise torch.OutOfMemoryError("no room for activations")
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        if ctx.short:
            raise torch.OutOfMemoryError("no room for gradients")
        return grad, None, None


def short_of_memory(case: str, folder: Path, ranks: Ranks, *, where: str, room: int = ROOM) -> Trainer:
    """A trainer of the case without its micro-batch, on ranks of which the last has no more than `room`."""
    name, options, recipe = CASES[case]
    CASES["short"] = (name, options, replace(recipe, micro_batch=0))
    made = trainer("short", folder, ranks)
    assert made.train_step is not None
    if ranks.rank == ranks.size - 1:
        made.train_step.working.network.blocks[0].register_forward_hook(lambda _, __, x: Short.apply(x, where, room))
    return made


def running_out(folder: Path, ranks: Ranks) -> dict[str, Any]:
    """Losses, a digest of all that was trained, and micro-batches, where memory ran out on one rank and where
    micro-batches were as small from the first; and how it ends where nothing fits."""
    found: dict[str, Any] = {}
    for case in ("vit", "low"):
        name, options, recipe = CASES[case]
        CASES["small"] = (name, options, replace(recipe, micro_batch=ROOM))
        made_by = {"small": trainer("small", folder / "short", ranks)}
        for where in ("forward", "backward"):
            made_by[where] = short_of_memory(case, folder / "short", ranks, where=where)
        for how, made in made_by.items():
            seen = losses(made, TRIES)
            state = b"".join(value.numpy().tobytes() for _, value in sorted(made.state().items()))
            found[f"{case} {how}"] = [seen, hashlib.sha256(state).hexdigest(), made.progress.micro_batches]
    made = short_of_memory("vit", folder / "short", ranks, where="backward", room=0)
    try:
        made.step()
    except torch.OutOfMemoryError as error:
        found["nothing fits"] = f"{type(error).__name__}: {error}"
    return found


def falls_out(ranks: Ranks) -> str:
    """What the first rank says when the other has failed and gone."""
    if ranks.rank == 1:
        ranks.failure(ArithmeticError("a fuse blew"))
        ranks.hard_exit(0)
    try:
        ranks.run_on_rank0(lambda: None)
        for _ in range(100):
            ranks.mean(torch.ones(()))
    except Exception as error:
        return str(ranks.failure(error))
    return "nothing"


def main(folder: Path) -> None:
    from bench.train.distributed import DistributedRanks

    torch.set_num_threads(1)
    ranks = DistributedRanks(device="cpu")
    found: dict[str, Any] = {"decisions": decisions(ranks), "losses": {}, "resumed": {}}
    for case in CASES:
        made = trainer(case, folder / f"two-{case}", ranks)
        found["losses"][case] = losses(made, SHORT.get(case, STEPS), save_at=SAVED)
    for case in ("vit", "vit-fsdp"):  # what one rank began
        made = trainer(case, folder / "one-vit", ranks)
        assert made.resume()
        found["resumed"][case] = losses(made, CONTINUED)
    found["running out"] = running_out(folder, ranks)
    found["body"] = to_json(job(folder / "job-two", ranks))
    (folder / f"rank{ranks.rank}.json").write_text(json.dumps(found))
    (folder / "said").write_text(falls_out(ranks))
    ranks.hard_exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
