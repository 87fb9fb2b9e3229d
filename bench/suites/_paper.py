"""Table 3 of the ViT paper as recipes by name, and the rules that scale one down to another batch and budget.

    paper:ViT-L/16:imagenet          paper:ViT-L/16:jft-300m:14epochs

The recipe that the paper trains all its models with: batch 4096, 10,000 steps of warm-up, linear (ImageNet: cosine)
decay to zero over the whole training, Adam with betas 0.9 and 0.999, decay of every weight; on ImageNet clipping at
norm 1 (Table 3 and its caption, appendix B.1). Losses and random crops are those of the public configurations: a
sigmoid per class, the head's bias starting at −log of the number of classes. The suites' own scale `paper` is this
table at its own size (`as_published`).

The rules, for a cell with batch b:

- budget: the suite's horizons (or --horizons) replace the paper's epochs; each is a separate training run;
- learning rate: × √(b / 4096), the rule for Adam (Malladi et al. 2022, arXiv 2205.10287; the linear rule of Goyal et
  al. 2017 is for SGD). Betas are kept;
- warm-up: the same fraction of the training as in the paper, 10,000 · 4096 / (epochs · images), of the shortest budget
  of the study, so that all its cells warm up alike;
- weight decay, dropout, clipping: as published.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from baselines import published
from bench.core import registry
from bench.core.errors import unknown
from bench.core.spec import Cell
from bench.data.public_names import UPSTREAM_IMAGES
from bench.suites.suite import shortest_budget

BATCH, WARMUP_STEPS = 4096, 10_000
CROP = 0.05  # least share of an image's area in a random crop: big_vision's and vision_transformer's inception_crop
IMAGES = {name: UPSTREAM_IMAGES[name.lower()] for name in ("ImageNet", "ImageNet-21k", "JFT-300M")}
EVERY_VIT = ("ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32", "ViT-H/14")  # "ViT-*" in the last row
NEAREST_IN_TABLE = {
    "ViT-b/32": "ViT-B/32",
    "R200x3": "R152x2",
}  # in Figures 4 and 5, but not in the table: as the nearest that is
SMALLEST = {"ViT": "ViT-B/16", "Hybrid": "R50+ViT-B/16", "ResNet": "R50x1"}  # of a family, for all its other models


@dataclass(frozen=True, kw_only=True)
class Table3Row:
    """One training of Table 3."""

    model: str
    data: str
    epochs: int
    lr: float
    shape: str
    weight_decay: float
    dropout: float

    @property
    def warmup(self) -> float:
        """Fraction of the training."""
        return WARMUP_STEPS * BATCH / (self.epochs * IMAGES[self.data])


@cache
def rows() -> Mapping[str, Table3Row]:
    """Name to row. Where the paper trains a model twice, the name says for how long."""
    named = {}
    for printed in published.table("table3"):
        lengths = printed["epochs"].split("/")
        for model in _models(printed["models"]):
            for epochs in lengths:
                row = Table3Row(
                    model=model,
                    data=printed["dataset"],
                    epochs=int(epochs),
                    lr=float(printed["base_lr"]),
                    shape=printed["lr_decay"],
                    weight_decay=float(printed["weight_decay"]),
                    dropout=float(printed["dropout"]),
                )
                end = f":{epochs}epochs" if len(lengths) > 1 else ""
                named[f"paper:{model}:{row.data.lower()}{end}"] = row
    return named


def _models(printed: str) -> tuple[str, ...]:
    """ "ViT-B/{16,32}" -> both."""
    if printed == "ViT-*":
        return EVERY_VIT
    before, braces, after = re.fullmatch(r"([^{]*)(?:\{(.*)\})?(.*)", printed).groups()  # type: ignore[union-attr]
    return tuple(f"{before}{choice}{after}" for choice in (braces or "").split(","))


def row(name: str) -> Table3Row:
    """The row of a name.

    Raises:
        UserError: no such row; suggests the nearest.
    """
    known = {key.lower(): value for key, value in rows().items()}
    if name.lower() not in known:
        raise unknown("recipe", name, rows())
    return known[name.lower()]


def row_for(model: str, data: str) -> Table3Row:
    """The row that a model is trained by on an upstream set, the longer of two; where the table leaves the model or the
    set out, that of the model it is most like, or that of JFT-300M."""
    family = registry.family_of(model).label
    for name in (model, NEAREST_IN_TABLE.get(model), SMALLEST.get(family, SMALLEST["ViT"])):
        for upstream in (data.partition(":")[0], "jft-300m"):
            matching = [row for row in rows().values() if (row.model, row.data.lower()) == (name, upstream)]
            if matching:
                return max(matching, key=lambda row: row.epochs)
    raise KeyError(family)


def upstream_of(data: str) -> str:
    """The set of the table that a set is trained on like: itself, or ImageNet."""
    base = data.partition(":")[0]
    return base if base in {name.lower() for name in IMAGES} else "imagenet"


def epochs(data: str) -> int:
    """For how long the paper trains on a set (the longer of two): 300 epochs of ImageNet, and of any other set."""
    return max(row.epochs for row in rows().values() if row.data.lower() == upstream_of(data))


def as_published(cell: Cell, *, like: str = "") -> Cell:
    """The cell trained at the paper's own size: batch 4096 and 10,000 steps of warm-up, however long it is (on another
    set than the paper's, and on a part of one for as many epochs, the same fraction); crops and mirrored images.

    Args:
        like: the upstream set whose rows are meant, where it is not the cell's own.
    """
    upstream = upstream_of(cell.data)
    published_length = min(row.epochs * IMAGES[row.data] for row in rows().values() if row.data.lower() == upstream)
    own = upstream != cell.data.partition(":")[0] or cell.horizons[-1] < published_length
    trained = scaled(cell, row_for(cell.model, like or upstream), batch=BATCH, shortest=shortest_budget([cell]))
    warmup = trained.recipe.warmup_images if own else WARMUP_STEPS * BATCH
    recipe = replace(trained.recipe, warmup_images=warmup, flip=True, shift=0, crop=CROP)
    return replace(trained, recipe=recipe)


def scaled(cell: Cell, row: Table3Row, *, batch: int, shortest: int) -> Cell:
    """The cell trained as the row was, by the rules above; augmentation and precision stay the suite's.

    Args:
        shortest: images of the study's shortest budget, of which the warm-up is a fraction.
    """
    recipe = replace(
        cell.recipe,
        batch=batch,
        lr=row.lr * math.sqrt(batch / BATCH),
        optimizer="adamw",
        betas=(0.9, 0.999),
        weight_decay=row.weight_decay,
        clip=1.0 if row.data == "ImageNet" else 0.0,
        schedule="separate",
        warmup_images=round(row.warmup * shortest),
        decay="constant",
        cooldown=1.0,
        cooldown_shape=row.shape,
        loss="sigmoid",
        head_bias="prior",
        label_smoothing=0.0,
    )
    options = tuple((name, value) for name, value in cell.model_options if name != "dropout")
    dropout = (("dropout", row.dropout),) if row.dropout else ()
    return replace(cell, recipe=recipe, model_options=options + dropout)
