"""Diabetic Retinopathy Detection: how far the disease has gone, from a picture of the retina (EyePACS, 2015).

VTAB's `Retinopathy` takes pictures that were cropped and normalised by the winner's method at radius 300
("btgraham-300"): put those into the folders. "train" is the training part and the public half of Kaggle's test part,
VTAB's validation; "test" is the private half.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.core.errors import UserError
from bench.data import named
from bench.data.formats._source import Source
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "retinopathy", 1, "photographs"
LICENCE = "Kaggle's competition rules"
SOURCE = "https://www.kaggle.com/c/diabetic-retinopathy-detection (EyePACS)"
HOW_TO_GET = (
    "Get train/, test/, trainLabels.csv and retinopathy_solution.csv from "
    "https://www.kaggle.com/c/diabetic-retinopathy-detection into <data root>/retinopathy/."
)
DESCRIPTION = "photographs of retinas, 5 classes, 46,032 (train and val) + 42,670"
SIDE, CHANNELS = 224, 3
OPTIONS = named.options(NAME, SIDE)
CLASSES = ("none", "mild", "moderate", "severe", "proliferative")


def available(root: Path | None) -> bool:
    needed = ("train", "test", "trainLabels.csv", "retinopathy_solution.csv")
    return named.all_below(root, *(f"retinopathy/{name}" for name in needed))


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    folder = root / "retinopathy"
    solution = _rows(folder / "retinopathy_solution.csv")
    usage = {"train": "Public", "test": "Private"}[split]
    rows = [("test", row) for row in solution if row["Usage"] == usage]
    if split == "train":
        rows = [("train", row) for row in _rows(folder / "trainLabels.csv")] + rows
    paths = [folder / part / f"{row['image']}.jpeg" for part, row in rows]
    return named.files(paths, [_level(row) for _, row in rows]), CLASSES


def _rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["image"])
    for row in rows:
        if not row["image"].replace("_", "").isalnum():
            raise UserError(f"{path}: {row['image']!r} is not the name of an image.", "Get the file again.")
    return rows


def _level(row: dict[str, str]) -> int:
    level = int(row["level"])
    if not 0 <= level < len(CLASSES):
        raise UserError(f"{row['image']} has level {level}.", f"Levels go from 0 to {len(CLASSES) - 1}.")
    return level
