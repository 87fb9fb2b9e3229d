"""The paper's scaling study (Table 6, Figure 5) in the form of this project's records, one per printed model.

What the paper prints is taken as printed: exaFLOPs, epochs, accuracies. Added from elsewhere: sizes of the test sets,
numbers of classes (the data sets' own), and parameters, counted on this project's models with 1000 classes. Forward
multiply-adds follow from the exaFLOPs: compute = 6 x MACs x epochs x 303 million images. Nothing else is known: no
seeds, no seconds, no core-days.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from baselines.published import SOURCE, model_name, table

JFT_IMAGES = 303e6
QUESTION = "what does the paper's own Table 6 say about scaling?"
TESTS: Mapping[str, tuple[str, int, int]] = MappingProxyType(
    {
        "ImageNet": ("imagenet", 50_000, 1000),
        "ReaL": ("imagenet-real", 46_837, 1000),
        "CIFAR-10": ("cifar-10", 10_000, 10),
        "CIFAR-100": ("cifar-100", 10_000, 100),
        "Pets": ("pets", 3_669, 37),
        "Flowers": ("flowers", 6_149, 102),
    }
)
"""Column of Table 6: (data set, test images, classes). ReaL drops the validation images without a label."""

HEADLINE = tuple(f"finetune:{TESTS[c][0]}" for c in ("ImageNet", "CIFAR-10", "CIFAR-100", "Pets", "Flowers"))
"""Figure 5's "Average-5": the plain mean, without ReaL."""


def family(printed: str) -> str:
    """The legend of Figure 5: ViT, ResNet or Hybrid."""
    return "Hybrid" if "+" in printed else printed[:3] if printed.startswith("ViT") else "ResNet"


def records() -> list[dict[str, Any]]:
    """Table 6 as records: one per model, one horizon per number of epochs (each was a run of its own)."""
    by_name: dict[str, list[dict[str, str]]] = {}
    for row in table("table6"):
        by_name.setdefault(row["name"], []).append(row)
    sizes = {row["name"]: row for row in table("table6_sizes")}
    return [_record(name, rows, sizes[name]) for name, rows in by_name.items()]


def _record(printed: str, rows: list[dict[str, str]], size: dict[str, str]) -> dict[str, Any]:
    rows = sorted(rows, key=lambda row: int(row["epochs"]))
    name = model_name(printed)
    macs = float(rows[-1]["exaFLOPs"]) * 1e18 / (6 * int(rows[-1]["epochs"]) * JFT_IMAGES)
    directory = name.lower().replace("/", "-").replace("+", "-") + "_jft"
    flops = sum(float(row["exaFLOPs"]) * 1e18 for row in rows)
    return {
        "schema": 1, "suite": "paper", "cell_id": directory, "directory": directory,
        "cell": {"model": name, "data": "jft-300m", "num_images": int(JFT_IMAGES), "image_size": 224, "channels": 3,
                 "seed": 0, "axes": ["compute"], "recipe": {}, "job": "train", "tasks": [], "model_options": [],
                 "horizons": [int(int(row["epochs"]) * JFT_IMAGES) for row in rows]},
        "revisions": {}, "status": "complete", "reason": None, "source": f"{SOURCE}, Table 6",
        "model": {"name": name, "family": family(printed), "params": int(size["params"]),
                  "params_body": int(size["params_body"]), "forward_macs": {"dense": None, "paper": macs}},
        "data": {"name": "jft-300m", "kind": "photographs", "revision": None, "num_images": int(JFT_IMAGES),
                 "num_classes": 18_291, "image_size": 224, "channels": 3},
        "horizons": [_horizon(row) for row in rows],
        "cost": {"seconds": {}, "spent_flops": {"dense": None, "paper": flops}, "core_days": None, "devices": None,
                 "device": "TPUv3", "flop_convention": "paper"},
        "env": {}, "attempts": [],
    }  # fmt: skip


def _horizon(row: dict[str, str]) -> dict[str, Any]:
    epochs, flops = int(row["epochs"]), float(row["exaFLOPs"]) * 1e18
    counted = {"dense": None, "paper": flops}
    return {
        "images_seen": int(epochs * JFT_IMAGES), "unique_images": int(JFT_IMAGES), "epochs": float(epochs),
        "train_flops": counted, "spent_flops": counted, "seconds": {}, "core_days": None,
        "scores": [_score(column, float(row[column]) / 100) for column in TESTS],
    }  # fmt: skip


def _score(column: str, value: float) -> dict[str, Any]:
    """The error over test images is the binomial one: the paper prints no other for Table 6."""
    data, num_test, num_classes = TESTS[column]
    return {
        "task": "finetune", "data": data, "metric": "accuracy", "value": value,
        "stderr": (value * (1 - value) / num_test) ** 0.5, "num_test": num_test, "num_classes": num_classes,
        "chance": 1 / num_classes, "shots": None, "draw": None, "detail": {},
    }  # fmt: skip
