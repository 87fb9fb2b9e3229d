"""Table 3 of the ViT paper as recipes by name, and the rules that scale a recipe down to another batch size and budget.

    paper:ViT-L/16:imagenet          paper:ViT-L/16:jft-300m:14epochs

The paper trains all its models with batch 4096, 10,000 steps of warm-up, linear (ImageNet: cosine) decay to zero over
the whole training, Adam with betas 0.9 and 0.999, decay of every weight; on ImageNet with clipping at norm 1 (Table 3
and its caption, appendix B.1). Losses and random crops are those of the public configurations: a sigmoid per class, the
head's bias starting at −log of the number of classes. The suites' own scale `paper` trains by this table unscaled
(`as_published`), with the hidden layer that the paper's head has in pre-training (section 3.1), and evaluates by the
paper's tasks (`tuned`, `probed`).

The rules, for a cell with batch b:

- budget: the suite's horizons (or --horizons) replace the paper's epochs; each is a separate training run;
- learning rate: × √(b / 4096), the rule for Adam (Malladi et al. 2022, arXiv 2205.10287; the linear rule of Goyal et
  al. 2017 is for SGD). Betas are kept;
- warm-up: the same fraction of the training as in the paper, 10,000 · 4096 / (epochs · images). The fraction is taken
  of the shortest budget of the study, so that all its cells warm up alike;
- weight decay, dropout, clipping: as published.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from baselines import published
from bench.core.errors import unknown
from bench.data.load import data_set
from bench.data.public_names import UPSTREAM_IMAGES
from bench.study import registry
from bench.study.cell import Cell, Recipe, TaskSpec
from bench.study.names import DataName, ModelName
from bench.study.suite import SuiteOptions, fitting, shortest_budget, task

BATCH, WARMUP_STEPS = 4096, 10_000  # of the ViT paper's pre-training
CROP = 0.05  # least fraction of an image's area in a random crop: inception_crop of big_vision and vision_transformer
IMAGES = {name: UPSTREAM_IMAGES[name.lower()] for name in ("ImageNet", "ImageNet-21k", "JFT-300M")}
EVERY_VIT = ("ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32", "ViT-H/14")  # "ViT-*" in the last row of Table 3
NEAREST_IN_TABLE = {
    "ViT-b/32": "ViT-B/32",
    "R200x3": "R152x2",
    "AxialR50x1": "R50x1",
    **dict.fromkeys(("ViT-L-8/16", "ViT-L-8/32", "ViT-L-8/56"), "ViT-L/32"),
}  # networks of Figures 4, 5, 8 and 13 that the table leaves out -> the nearest that it has
TRANSFORMERS = ("ViT", "Axial ViT", "Hybrid")  # families whose head has a hidden layer in pre-training
PUBLIC = ("imagenet", "cifar10", "cifar100", "pets", "flowers102")  # downstream sets of Tables 2, 5 and 6
TUNED_AT = 384  # pixels per side (section 4.1)
SHOTS = 5  # labelled images per class in Figures 4, 8, 9 and 13, and Table 8
BIT_EPOCHS = {"imagenet": 90, "imagenet-21k": 90, "jft-300m": 40}  # epochs of BiT's pre-training, its section 3.1
BIT_SGD: Mapping[str, Any] = {"optimizer": "sgd", "lr": 0.03 * BATCH / 256, "weight_decay": 1e-4}  # also in Table 7
SMALLEST = {"ViT": "ViT-B/16", "Hybrid": "R50+ViT-B/16", "ResNet": "R50x1"}  # family -> model whose row others get


@dataclass(frozen=True, kw_only=True)
class Table3Row:
    """The hyperparameters of one training in Table 3.

    Attributes:
        model: name of the model.
        data: upstream (pre-training) set as the table writes it, such as "JFT-300M".
        epochs: passes over the set.
        lr: peak learning rate, for batch 4096.
        shape: how the learning rate decays, "linear" or "cosine".
        weight_decay: factor of the weight decay.
        dropout: fraction of values that are dropped.
    """

    model: str
    data: str
    epochs: int
    lr: float
    shape: str
    weight_decay: float
    dropout: float

    @property
    def warmup(self) -> float:
        """The fraction of the training that is warm-up."""
        return WARMUP_STEPS * BATCH / (self.epochs * IMAGES[self.data])


@cache
def rows() -> Mapping[str, Table3Row]:
    """Return name of a recipe -> row of Table 3. If the paper trains a model for two numbers of epochs, the name ends
    in the number, such as ":14epochs"."""
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
    """Return the models that a name in the printed table stands for: two for "ViT-B/{16,32}"."""
    if printed == "ViT-*":
        return EVERY_VIT
    before, braces, after = re.fullmatch(r"([^{]*)(?:\{(.*)\})?(.*)", printed).groups()  # type: ignore[union-attr]
    return tuple(f"{before}{choice}{after}" for choice in (braces or "").split(","))


def row(name: str) -> Table3Row:
    """Return the row of Table 3 with this name, such as "paper:ViT-L/16:imagenet".

    Raises:
        UserError: there is no such row; the message suggests the nearest.
    """
    known = {key.lower(): value for key, value in rows().items()}
    if name.lower() not in known:
        raise unknown("recipe", name, rows())
    return known[name.lower()]


def row_for(model: str, data: str) -> Table3Row:
    """Return the row of Table 3 by which a model is trained on an upstream (pre-training) set; of two rows, the one
    with more epochs. If the table leaves out the model, the row is that of the most similar model; if it leaves out the
    set, that of JFT-300M."""
    family = registry.family_of(model).label
    model = ModelName.parse(model).base
    for name in (model, NEAREST_IN_TABLE.get(model), SMALLEST.get(family, SMALLEST["ViT"])):
        for upstream in (DataName.parse(data).base, "jft-300m"):
            matching = [row for row in rows().values() if (row.model, row.data.lower()) == (name, upstream)]
            if matching:
                return max(matching, key=lambda row: row.epochs)
    raise KeyError(family)


def upstream_of(data: str) -> str:
    """Return the name of the set in Table 3 whose rows apply to a data set: its own, or else "imagenet"."""
    base = DataName.parse(data).base
    return base if base in {name.lower() for name in IMAGES} else "imagenet"


def epochs(data: str) -> int:
    """Return the epochs that the ViT paper trains on a set, the largest number if there are several; for sets that it
    does not use, the 300 epochs of ImageNet."""
    return max(row.epochs for row in rows().values() if row.data.lower() == upstream_of(data))


def as_published(cell: Cell, *, like: str = "") -> Cell:
    """Return the cell trained as the ViT paper trains: batch 4096, 10,000 steps of warm-up however long the training
    is, crops and mirrored images. On a set that the paper does not use, and in a training that is shorter than the
    paper's, the warm-up is the same fraction of the training instead.

    Args:
        like: the upstream set whose rows of Table 3 are used; "": the cell's own.
    """
    upstream = upstream_of(cell.data)
    published_length = min(row.epochs * IMAGES[row.data] for row in rows().values() if row.data.lower() == upstream)
    own = upstream != DataName.parse(cell.data).base or cell.horizons[-1] < published_length
    trained = scaled(cell, row_for(cell.model, like or upstream), batch=BATCH, shortest=shortest_budget([cell]))
    warmup = trained.recipe.warmup_images if own else WARMUP_STEPS * BATCH
    recipe = replace(trained.recipe, warmup_images=warmup, flip=True, shift=0, crop=CROP)
    hidden = registry.family_of(cell.model).label in TRANSFORMERS and "head" not in ModelName.parse(cell.model).options
    options = (*trained.model_options, ("head", "mlp")) if hidden else trained.model_options
    return replace(trained, recipe=recipe, model_options=options)


def as_bit(cell: Cell) -> Cell:
    """Return the cell of a ResNet, trained as BiT was (arXiv 1912.11370, section 3.1), but with a cosine in place of
    its stepwise decay, as in big_vision's own configurations of BiT. As in those, the loss is softmax on ImageNet, and
    a sigmoid per class on larger sets."""
    sigmoid = upstream_of(cell.data) != "imagenet"
    recipe = Recipe(
        **BIT_SGD,
        batch=BATCH,
        clip=0.0,
        schedule="separate",
        warmup_images=5_000 * BATCH,
        cooldown=1.0,
        cooldown_shape="cosine",
        loss="sigmoid" if sigmoid else "softmax",
        head_bias="prior" if sigmoid else "zero",
        flip=True,
        shift=0,
        crop=CROP,
    )
    return replace(cell, recipe=recipe)


def images_seen(data: str, options: SuiteOptions) -> int:
    """Return the images seen in the trainings of the ViT paper's appendices that each change one design choice: 7
    epochs of JFT-300M, or on another upstream set as many epochs as Table 3 gives it."""
    if upstream_of(data) == "jft-300m":
        return 7 * IMAGES["JFT-300M"]
    return epochs(data) * (options.num_images.get(data) or UPSTREAM_IMAGES.get(data, IMAGES["ImageNet"]))


def stored_at(name: str, size: int) -> str:
    """Return the name of a set with the size at which its images are stored for a network of `size` pixels per side,
    "pets" -> "pets:384px"; the name as it is if the set's images are smaller than 224 px or of unknown size."""
    side = data_set(name).side
    return f"{name}:{size}px" if name == "imagenet" or (side is not None and side >= 224) else name


def tuned(model: str, names: Iterable[str] = PUBLIC) -> tuple[TaskSpec, ...]:
    """Return the tasks of Tables 2, 5, 6 and 7, one for each named set: fine-tuning at 384 px with the settings of
    Table 4, repeated three times. The task on ImageNet is also scored by the ReaL labels, which come with the set."""
    return tuple(_tuned(model, stored_at(name, TUNED_AT), TUNED_AT) for name in names)


def tuned_larger(model: str) -> TaskSpec:
    """Return the task of Table 2 that fine-tunes on ImageNet at 512 px with averaged weights (appendix B.1.1)."""
    return _tuned(model, "imagenet:512px", 512, average=0.9999)


def _tuned(model: str, stored: str, size: int, **more: float) -> TaskSpec:
    """Return fine-tuning with three repeats at `size` pixels per side, or at the nearest size that the model's patches
    divide.

    Args:
        stored: name of the downstream set, with the size at which it is stored.
        more: further options of the task.
    """
    fits = fitting(model, size)
    sizes = {"image_size": fits} | ({"nominal_size": size} if fits != size else {})
    return task("finetune", stored, flip=True, crop=CROP, repeats=3, **sizes, **more)


def average_5() -> tuple[str, ...]:
    """Return the names of the scores whose mean the ViT paper's Figure 5 calls Average-5."""
    return tuple(f"finetune@{TUNED_AT}px:{stored_at(name, TUNED_AT)}" for name in PUBLIC)


SHOWN_FEWSHOT = "imagenet:224px"  # the score of Figures 4, 8, 9 and 13, and Table 8


def probed(names: Iterable[str] = ("imagenet",)) -> tuple[TaskSpec, ...]:
    """Return the 5-shot probe on all images of each named set, with the published ridge strength and with one that is
    chosen for each network."""
    return tuple(
        task("fewshot", stored_at(name, 224), shots=(SHOTS,), draws=3, test_limit=None, support_pool=None)
        for name in names
    )


def scaled(cell: Cell, row: Table3Row, *, batch: int, shortest: int) -> Cell:
    """Return the cell with the recipe of a row of Table 3, scaled by the rules at the top of this file. Augmentation
    and precision stay as they are in the cell.

    Args:
        batch: images per step.
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
