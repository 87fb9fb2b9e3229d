"""Specifications as frozen data: a cell (one training run with its evaluations), its recipe and tasks; and the identity
of a cell.

A cell's identity is the hash of its canonical JSON, in which fields that equal their defaults are left out, and of the
integer revisions of the code that the cell uses. Hence a new field with a default does not invalidate old results; a
change of behaviour requires a new revision. This module does not import torch, because suites, planner, status and
report all read specifications.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from bench.core.errors import UserError, unknown
from bench.core.files import canonical

RATE_MARGIN = 0.02  # a learning rate may be chosen if its accuracy is at most this far below the best of its sweep
RATE_ROUNDING = 1e-9  # tolerance for rounding, so that an accuracy lower by exactly the margin is accepted
RECIPE_REVISION = 3
"""Increment this when the training loop gives other results from the same recipe."""
REHEARSAL_REVISION = 1
"""Increment this when rehearsals shrink cells in another way, so that no rehearsal continues a cell that was shrunk
differently."""


def is_rate_enough(*, lacks: float) -> bool:
    """Return whether a learning rate may be chosen although its accuracy, in [0, 1], is lower by `lacks` than the best
    accuracy in the sweep."""
    return lacks <= RATE_MARGIN + RATE_ROUNDING


CHOICES: dict[str, tuple[str, ...]] = {
    "head_bias": ("zero", "prior"),
    "decay": ("constant", "rsqrt", "linear", "cosine"),
    "cooldown_shape": ("1-sqrt", "linear", "cosine"),
    "sharding": ("replicate", "fsdp"),
    "decoding": ("processor", "device"),
    "dtype": ("auto", "float32", "bfloat16"),
    "evaluation_dtype": ("auto", "float32", "bfloat16"),
}
"""Field of a recipe -> its allowed values. Each value is documented where it is implemented, in bench/train/:
schedule.py, precision.py, inference.py, device_reading.py."""
PARTS = ("optimizer", "loss", "augmentation", "schedule")
"""Fields of a recipe whose value names a plug-in file of the kind that the field is called after (`bench.train.parts`).
"""
PART_NAME = re.compile(r"[A-Za-z0-9_-]+(:[A-Za-z0-9_.-]+)?")
SCALARS = frozenset((str, int, float, bool, type(None)))
FRACTIONS = ("cooldown", "label_smoothing", "average", "momentum", "crop")
BELOW_ONE = ("label_smoothing", "average", "momentum")  # at 1, training would have no effect


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is trained. `lr` is the peak learning rate of an optimizer step. Lengths are fractions of the horizon
    (budget), except in fields named `_images`.

    `optimizer`, `loss`, `augmentation` and `schedule` name files of bench/train/. With the schedule "branch", all
    horizons share one training, the trunk; for each horizon a branch leaves the trunk, in which the learning rate falls
    to zero (the cool-down; Hägele et al. 2024). With other schedules every horizon is trained on its own. Linear or
    cosine decay over the whole training, as in the ViT paper, is a cool-down of 1.

    Raises:
        UserError: a field has an invalid value.
    """

    lr: float = 1e-3
    batch: int = 64
    micro_batch: int = 0  # images in one forward and backward pass, gradients summed over the batch; 0: the whole batch
    optimizer: str = "adamw"
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.99)
    momentum: float = 0.9  # SGD only
    clip: float = 1.0  # global gradient norm; 0 switches it off
    average: float = 0.0  # Polyak averaging: decay factor per step of the averaged weights, which are evaluated; 0: off
    stopping_checks: int = 0  # early stopping: how many times upstream accuracy is measured in a training; the weights
    # with the best accuracy are evaluated. 0: the weights of the last step are
    warmup_images: int = 2_000
    decay: str = "constant"  # decay of the learning rate between warm-up and cool-down
    timescale_images: int = 0  # time scale of "rsqrt" (0: the warm-up); "linear" and "cosine" end after so many images
    cooldown: float = 0.2  # fraction of a horizon over which the learning rate falls to zero
    cooldown_shape: str = "1-sqrt"
    schedule: str = "branch"
    loss: str = "softmax"
    head_bias: str = "zero"  # initial bias of the head; "prior": minus the logarithm of the number of classes
    label_smoothing: float = 0.0
    shift: int = 2  # random translation of every training image by up to this many pixels
    flip: bool = False
    augmentation: str = "none"  # augmentation in addition to shift, flip and crop, which come before or after it
    crop: float = 0.0  # least fraction of an image's area that a random crop keeps (the paper: 0.05); 0: no crops
    sharding: str = "replicate"  # how ranks hold weights and optimizer; "fsdp" for models too large for one device
    decoding: str = "processor"  # what decodes images in training; "device": see bench/train/device_reading.py
    dtype: str = "auto"  # precision of training; "auto": "bfloat16" where it is faster; see bench/train/precision.py
    evaluation_dtype: str = "auto"  # precision of features and logits; "auto": "bfloat16" on a GPU (train/inference.py)

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if (value := getattr(self, name)) not in allowed:
                raise unknown(name.replace("_", " "), str(value), allowed)
        for name in PARTS:
            if not PART_NAME.fullmatch(given := getattr(self, name)):
                raise UserError(f"{given!r} is no name of a recipe's {name}.", "Give NAME, or LIBRARY:NAME.")
        for entry in dataclasses.fields(Recipe):
            value = getattr(self, entry.name)
            if not isinstance(value, str | bool | tuple) and not value >= 0:
                raise UserError(f"A recipe's {entry.name} cannot be {value}.", "Give a number of at least 0.")
        for name in FRACTIONS:
            if getattr(self, name) > 1:
                raise UserError(f"A recipe's {name} of {getattr(self, name)} is not a fraction.", "Give 0 to 1.")
        for name in BELOW_ONE:
            if getattr(self, name) == 1:
                raise UserError(f"A recipe's {name} of 1 leaves nothing of the training.", "Give 0 to below 1.")
        if self.stopping_checks and (self.average or self.schedule == "branch"):
            raise UserError(
                "Early stopping evaluates the best weights of one training: not averaged ones, and no trunk's.",
                "Set average=0 and schedule=separate beside stopping_checks.",
            )
        if self.batch < 1:
            raise UserError(f"A recipe's batch cannot be {self.batch}.", "A batch holds at least one image.")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"A recipe's betas cannot be {self.betas}.", "Give two numbers from 0 to below 1.")


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """One evaluation: the name of a task, the downstream data set that it uses, and the (name, value) pairs of the
    task's own options."""

    task: str
    data: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def kwargs(self) -> dict[str, Any]:
        return dict(self.options)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training run: model × data set @ number of images × recipe × seed, evaluated at every horizon.

    Attributes:
        model: name of the model, with options after colons.
        data: name of the upstream (pre-training) data set.
        num_images: size of the subset of `data` that is trained on; a smaller subset is part of every larger one. None:
            the whole training split.
        image_size: pixels per side of the model's input.
        channels: channels of the model's input, 1 (grey) or 3 (RGB).
        recipe: how the model is trained.
        horizons: budgets in images seen, ascending; 0 evaluates the untrained network.
        seed: seed of the initial weights, the order of images and their augmentation.
        tasks: evaluations of the model at every horizon.
        model_options: (name, value) pairs of further arguments for the model family's `build`.
        job: what a worker does with the cell: the name of a file in bench/execute/jobs/.
        held_out: whether upstream accuracy is measured on a part of the training images, which the model is then not
            trained on, so that choices made by that accuracy (learning rates) do not use the test images.
        rehearsal: whether network, images and steps are shrunk (`bench.plan.passes.rehearsal`) to try out a study in
            seconds; the numbers then mean nothing.
        axes: comparisons of the suite that the cell is part of, such as "compute"; not part of the cell's identity.
    """

    model: str
    data: str
    num_images: int | None = None
    image_size: int = 28
    channels: int = 1
    recipe: Recipe = Recipe()
    horizons: tuple[int, ...] = (0,)
    seed: int = 0
    tasks: tuple[TaskSpec, ...] = ()
    model_options: tuple[tuple[str, Any], ...] = ()
    job: str = "train"
    held_out: bool = False
    rehearsal: bool = False
    axes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if tuple(sorted(set(self.horizons))) != self.horizons or not self.horizons or self.horizons[0] < 0:
            raise UserError(
                f"Horizons {self.horizons} of {self.model} are not ascending, distinct and at least 0.",
                "Give them in images seen, for example (0, 8000, 16000).",
            )
        if self.recipe.shift >= self.image_size:
            raise UserError(
                f"A shift of {self.recipe.shift} pixels moves {self.image_size} px images out of view.",
                f"Give 0 to {self.image_size - 1}.",
            )
        if self.num_images is not None and self.num_images < 1:
            raise UserError(f"{self.data}@{self.num_images}: a data set needs at least one image.")

    @property
    def data_name(self) -> str:
        """Name of the upstream data set: `name@N` for a subset of N images, `name` for the whole training split."""
        return self.data if self.num_images is None else f"{self.data}@{self.num_images}"

    @property
    def readable_name(self) -> str:
        """A readable name for the cell's folder. Two cells can have the same: `registry.directory_name` adds a hash."""
        model = re.sub(r"^.*/(?=[^/]*:(?![a-z_]+=))", "", self.model)  # drops the folders of a file: "a/b.py:Net"
        return slug(f"{model[:100]}_{self.data_name}_s{self.seed}")


def slug(text: str) -> str:
    """Return `text` in lower case, with all characters but [a-z0-9._+-] replaced by "-", for use in a path."""
    return re.sub(r"[^a-z0-9._+-]+", "-", text.lower()).strip("-")


def to_json(value: Any, *, omit_defaults: bool = False) -> Any:
    """Return a dataclass, with the dataclasses in it, as JSON types; tuples become lists. With `omit_defaults`, fields
    that equal their default, and fields declared with `compare=False`, are left out."""
    kind = type(value)
    if kind in SCALARS:  # first, as the most frequent case: a plan of a thousand cells calls this 200,000 times
        return value
    if dataclasses.is_dataclass(kind):
        result = {}
        for name, compared, default in _entries(kind):
            if omit_defaults and not compared:
                continue
            written = to_json(getattr(value, name), omit_defaults=omit_defaults)
            if not (omit_defaults and default is not dataclasses.MISSING and written == default):
                result[name] = written
        return result
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_json(item, omit_defaults=omit_defaults) for item in value]
    return value


@cache
def _entries(kind: type) -> tuple[tuple[str, bool, Any], ...]:
    """Return for each field of a dataclass: (name, whether the field is compared and so part of a cell's identity,
    its default as JSON, or MISSING)."""
    return tuple(
        (entry.name, entry.compare, to_json(entry.default, omit_defaults=True)) for entry in dataclasses.fields(kind)
    )


def cell_from_json(data: Mapping[str, Any]) -> Cell:
    """Return the cell from the JSON object that `to_json` made of it.

    Raises:
        UserError: a field is unknown (it would otherwise be ignored silently), or has an invalid value.
    """
    values = dict(data)
    values["recipe"] = _build(Recipe, values.get("recipe", {}))
    values["tasks"] = tuple(_build(TaskSpec, task) for task in values.get("tasks", ()))
    return _build(Cell, values)


def _build(kind: type, values: Mapping[str, Any]) -> Any:
    known = _field_names(kind)
    if not values.keys() <= known:
        strange = min(values.keys() - known)
        raise UserError(f"A {kind.__name__} has no field {strange!r}.", f"Known: {', '.join(sorted(known))}.")
    return kind(**{key: _tuples(value) for key, value in values.items()})


@cache
def _field_names(kind: type) -> frozenset[str]:
    return frozenset(entry.name for entry in dataclasses.fields(kind))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def cell_id(cell: Cell, revisions: Mapping[str, int]) -> str:
    """Return the identity of a cell: the first ten hex digits of the sha256 of its canonical JSON and of the revisions
    (see `bench.study.registry.revisions_of`)."""
    identity = {"cell": to_json(cell, omit_defaults=True), "revisions": dict(revisions)}
    return hashlib.sha256(canonical(identity).encode()).hexdigest()[:10]
