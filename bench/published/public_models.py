"""Tables of published networks: accuracies that others measured, and training FLOPs that are computed here.

There are three tables, read from `baselines/published/` without torch (`SOURCES.md` there has origins, licences and
method):

- `checkpoints`: timm's results on six ImageNet test sets, a row per checkpoint and test size;
- `clip`: open_clip's zero-shot results;
- `paper`: Tables 5 and 6 of the ViT paper.

Training FLOPs are 6 x MACs x images seen, summed over stages; MACs are those of this project's counter.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from baselines import published
from baselines.published import timm_costs
from bench.core.errors import UserError, unknown
from bench.cost.flops import EXA, FLOPS_PER_MAC, TRAIN_PER_FORWARD
from bench.published import training_stages
from bench.published.training_stages import LEARNT_FROM, PublishedRecipe, TrainingStage, exaflops

FOLDER = Path(published.__file__).parent
VERSION = "2026-11-25"
"""Date of the tables, which is changed whenever one of their numbers changes."""

TESTS = ("in1k_top1", "in1k_top5", "real_top1", "v2_top1", "a_top1", "r_top1", "sketch_top1")
ZERO_SHOT = ("in1k_zeroshot", "v2_zeroshot", "a_zeroshot", "r_zeroshot", "sketch_zeroshot")
COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "model": "name of the checkpoint: timm's, open_clip's, or as printed in the paper",
        "arch": "timm's name of the architecture",
        "family": "ViT, ResNet (BiT), hybrid ViT (ResNet stem), ConvNeXt, …",
        "image_size": "pixels per side of test images",
        "params_m": "parameters in millions, as timm or open_clip states them",
        "gmacs": "10^9 MACs of one forward pass at image_size, dense convention; clip: of both towers",
        "gmacs_paper": "the same without taps on zero padding, as the ViT paper counts",
        "in1k_top1": "top-1 accuracy on ImageNet-1k's validation set, in percent",
        "in1k_top5": "top-5 accuracy on it, in percent",
        "real_top1": "top-1 accuracy with ReaL labels, in percent",
        "v2_top1": "top-1 accuracy on ImageNet-V2 (matched frequency), in percent",
        "a_top1": "top-1 accuracy on ImageNet-A, in percent",
        "r_top1": "top-1 accuracy on ImageNet-R, in percent",
        "sketch_top1": "top-1 accuracy on ImageNet-Sketch, in percent",
        "in1k_zeroshot": "zero-shot accuracy on ImageNet-1k, in percent",
        "v2_zeroshot": "zero-shot accuracy on ImageNet-V2, in percent",
        "a_zeroshot": "zero-shot accuracy on ImageNet-A, in percent",
        "r_zeroshot": "zero-shot accuracy on ImageNet-R, in percent",
        "sketch_zeroshot": "zero-shot accuracy on ImageNet-Sketch, in percent",
        "pretrain_set": "sets of the stages before fine-tuning, joined by +",
        "pretrain_group": "of the largest of them: ImageNet-1k, ImageNet-21k, merged sets, JFT-300M, web",
        "pretrain_images": "images of the largest of them",
        "pretrain_kind": "sup (labels), mim (masked images), clip (captions), weak (hashtags), joined by +",
        "images_seen": "images that went through the network in all known stages",
        "train_exaflops": "10^18 FLOPs of training: 6 x MACs x images seen, all known stages, dense convention",
        "train_exaflops_paper": "the same without taps on zero padding",
        "pretrain_exaflops": "of these, those before fine-tuning, dense convention",
        "complete": "whether every stage is known; else FLOPs and images seen are lower bounds",
        "teacher": "whether it learnt from outputs of another trained network, whose cost is not counted",
        "uncounted": "what train_exaflops leaves out",
        "batch": "images per step of pre-training",
        "stages": "the recipe as `bench.published.training_stages` reads it; empty: no recipe was found",
        "confidence": "verbatim or derived (SOURCES.md); empty: no recipe was found",
        "licence": "of the weights, as timm states it",
        "source": "where the recipe was read",
        "note": "what else there is to know",
    }
)
COMPUTED = ("images_seen", "train_exaflops", "train_exaflops_paper", "pretrain_exaflops")
NUMBERS = ("image_size", "params_m", "gmacs", "gmacs_paper", "batch", "pretrain_images", *COMPUTED, *TESTS, *ZERO_SHOT)
FLAGS = ("complete", "teacher")
TABLES = ("checkpoints", "clip", "paper")


def table(name: str = "checkpoints") -> pd.DataFrame:
    """Return one of the three tables ("checkpoints", "clip" or "paper"); `COLUMNS` describes its columns.

    Raises:
        UserError: there is no such table.
    """
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    return _made(name).copy()


@cache
def _made(name: str) -> pd.DataFrame:
    """Return the table of a name. It is made once and cached, because a report asks for it a dozen times, and each row
    is looked up among all recipes."""
    made = pd.DataFrame({"checkpoints": _checkpoints, "clip": _clip, "paper": _paper}[name]())
    made = made[[column for column in COLUMNS if column in made]]
    for column in made.columns.difference(NUMBERS):
        made[column] = made[column].eq(True) if column in FLAGS else made[column].fillna("").astype(str)
    return made


@cache
def read(name: str) -> tuple[dict[str, str], ...]:
    """Return the rows of the file `baselines/published/<name>.csv`, each as column -> text."""
    with open(FOLDER / f"{name}.csv", encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


@cache
def recipes() -> tuple[PublishedRecipe, ...]:
    """Return the training recipes of published checkpoints: every line of recipes.csv."""
    return tuple(PublishedRecipe(**row) for row in read("recipes"))


@cache
def images_of_sets() -> Mapping[str, int]:
    """Return the number of images of every data set that a recipe may name: data set -> images."""
    return {row["name"]: int(row["images"]) for row in read("sets")}


@cache
def _macs() -> dict[tuple[str, int], tuple[int, int]]:
    """Return the MACs of one forward pass of timm's architectures: (architecture, pixels per side) -> MACs by the dense
    and by the paper convention (see bench/cost/counter.py)."""
    own = (row for row in timm_costs.table().values() if row["macs_dense"])
    made = {(row["model"], int(row["image_size"])): (int(row["macs_dense"]), int(row["macs_paper"])) for row in own}
    for row in read("timm_macs"):
        made[row["arch"], int(row["image_size"])] = int(row["macs_dense"]), int(row["macs_paper"])
    return made


def macs(arch: str, image_size: int) -> tuple[float, float]:
    """Return the MACs of one forward pass of one of timm's architectures, by the dense and by the paper convention (see
    bench/cost/counter.py); NaN if they were not counted. `image_size` is in pixels per side."""
    return _macs().get((arch, image_size), (float("nan"), float("nan")))


def recipe_of(model: str) -> PublishedRecipe | None:
    """Return the training recipe of one of timm's checkpoints; None if none was found."""
    return next((recipe for recipe in recipes() if recipe.matched(model) is not None), None)


def check(model: str) -> str:
    """Check the line of recipes.csv for one of timm's checkpoints. Return a text with the checkpoint's cost by that
    line, and where the recipe was read.

    Raises:
        UserError: the checkpoint has no result, not exactly one line in recipes.csv, or a line with mistakes.
    """
    row = next((row for row in read("timm_results") if row["model"] == model), None)
    if row is None or (recipe := recipe_of(model)) is None:
        what = "has no recipe" if row else "has no result in timm_results.csv"
        raise UserError(f"{model} {what}.", "It needs one line in baselines/published/recipes.csv.")
    wrong = training_stages.problems(recipe, [model], images=images_of_sets())
    others = [other.pattern for other in recipes() if other != recipe and other.matched(model) is not None]
    wrong += [f"{pattern} matches it too." for pattern in others]
    if wrong:
        raise UserError(" ".join(wrong), f"Mend its line in {FOLDER / 'recipes.csv'}.")
    columns = _recipe_columns(model, int(row["own_size"]))
    if columns["train_exaflops"] != columns["train_exaflops"]:
        raise UserError("MACs at a size of its stages were not counted.", "Run python -m tools.published_models.")
    cost = f"{'' if columns['complete'] else 'at least '}{columns['train_exaflops']:.4g} exaFLOPs"
    return f"{cost} on {columns['images_seen']:.4g} images; {recipe.confidence}, {recipe.source}"


def family(arch: str) -> str:
    """Return the label of the family of one of timm's architectures; "" if families.csv has none for it."""
    path = f"{timm_costs.table()[arch]['family']}/{arch}"
    return next((row["family"] for row in read("families") if re.fullmatch(row["pattern"], path)), "")


def training(arch: str, done: tuple[TrainingStage, ...]) -> dict[str, float]:
    """Return the columns COMPUTED of a row, name -> value: images seen and training exaFLOPs.

    Args:
        arch: timm's name of the architecture.
        done: the stages of training that the network has gone through.
    """

    def at(convention: int) -> Callable[[int], float]:
        return lambda size: macs(arch, size)[convention]

    return {
        "images_seen": sum(stage.images_seen for stage in done),
        "train_exaflops": exaflops(done, at(0)),
        "train_exaflops_paper": exaflops(done, at(1)),
        "pretrain_exaflops": exaflops((stage for stage in done if not stage.fine_tuning), at(0)),
    }


def _checkpoints() -> list[dict[str, Any]]:
    results = read("timm_results")
    sizes = {row["model"]: int(row["own_size"]) for row in results}
    recipe_columns = {model: _recipe_columns(model, size) for model, size in sizes.items()}
    made = []
    for row in results:
        model, size = row["model"], int(row["image_size"])
        arch = model.partition(".")[0]
        dense, paper = macs(arch, size)
        costs = {"params_m": float(row["params_m"]), "gmacs": dense / 1e9, "gmacs_paper": paper / 1e9}
        accuracies = {test: float(row[test] or "nan") for test in TESTS}
        made.append(
            {"model": model, "arch": arch, "family": family(arch), "image_size": size, "licence": row["licence"]}
            | costs
            | accuracies
            | recipe_columns[model]
        )
    return made


def _recipe_columns(model: str, own_size: int) -> dict[str, Any]:
    """Return the columns of a row that follow from the checkpoint's recipe, name -> value; {} if no recipe was found.
    `own_size` is the pixels per side that the checkpoint was made for."""
    recipe = recipe_of(model)
    if recipe is None:
        return {}
    done = training_stages.stages(recipe, model, own_size=own_size, images=images_of_sets())
    return {
        **_sets([stage.upstream for stage in done if not stage.fine_tuning]),
        "pretrain_kind": recipe.kind,
        **training(model.partition(".")[0], done),
        "complete": "fine-tuning" not in recipe.missing,
        "teacher": any(name in LEARNT_FROM for name in recipe.missing),
        "uncounted": recipe.uncounted,
        "batch": float(recipe.batch or "nan"),
        "stages": recipe.stages,
        "confidence": recipe.confidence,
        "source": recipe.source,
        "note": recipe.note,
    }


def _sets(names: list[str]) -> dict[str, Any]:
    largest = max(names, key=lambda name: images_of_sets()[name])
    return {
        "pretrain_set": "+".join(dict.fromkeys(names)),
        "pretrain_group": next(row["group"] for row in read("sets") if row["name"] == largest),
        "pretrain_images": float(images_of_sets()[largest]),
    }


def _clip() -> list[dict[str, Any]]:
    made = []
    for row in read("openclip"):
        flops, seen = float(row["gflops_pair"]) * 1e9, float(row["samples_seen"])
        made.append(
            {
                "model": f"{row['model']}.{row['pretrained']}",
                "arch": row["model"],
                "image_size": int(row["image_size"]),
                "params_m": float(row["mparams"]),
                "gmacs": flops / FLOPS_PER_MAC / 1e9,
                "pretrain_set": re.split(r"_[se]\d", row["pretrained"])[0],
                "pretrain_kind": "clip",
                "images_seen": seen,
                "train_exaflops": TRAIN_PER_FORWARD * flops * seen / EXA,
                "complete": not row["uncounted"],
                "uncounted": row["uncounted"],
                "source": f"open_clip; samples seen: {row['samples_seen_from']}",
                "note": row["note"],
            }
            | {test: 100 * float(row[test]) for test in ZERO_SHOT}
        )
    return made


def _paper() -> list[dict[str, Any]]:
    made = []
    for row in read("paper"):
        done = _stages(row["stages"])
        columns = training(row["arch"], done) | _sets([stage.upstream for stage in done])
        columns |= {name: row[name] for name in ("model", "family", "arch", "note")} | {"source": published.SOURCE}
        if row["printed_exaflops"]:
            columns["train_exaflops_paper"] = float(row["printed_exaflops"])
        numbers = {name: float(row[name]) for name in ("image_size", "in1k_top1", "real_top1")}
        made.append(columns | numbers)
    return made


def _stages(text: str) -> tuple[TrainingStage, ...]:
    """Parse stages of training ("in21k:300@224 | …", see `training_stages`) that belong to no checkpoint of timm."""
    recipe = PublishedRecipe(
        pattern="", stages=text, kind="", uncounted="", batch="", confidence="", source="", note=""
    )
    return training_stages.stages(recipe, "", own_size=0, images=images_of_sets())
