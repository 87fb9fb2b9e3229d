"""Published networks with what they cost: accuracies that others measured, training FLOPs that are computed here.

Three tables, read from `baselines/published/` without torch (`SOURCES.md` there has origins, licences and method):

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

from baselines import published, timm
from bench.core.errors import unknown
from bench.cost import training_stages
from bench.cost.flops import EXA, FLOPS_PER_MAC, TRAIN_PER_FORWARD
from bench.cost.training_stages import LEARNT_FROM, Recipe, Stage, exaflops

FOLDER = Path(published.__file__).parent
VERSION = "2026-11-25"
"""Date of the tables. Raised whenever a number of theirs changes."""

TESTS = ("in1k_top1", "in1k_top5", "real_top1", "v2_top1", "a_top1", "r_top1", "sketch_top1")
ZERO_SHOT = ("in1k_zeroshot", "v2_zeroshot", "a_zeroshot", "r_zeroshot", "sketch_zeroshot")
COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "model": "name of the checkpoint: timm's, open_clip's, or as printed in the paper",
        "arch": "timm's name of the architecture",
        "family": "ViT, ResNet (BiT), hybrid ViT (ResNet stem), ConvNeXt, …",
        "table": "paper: table5 or table6",
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
        "stages": "the recipe as `bench.cost.training_stages` reads it; empty: no recipe was found",
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
PAPER_ARCHITECTURES = {
    "ViT-B/32": "vit_base_patch32_224",
    "ViT-B/16": "vit_base_patch16_224",
    "ViT-L/32": "vit_large_patch32_224",
    "ViT-L/16": "vit_large_patch16_224",
    "ViT-H/14": "vit_huge_patch14_224",
}
PAPER_TEST_SIZE = 384  # pixels per side that Tables 5 and 6 are fine-tuned and tested at, if nothing else is said
PAPER_SETS = {"ImageNet": "in1k", "ImageNet-21k": "in21k", "JFT-300M": "jft300m"}


def table(name: str = "checkpoints") -> pd.DataFrame:
    """One of the three tables; `COLUMNS` describes its columns.

    Raises:
        UserError: no such table.
    """
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    rows = {"checkpoints": _checkpoints, "clip": _clip, "paper": _paper}[name]()
    made = pd.DataFrame(rows)
    made = made[[column for column in COLUMNS if column in made]]
    for column in made.columns.difference(NUMBERS):
        made[column] = made[column].eq(True) if column in FLAGS else made[column].fillna("").astype(str)
    return made


def read(name: str) -> list[dict[str, str]]:
    """The rows of a CSV file in `baselines/published/`, every value as text."""
    with open(FOLDER / f"{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def recipes() -> tuple[Recipe, ...]:
    """Every line of the table of recipes."""
    return tuple(Recipe(**row) for row in read("recipes"))


@cache
def images_of_sets() -> Mapping[str, int]:
    """Number of images of every set that a recipe may name."""
    return {row["name"]: int(row["images"]) for row in read("sets")}


@cache
def _groups() -> Mapping[str, str]:
    return {row["name"]: row["group"] for row in read("sets")}


@cache
def _macs() -> dict[tuple[str, int], tuple[int, int]]:
    """(architecture, pixels per side) -> MACs, (dense, paper)."""
    own = (row for row in timm.table().values() if row["macs_dense"])
    made = {(row["model"], int(row["image_size"])): (int(row["macs_dense"]), int(row["macs_paper"])) for row in own}
    for row in read("timm_macs"):
        made[row["arch"], int(row["image_size"])] = int(row["macs_dense"]), int(row["macs_paper"])
    return made


def macs(arch: str, image_size: int) -> tuple[float, float]:
    """MACs of one forward pass of one of timm's architectures, (dense, paper); NaN where they were not counted."""
    return _macs().get((arch, image_size), (float("nan"), float("nan")))


def recipe_of(model: str) -> Recipe | None:
    """The recipe of a checkpoint; None where none was found."""
    return next((recipe for recipe in recipes() if recipe.matched(model) is not None), None)


def family(arch: str) -> str:
    """A label for one of timm's architectures; empty where it has none."""
    path = f"{timm.table()[arch]['family']}/{arch}"
    return next((row["family"] for row in _families() if re.fullmatch(row["pattern"], path)), "")


@cache
def _families() -> list[dict[str, str]]:
    return read("families")


def training(arch: str, done: tuple[Stage, ...]) -> dict[str, float]:
    """Columns of the table that follow from an architecture and its stages."""

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
    """Columns that follow from a checkpoint's recipe; none where none was found."""
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
        "pretrain_group": _groups()[largest],
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
    for row in published.table("table6"):
        made.append(
            {
                "model": f"{row['name']} {row['epochs']} epochs",
                "family": _paper_family(row["name"]),
                "table": "table6",
                "image_size": PAPER_TEST_SIZE,
                **_sets(["jft300m"]),
                "images_seen": int(row["epochs"]) * images_of_sets()["jft300m"],
                "train_exaflops_paper": float(row["exaFLOPs"]),
                "in1k_top1": float(row["ImageNet"]),
                "real_top1": float(row["ReaL"]),
                "source": published.SOURCE,
                "note": "FLOPs as printed; fine-tuning is not in them",
            }
        )
    accuracies = {(row["pretrain"], row["dataset"]): row for row in published.table("table5")}
    for (name, dataset), row in accuracies.items():
        for model, arch in PAPER_ARCHITECTURES.items():
            if dataset == "ImageNet" and row[model]:
                epochs = _paper_epochs(model, name)
                seen = epochs * images_of_sets()[PAPER_SETS[name]]
                stage = Stage(upstream=PAPER_SETS[name], images_seen=seen, image_size=224, fine_tuning=False)
                made.append(
                    {
                        "model": f"{model} {epochs} epochs",
                        "family": "ViT",
                        "table": "table5",
                        "arch": arch,
                        "image_size": PAPER_TEST_SIZE,
                        **_sets([PAPER_SETS[name]]),
                        **training(arch, (stage,)),
                        "in1k_top1": float(row[model]),
                        "real_top1": float(accuracies[name, "ImageNet-ReaL"][model]),
                        "source": f"{published.SOURCE}, epochs of Table 3",
                        "note": "fine-tuning is not counted"
                        + "; Table 3 gives 30/90 epochs, 90 are taken" * (epochs == 90 and "L/" in model),
                    }
                )
    return made


def _paper_family(printed: str) -> str:
    if "+" in printed:
        return "hybrid ViT (ResNet stem)"
    return "ViT" if printed.startswith("ViT") else "ResNet (BiT)"


def _paper_epochs(model: str, pretrained_on: str) -> int:
    """Epochs of pre-training in Table 3: the longest schedule that it gives a model on a set."""
    if pretrained_on == "ImageNet":
        return 300
    if pretrained_on == "ImageNet-21k":
        return 90
    return 14 if model in ("ViT-L/16", "ViT-H/14") else 7
