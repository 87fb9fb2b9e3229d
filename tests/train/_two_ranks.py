"""One of two ranks of test_distributed.py: `torchrun --nproc-per-node=2 -m tests.train._two_ranks FOLDER`.

Every rank writes what it saw to FOLDER/rank<number>.json. Importing this module gives the same training on one rank.
With `killed` behind it, the second rank is killed in mid-exchange.
"""

import functools
import hashlib
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from bench.core.errors import Interrupted, UserError
from bench.data.image_set import ImageSet
from bench.study import registry
from bench.study.cell import Cell, Recipe, TaskSpec, to_json
from bench.study.record import Result
from bench.train import distributed
from bench.train.batches import Batches
from bench.train.ranks import ONE_RANK, Ranks
from bench.train.trainer import Checkpoints, Trainer
from tests.train.driving import job_context

STEPS, SAVED, CONTINUED = 24, 6, 14  # all (an epoch is 18); before which a checkpoint is written; to which it goes on
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
        model=model,
        batches=batches,
        recipe=recipe,
        horizons=(STEPS * recipe.batch,),
        seed=5,
        device="cpu",
        saving=Checkpoints(folder=folder),
        ranks=ranks,
    )
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
    model="ViT-pico/14",
    data="fashion-mnist",
    num_images=200,
    horizons=(0, 96, 192),
    seed=1,
    tasks=(TaskSpec(task="finetune", data="mnist", options=TUNING), TaskSpec(task="fewshot", data="digits")),
    recipe=replace(FLOAT, cooldown=0.2, micro_batch=4, sharding="fsdp", warmup_images=16),
)


def job(folder: Path, ranks: Ranks = ONE_RANK) -> Result:
    """The training job's result, sharded where there are ranks."""
    from bench.execute.jobs.train import run

    return run(JOB, job_context(folder, ranks=ranks))


def digest(tensors: Iterable[torch.Tensor]) -> str:
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in tensors)).hexdigest()


def noted(step: Any, events: list[str]) -> None:
    """Have a step note when a gradient is found and when an exchange begins."""
    real = dist.all_reduce

    def all_reduce(tensor: torch.Tensor, *rest: Any, **options: Any) -> Any:
        if options.get("async_op") and tensor.is_floating_point():
            events.append("sent")
        return real(tensor, *rest, **options)

    dist.all_reduce = all_reduce
    for _, leaf in step.working.pairs:
        leaf.register_hook(lambda _: events.append("found"))


def killed(folder: Path, *, case: str = "vit") -> None:
    """Train until the second rank is killed where it has sent two buckets of the third step, or sharded, where it
    gathers weights for its third; what the first says."""
    from bench.train.distributed import DistributedRanks

    ranks = DistributedRanks(device="cpu")
    made = trainer(case, folder / "killed", ranks)
    if ranks.rank == 1 and ranks.is_sharded(made.model):
        forwards = itertools.count(1)
        die_at = 2 * (made.recipe.batch // 2 // made.recipe.micro_batch) + 1
        block = made.model.blocks[1]
        block.register_forward_pre_hook(
            lambda *_: os.kill(os.getpid(), signal.SIGKILL) if next(forwards) == die_at else None
        )
    send, sent = dist.all_reduce, itertools.count(1)

    def all_reduce(tensor: torch.Tensor, *rest: Any, **options: Any) -> Any:
        work = send(tensor, *rest, **options)
        exchanges = options.get("async_op") and tensor.is_floating_point()
        if ranks.rank == 1 and made.progress.step == 2 and exchanges and next(sent) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return work

    dist.all_reduce = all_reduce
    try:
        losses(made, STEPS)
    except Exception as error:
        (folder / "killed.json").write_text(json.dumps([made.progress.step, str(ranks.failure(error))]))
    ranks.hard_exit(0)


def falls_out(ranks: Ranks) -> str:
    """The first rank's words when the other has failed and gone."""
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
    outcome: dict[str, Any] = {"decisions": decisions(ranks), "losses": {}, "resumed": {}}
    for case in CASES:
        made = trainer(case, folder / f"two-{case}", ranks)
        outcome["losses"][case] = losses(made, SHORT.get(case, STEPS), save_at=SAVED)
        if case == "vit":
            outcome["whole"] = digest(value for _, value in sorted(made.state().items()))
    for case in ("vit", "vit-fsdp"):  # what one rank began
        made = trainer(case, folder / "one-vit", ranks)
        assert made.resume()
        outcome["resumed"][case] = losses(made, CONTINUED)
    made = trainer("vit", folder / "two-vit", ranks)  # what these two began
    assert made.resume()
    outcome["continued"] = losses(made, STEPS), digest(value for _, value in sorted(made.state().items()))
    outcome["body"] = to_json(job(folder / "job-two", ranks))
    (folder / f"rank{ranks.rank}.json").write_text(json.dumps(outcome))
    (folder / "said").write_text(falls_out(ranks))
    ranks.hard_exit(0)


if __name__ == "__main__":
    distributed.BUCKET_MB = 2**-8  # several buckets, of models that would have one
    fsdp = functools.partial(killed, case="vit-fsdp")
    job_of_rank = {"killed": killed, "killed-fsdp": fsdp}.get(sys.argv[-1], main)
    job_of_rank(Path(sys.argv[1]))
