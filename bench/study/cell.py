"""Specifications as frozen data: a cell, its recipe and its tasks; and the identity of a cell.

A cell's identity is the hash of its canonical JSON with every field that equals its default left out, plus the integer
revisions of what it uses. A new field does not invalidate old results; a change of behaviour requires a new revision.
No torch here: suites, planner, status and report all read specs.
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

RATE_MARGIN = 0.02  # accuracy that a learning rate may lack to the best of a sweep and still be chosen, if it is lower
RATE_ROUNDING = 1e-9  # of accuracies, so that a difference of the margin is within it
RECIPE_REVISION = 3
"""Bump when the training loop gives other results from the same recipe."""
REHEARSAL_REVISION = 1
"""Bump when a rehearsal is cut otherwise, so that none goes on from cells of another cut."""


def is_rate_enough(*, lacks: float) -> bool:
    """Whether a learning rate may be chosen whose accuracy lies `lacks` below the best of its sweep."""
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
"""Allowed values of recipe fields; they are documented where they are implemented: schedule, precision,
inference, device_reading."""
PARTS = ("optimizer", "loss", "augmentation", "schedule")
"""Recipe fields that name a file of the folder of their kind (`bench.train.parts`)."""
PART_NAME = re.compile(r"[A-Za-z0-9_-]+(:[A-Za-z0-9_.-]+)?")
SCALARS = frozenset((str, int, float, bool, type(None)))
FRACTIONS = ("cooldown", "label_smoothing", "average", "momentum", "crop")
BELOW_ONE = ("label_smoothing", "average", "momentum")  # at 1, nothing of the training would be left


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is trained. Rates are per step; lengths are fractions of the horizon, but for those named `_images`.

    `optimizer`, `loss`, `augmentation` and `schedule` name files of bench/train/. `schedule` "branch": the trunk is
    shared and each horizon cools down from it (Hägele et al. 2024); others train every horizon on its own. Linear or
    cosine decay over the whole training, as in the paper, is a cool-down of 1.

    Raises:
        UserError: an invalid value.
    """

    lr: float = 1e-3
    batch: int = 64
    micro_batch: int = 0  # images that pass through the network at once, gradients added up; 0: the whole batch
    optimizer: str = "adamw"
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.99)
    momentum: float = 0.9  # of SGD
    clip: float = 1.0  # global gradient norm; 0 switches it off
    average: float = 0.0  # Polyak averaging: factor per step of the weights that are evaluated; 0 switches it off
    stopping_checks: int = 0  # early stopping: upstream accuracy is read so often in a training, and the weights of
    # the best are those that are evaluated; 0: those of the last step
    warmup_images: int = 2_000
    decay: str = "constant"  # of the rate between warm-up and cool-down
    timescale_images: int = 0  # images; the reciprocal root has it, or the warm-up at 0, and other decays end there
    cooldown: float = 0.2  # fraction of a horizon over which the rate falls to zero
    cooldown_shape: str = "1-sqrt"
    schedule: str = "branch"
    loss: str = "softmax"
    head_bias: str = "zero"  # at the start; "prior": minus the logarithm of the number of classes
    label_smoothing: float = 0.0
    shift: int = 2  # random translation of every training image by up to this many pixels
    flip: bool = False
    augmentation: str = "none"  # beside shift, flip and crop, which come before or after it
    crop: float = 0.0  # least share of its area that a random crop of an image keeps (the paper: 0.05); 0: no crops
    sharding: str = "replicate"  # of weights and optimizer among ranks; "fsdp" for models that do not fit one device
    decoding: str = "processor"  # of encoded images in training; "device": bench/train/device_reading.py
    dtype: str = "auto"  # "bfloat16" where it is faster; see bench/train/precision.py
    evaluation_dtype: str = "auto"  # of features and logits; "bfloat16" on a GPU; see bench/train/inference.py

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
    """One evaluation: a task's name, the downstream set it reads, and the task's own options."""

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
        model: its name, with options after colons.
        data: the upstream set.
        num_images: images of the upstream set's nested subset; None: the whole training split.
        image_size: pixels per side that the model takes.
        channels: 1 (grey) or 3 (RGB) that the model takes.
        recipe: how it is trained.
        horizons: budgets in images seen, ascending; 0 evaluates the untrained network.
        seed: seed of the initial weights, the order of images and their augmentation.
        tasks: what the model is evaluated by at every horizon.
        model_options: further arguments of the model's family.
        job: a file in bench/execute/jobs/.
        held_out: upstream accuracy is that on a part of the training images, which are then not trained on: choices
            that are made by it (learning rates) leave the test images alone.
        rehearsal: its network, images and steps are cut (`bench.plan.passes.rehearsal`): its numbers mean nothing.
        axes: comparisons of the suite that the cell is part of, such as "compute"; no part of its identity.
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
        """`name@N`, or the plain name for the whole training split."""
        return self.data if self.num_images is None else f"{self.data}@{self.num_images}"

    @property
    def readable_name(self) -> str:
        """A file name a person can read; the hash makes it unique."""
        model = re.sub(r"^.*/(?=[^/]*:(?![a-z_]+=))", "", self.model)  # a file's without folders: "a/b.py:Net"
        return slug(f"{model[:100]}_{self.data_name}_s{self.seed}")


def slug(text: str) -> str:
    """`text` with only [a-z0-9._+-] left, for use in a path."""
    return re.sub(r"[^a-z0-9._+-]+", "-", text.lower()).strip("-")


def to_json(value: Any, *, omit_defaults: bool = False) -> Any:
    """A dataclass tree as JSON types; tuples become lists. With `omit_defaults`, fields at their default go."""
    kind = type(value)
    if kind in SCALARS:  # the usual case: a plan of a thousand cells comes here 200,000 times
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
    """(name, whether it is part of the identity, its default as JSON without defaults) of a dataclass's fields."""
    return tuple(
        (entry.name, entry.compare, to_json(entry.default, omit_defaults=True)) for entry in dataclasses.fields(kind)
    )


def cell_from_json(data: Mapping[str, Any]) -> Cell:
    """The inverse of `to_json` for a cell. Unknown fields are an error: they would be silently ignored otherwise."""
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
    """The first ten hex digits of sha256(canonical spec + revisions)."""
    identity = {"cell": to_json(cell, omit_defaults=True), "revisions": dict(revisions)}
    return hashlib.sha256(canonical(identity).encode()).hexdigest()[:10]
