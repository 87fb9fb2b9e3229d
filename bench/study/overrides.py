"""Options with which a user changes a suite's training runs: horizons (budgets), a recipe by name, single fields of the
recipe, and sweeps over such fields.

    --horizons 8000,100steps,2epochs      --recipe paper:ViT-B/16:imagenet
    --set clip=0 --set warmup=5%          --sweep lr=1e-4,3e-4,1e-3 --sweep weight_decay=0.03,0.1

Every field of `bench.study.cell.Recipe` can be set, and an option of the model as model.<option>. Lengths can have a
unit, such as "steps", "epochs" or "%".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from bench.core.cli import names_list
from bench.core.errors import UserError, unknown
from bench.study.cell import CHOICES, PARTS, Recipe
from bench.study.option import Kind, option
from bench.study.registry import names

MODEL_PREFIX = "model."  # precedes the name of a model's option
CHOSEN_BY_THE_STUDY = ("name", "image_size", "channels", "num_classes")  # a model's arguments that users cannot set
MAX_COMBINATIONS = 10_000  # most combinations of values that sweeps may have
DEFAULTS = {entry.name: getattr(Recipe(), entry.name) for entry in fields(Recipe)}
ALSO_CALLED = {
    "learning_rate": "lr",
    "batch_size": "batch",
    "wd": "weight_decay",
    "l2": "weight_decay",
    "beta": "betas",
    "grad_clip": "clip",
    "gradient_clip": "clip",
    "clip_norm": "clip",
    "max_norm": "clip",
    "ema": "average",
    "precision": "dtype",
    "scheduler": "schedule",
    "opt": "optimizer",
    "dropout": "model.dropout",
}
"""Name that other tools give to a field of a recipe -> the field, which an error message then suggests."""
Setting = tuple[str, str]  # (full name of a recipe's field, value as typed)


def setting(text: str) -> Setting:
    """Parse FIELD=VALUE into (full name of a recipe's field, value as typed): "warmup=5%" -> ("warmup_images", "5%").
    FIELD may also be model.<option>.

    Raises:
        UserError: the text has another form, there is no such field, or users cannot set that option of a model.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not value:
        raise UserError(f"{text!r} is not a setting.", "Give field=value, e.g. lr=1e-3.")
    if key.startswith(MODEL_PREFIX) and key != MODEL_PREFIX:
        if key.removeprefix(MODEL_PREFIX) in CHOSEN_BY_THE_STUDY:
            raise UserError(f"{key} cannot be set: the study determines it.", "Change it with --models or --data.")
        return key, value
    key = key.replace("-", "_")
    key = f"{key}_images" if f"{key}_images" in DEFAULTS else key
    if key not in DEFAULTS:
        raise unknown("field of a recipe", key, DEFAULTS, meant=ALSO_CALLED.get(key, ""))
    return key, value


def _example(key: str) -> str:
    """Return two comma-separated values for a sweep over the field `key` of a recipe, as an example in a message."""
    default = DEFAULTS.get(key)
    if key in CHOICES:
        return ",".join(CHOICES[key][:2])
    if key in PARTS:
        return ",".join(names(key)[:2])
    return f"{default:g},{2 * default:g}" if isinstance(default, float) and default else "1,2"


def _swept(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse FIELD=V1,V2,… into (full name of a recipe's field, values as typed): "lr=1e-3,2e-3" becomes
    ("lr", ("1e-3", "2e-3")).

    Raises:
        UserError: the text has another form, there is no such field, or a value is given twice.
    """
    key, values = setting(text)
    if not names_list(values):
        raise UserError(f"--sweep {key} has no values.", f"For example --sweep {key}={_example(key)}.")
    texts = names_list(values)
    if twice := [text for text in texts if texts.count(text) > 1]:
        raise UserError(f"--sweep {key} names {twice[0]} {texts.count(twice[0])} times.", "Give each value once.")
    return key, texts


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """The user's changes, as typed, of how a suite's models are trained and of which models, budgets and seeds are run.

    `bench.plan.apply_overrides` applies them, except `grid`, which `bench.plan.passes.chosen_grid` applies.
    """

    HEADING: ClassVar[str] = "changes to its recipes and grid"

    horizons: tuple[str, ...] = option(
        "compute budgets in images seen, e.g. 8000,16000, or with a unit: 500steps, 2epochs (default: those of "
        "the suite)",
        default=(),
        kind=Kind.LIST,
        read=names_list,
    )
    recipe: str | None = option(
        "train as in a row of the paper's Table 3, scaled down to this batch and budget",
    )
    set: tuple[Setting, ...] = option(
        "change one field of every recipe, e.g. clip=0, warmup=100steps, model.dropout=0.1; repeatable",
        default=(),
        kind=Kind.FIELDS,
        read=setting,
        metavar="FIELD=VALUE",
    )
    sweep: tuple[tuple[str, tuple[str, ...]], ...] = option(
        "train every network with each of these values; repeat for all combinations",
        default=(),
        kind=Kind.FIELDS,
        read=_swept,
        metavar="FIELD=V1,V2,…",
    )
    grid: tuple[str, ...] = option(
        "of a model (MODEL@IMAGES: on a part of its data) only these budgets and so many seeds, and no model "
        "that is not named; repeatable. vit-bench plan --budget writes them",
        default=(),
        kind=Kind.REPEATED,
        metavar="MODEL=H1,H2 xN",
    )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Overrides:
        """Return the group, made from name -> value of all options.

        Raises:
            UserError: a field is both set and swept, or sweeps have more than `MAX_COMBINATIONS` combinations.
        """
        settings, sweeps = dict(values["set"]), dict(values["sweep"])
        if (total := math.prod(map(len, sweeps.values()))) > MAX_COMBINATIONS:
            raise UserError(f"These sweeps have {total:,} combinations.", f"Sweep over {MAX_COMBINATIONS:,} at most.")
        if twice := sorted(settings.keys() & sweeps.keys()):
            raise UserError(f"{twice[0]} is both set and swept.", "Give one of --set and --sweep.")
        return cls(
            recipe=values["recipe"],
            horizons=values["horizons"],
            set=tuple(settings.items()),
            sweep=tuple(sweeps.items()),
            grid=values["grid"],
        )

    def changes(self, field: str) -> bool:
        """Return whether --set or --sweep changes a field of the recipe, given by its full name."""
        return field in dict(self.set) or field in dict(self.sweep)

    @property
    def chooses_warmup(self) -> bool:
        """Whether the user has chosen the length of the warm-up, by naming a recipe or by setting the field."""
        return self.recipe is not None or self.changes("warmup_images")
