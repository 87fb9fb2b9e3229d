"""The paper's comparison of upstream sets (Table 5, Figure 3) and its VTAB scores (Table 9, Figure 2) as records.

What the paper prints is taken as printed. These tables print neither epochs nor compute: `epochs` is unknown, and
`images_seen` is the size of the upstream set, which says no more than that the network was trained.
"""

from __future__ import annotations

from typing import Any

from baselines.published import SOURCE, number, table
from baselines.published.scaling import TESTS

UPSTREAM = {"ImageNet": ("imagenet", 1_281_167), "ImageNet-21k": ("imagenet-21k", 14_000_000),
            "JFT-300M": ("jft-300m", 303_000_000)}  # fmt: skip
SHORT = {"JFT": "JFT-300M", "I21k": "ImageNet-21k"}
COLUMNS = {"ImageNet-ReaL": "ReaL", "Oxford-IIIT-Pets": "Pets", "Oxford-Flowers-102": "Flowers"}
"""Rows of Table 5 by the names that Table 6 gives the same data sets."""

VTAB = {
    "natural": ("Caltech101", "CIFAR-100", "DTD", "Flowers102", "Pets", "Sun397", "SVHN"),
    "specialised": ("Camelyon", "EuroSAT", "Resisc45", "Retinopathy"),
    "structured": ("Clevr-Count", "Clevr-Dist", "DMLab", "dSpr-Loc", "dSpr-Ori", "KITTI-Dist", "sNORB-Azim",
                   "sNORB-Elev"),
}  # fmt: skip
VTAB_TEST = 711
"""Images of VTAB's smallest test set, KITTI's. The paper prints no intervals; this errs on the wide side."""


def by_upstream() -> list[dict[str, Any]]:
    """Table 5: one record per (model, upstream set)."""
    rows = table("table5")
    models = [column for column in rows[0] if column not in ("pretrain", "dataset")]
    found = []
    for model in models:
        for upstream in UPSTREAM:
            mine = [row for row in rows if row["pretrain"] == upstream]
            scores = [_transfer(row["dataset"], value) for row in mine if (value := number(row[model])[0]) is not None]
            if scores:
                found.append(_record(model, upstream, scores, source="Table 5"))
    return found


def vtab() -> list[dict[str, Any]]:
    """Table 9: one record per model."""
    found = []
    for row in table("table9"):
        model, _, upstream = row["model"].partition(" ")
        scores = [
            _score("vtab", task.lower(), float(row[task]) / 100, VTAB_TEST, group)
            for group, tasks in VTAB.items() for task in tasks
        ]  # fmt: skip
        found.append(_record(model, SHORT[upstream.strip("()")], scores, source="Table 9"))
    return found


def _transfer(column: str, value: float) -> dict[str, Any]:
    data, num_test, _ = TESTS[COLUMNS.get(column, column)]
    return _score("finetune", data, value / 100, num_test, None)


def _score(task: str, data: str, value: float, num_test: int, group: str | None) -> dict[str, Any]:
    return {
        "task": task, "data": data, "metric": "accuracy", "value": value,
        "stderr": (value * (1 - value) / num_test) ** 0.5, "num_test": num_test, "num_classes": None, "chance": None,
        "shots": None, "draw": None, "detail": {"group": group} if group else {},
    }  # fmt: skip


def _record(model: str, upstream: str, scores: list[dict[str, Any]], *, source: str) -> dict[str, Any]:
    data, images = UPSTREAM[upstream]
    name = f"{model.lower().replace('/', '-')}_{data}"
    size = next(row for row in table("table6_sizes") if row["name"] == model)
    horizon: dict[str, Any] = {
        "images_seen": images, "unique_images": images, "epochs": None, "train_flops": {}, "seconds": {},
        "core_days": None, "scores": scores,
    }  # fmt: skip
    return {
        "schema": 1, "suite": "paper", "cell_id": name, "directory": name,
        "cell": {"model": model, "data": data, "num_images": images, "image_size": 224, "channels": 3, "seed": 0,
                 "axes": ["upstream"], "recipe": {}, "job": "train", "tasks": [], "model_options": [],
                 "horizons": [images]},
        "revisions": {}, "status": "complete", "reason": None, "source": f"{SOURCE}, {source}",
        "model": {"name": model, "family": "ViT", "params": int(size["params"]),
                  "params_body": int(size["params_body"]), "forward_macs": {}},
        "data": {"name": data, "kind": "photographs", "revision": None, "num_images": images, "num_classes": None,
                 "image_size": 224, "channels": 3},
        "horizons": [horizon],
        "cost": {"seconds": {}, "spent_flops": {}, "core_days": None, "devices": None, "device": "TPUv3",
                 "flop_convention": "paper"},
        "env": {}, "attempts": [],
    }  # fmt: skip
