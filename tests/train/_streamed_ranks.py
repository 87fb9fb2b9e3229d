"""A rank of test_streamed.py: it trains from shards, and may be killed on its way.

`torchrun … -m tests.train._streamed_ranks FOLDER NAME WORKERS [STEP]`: the shards lie in FOLDER/shards; the ranks go on
with what FOLDER/NAME holds. All of them kill themselves before STEP, else each writes what it saw to
FOLDER/NAME-rank<number>.json. Importing this module gives the same training on one rank.
"""

import hashlib
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.data.image_set import ImageSet
from bench.data.load import load
from bench.study import registry
from bench.study.cell import Recipe
from bench.train.batches import Batches
from bench.train.ranks import ONE_RANK, Ranks
from bench.train.trainer import Checkpoints, Trainer

SIDE, STEPS, KEPT = 32, 12, 3  # pixels; of a training; a checkpoint before every third step
RECIPE = Recipe(batch=8, lr=1e-3, warmup_images=32, dtype="float32", cooldown=0.0, crop=0.05, flip=True, shift=0)


class Watched(Batches):
    """Batches that note what they gave: step -> a digest of each image with its label."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.given: dict[int, list[str]] = {}

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        x_BCHW, labels_B = super().__call__(step)
        self.given[step] = [
            hashlib.sha256(x.contiguous().numpy().tobytes() + bytes([int(label)])).hexdigest()
            for x, label in zip(x_BCHW, labels_B, strict=True)
        ]
        return x_BCHW, labels_B


def images(folder: Path, name: str = "shards", split: str = "train") -> ImageSet:
    return load(f"folder:{name}:{SIDE}px:rgb:stream", split, root=folder)


def trainer(
    given: ImageSet, folder: Path, *, workers: int, ranks: Ranks = ONE_RANK, recipe: Recipe = RECIPE
) -> Trainer:
    """At its initial weights, or where it was before."""
    torch.manual_seed(3)
    model = registry.build_model("ViT-pico/8", image_size=SIDE, channels=3, num_classes=given.num_classes)
    batches = Watched(given, recipe=recipe, seed=5, device="cpu", ranks=ranks, workers=workers, fit=(SIDE, 3))
    made = Trainer(
        model=ranks.shard_model(model, sharding=recipe.sharding, dtype=recipe.dtype),
        batches=batches,
        recipe=recipe,
        horizons=(STEPS * recipe.batch,),
        seed=5,
        device="cpu",
        saving=Checkpoints(folder=folder, content=given.content_hash),
        ranks=ranks,
    )
    model.train()
    made.resume()
    return made


def train(made: Trainer, *, until: int = STEPS, kill: int | None = None) -> dict[str, Any]:
    """Losses of all steps, and the batches of those that were done here."""
    while made.progress.step < until:
        if made.progress.step % KEPT == 0:
            made.save()
        if made.progress.step == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        made.step()
        made.progress.step += 1
        made.progress.work += 1
    given = {str(step): digests for step, digests in made.batches.given.items()}  # type: ignore[union-attr]
    return {"losses": [float(loss) for loss in made.losses], "given": given}


def of_all(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """The outcome of all ranks together: the whole batches."""
    given = {step: [one for rank in ranks for one in rank["given"][step]] for step in ranks[0]["given"]}
    return {"losses": ranks[0]["losses"], "given": given}


def without_crops() -> Recipe:
    return replace(RECIPE, crop=0.0)


def main(folder: Path, name: str, workers: int, kill: int | None) -> None:
    from bench.train.distributed import DistributedRanks

    torch.set_num_threads(1)
    ranks = DistributedRanks(device="cpu")
    outcome = train(trainer(images(folder), folder / name, workers=workers, ranks=ranks), kill=kill)
    (folder / f"{name}-rank{ranks.rank}.json").write_text(json.dumps(outcome))
    ranks.close()
    ranks.hard_exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else None)
