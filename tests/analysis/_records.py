"""Synthetic records with a known truth: accuracy grows with compute along a power law per family, plus noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bench.store.records import write_record

UPSTREAM, HEADLINE, FAR = "glyphs", ("fashion-mnist", "mnist"), ("digits",)
NUM_TEST = {"fashion-mnist": 2000, "mnist": 2000, "digits": 899, "glyphs": 2000}
CLASSES = {"fashion-mnist": 10, "mnist": 10, "digits": 10, "glyphs": 100}
PIXELS = {"fashion-mnist": 0.687, "mnist": 0.66, "digits": 0.875}
UNTRAINED = {"ViT": 0.50, "Hybrid": 0.40, "ResNet": 0.30}
OFFSET = {"fashion-mnist": 0.04, "mnist": 0.02, "digits": 0.08, "glyphs": 0.0}
MODELS = {  # name: (family, body parameters, forward MACs)
    "ViT-nano/7": ("ViT", 6e4, 1.1e6), "ViT-mini/7": ("ViT", 2.1e5, 3.3e6), "ViT-small/7": ("ViT", 8e5, 1.2e7),
    "R-mini+ViT-nano/2": ("Hybrid", 9e4, 4.0e6), "R-mini+ViT-mini/2": ("Hybrid", 2.6e5, 8.0e6),
    "ResNet-mini": ("ResNet", 4e4, 3.0e6), "ResNet-small": ("ResNet", 1.6e5, 1.2e7),
    "ResNet-base": ("ResNet", 6.5e5, 4.4e7),
}  # fmt: skip


class World:
    """Truth and noise. Fields may be changed before `records()`; everything is a function of `seed`."""

    def __init__(self, *, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.level = {"ViT": 0.62, "Hybrid": 0.68, "ResNet": 0.70}  # accuracy at 1 TFLOP
        self.slope = {"ViT": 0.09, "Hybrid": 0.07, "ResNet": 0.06}  # per decade of compute
        self.data_slope = 0.05  # per decade of distinct images
        self.seed_sd, self.draw_sd, self.noise_sd = 0.006, 0.012, 0.003
        self.seeds, self.draws, self.shots = (0, 1), (0, 1, 2), (1, 5, 10)
        self.horizons = (0, 8_000, 24_000, 72_000)
        self.num_images, self.sizes = 30_000, (300, 1_000, 3_000, 10_000, 30_000)
        self.models = dict(MODELS)
        self.commit = "0" * 40

    def accuracy(self, family: str, flops: float, num_images: int, task: str) -> float:
        base = self.level[family] + self.slope[family] * np.log10(flops / 1e12)
        return float(np.clip(base + self.data_slope * np.log10(num_images / 30_000) + OFFSET[task], 0.02, 0.99))

    def records(self) -> list[dict[str, Any]]:
        """Compute axis for every model, data-size axis for the middle model of each family, raw pixels."""
        self.draw_offsets = {(task, d): self.rng.normal(0, self.draw_sd) for task in NUM_TEST for d in self.draws}
        self.image_offsets = {task: self.rng.normal(0, 0.009) for task in NUM_TEST}
        middle = ("ViT-mini/7", "R-mini+ViT-mini/2", "ResNet-small")
        found = []
        for name in self.models:
            for size in self.sizes if name in middle else (self.num_images,):
                axes = [*(["compute"] if size == self.num_images else []), *(["data_size"] if name in middle else [])]
                found += [self.record(name, size, seed, axes) for seed in self.seeds]
        return [*found, self.pixels()]

    def record(self, name: str, size: int, seed: int, axes: list[str]) -> dict[str, Any]:
        family, body, macs = self.models[name]
        offsets = {task: self.rng.normal(0, self.seed_sd) for task in NUM_TEST}
        rows, spent = [], 0.0
        for seen in self.horizons:
            flops = 6 * macs * seen
            scores = []
            for task in (*HEADLINE, *FAR):
                for shots in self.shots:
                    truth = UNTRAINED[family] + OFFSET[task] if not seen else self.accuracy(family, flops, size, task)
                    truth -= 0.12 * np.log10(10 / shots)
                    for draw in self.draws:
                        noise = self.draw_offsets[task, draw] + offsets[task] + self.image_offsets[task]
                        value = np.clip(truth + noise + self.rng.normal(0, self.noise_sd), 0.01, 0.99)
                        scores.append(score(task, float(value), shots, draw))
            if seen:
                value = self.accuracy(family, flops, size, UPSTREAM) + offsets[UPSTREAM]
                scores.append(score(UPSTREAM, float(value), None, None))
            seconds = flops / 4e10
            rows.append({
                "images_seen": seen, "unique_images": min(seen, size), "epochs": seen / size, "steps": seen // 64,
                "batch": 64, "train_flops": {"dense": flops * 1.02, "paper": flops},
                "spent_flops": {"dense": (flops - 0.8 * spent) * 1.02, "paper": flops - 0.8 * spent},
                "seconds": {"train": seconds * 0.6, "evaluate": 1.5, "save": 0.2, "wait": 0.0},
                "train_seconds": seconds, "images_per_second": seen / seconds if seen else None,
                "flops_per_second": 4e10 if seen else None,
                "utilisation": 0.31 if seen else None, "core_days": 2 * seconds / 86400,
                "final_train_loss": 3.0 - 0.2 * np.log10(flops / 1e9) if seen else None, "scores": scores,
            })  # fmt: skip
            spent = flops
        return self.body(name, family, size, seed, axes, rows, body, macs)

    def pixels(self) -> dict[str, Any]:
        scores = [
            score(task, float(np.clip(PIXELS[task] + self.draw_offsets[task, d] - 0.12 * np.log10(10 / k), 0, 1)), k, d)
            for task in (*HEADLINE, *FAR) for k in self.shots for d in self.draws
        ]  # fmt: skip
        row = {"images_seen": 0, "unique_images": 0, "epochs": 0.0, "steps": 0, "batch": 64,
               "train_flops": {"dense": 0, "paper": 0}, "spent_flops": {"dense": 0, "paper": 0},
               "seconds": {"train": 0, "evaluate": 1.0, "save": 0, "wait": 0}, "train_seconds": 0,
               "images_per_second": None, "core_days": 0.0, "final_train_loss": None, "scores": scores}  # fmt: skip
        return self.body("pixels", "Pixels", self.num_images, 0, [], [row], 0, 0.0)

    def body(
        self, name: str, family: str, size: int, seed: int, axes: list[str], rows: list[dict[str, Any]],
        params: float, macs: float, status: str = "complete", reason: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        readable = f"{name.lower().replace('/', '-')}_{UPSTREAM}-{size}_s{seed}"
        train = sum(row["seconds"]["train"] for row in rows)
        return {
            "schema": 1, "suite": "scaling", "cell_id": readable[-10:], "directory": f"{readable}-0123456789",
            "cell": {"model": name, "data": UPSTREAM, "num_images": size, "image_size": 28, "channels": 1, "seed": seed,
                     "recipe": {"lr": 0.001, "batch": 64, "schedule": "branch"}, "axes": axes, "job": "train",
                     "horizons": [row["images_seen"] for row in rows], "tasks": [], "model_options": []},
            "revisions": {"model": 1, "recipe": 1, "data:glyphs": 1, "task:fewshot": 1},
            "status": status, "reason": reason,
            "model": {"name": name, "family": family, "params": params * 1.1, "params_body": params, "num_features": 64,
                      "forward_macs": {"dense": macs * 1.02, "paper": macs},
                      "train_flops_per_image": {"dense": 6.12 * macs, "paper": 6 * macs}},
            "data": {"name": UPSTREAM, "kind": "rendered", "revision": 1, "num_images": size, "num_classes": 100,
                     "content_hash": "c" * 64, "image_size": 28, "channels": 1, "num_val": 2000},
            "horizons": rows, "peak_flops_per_second": 1.3e11, "peak_source": "measured matmul, float32, 1 thread",
            "cost": {"seconds": {"train": train, "evaluate": 1.5 * len(rows), "save": 0.2, "wait": 0.0,
                                 "total": train + 1.5 * len(rows) + 0.2},
                     "spent_flops": {c: sum(row["spent_flops"][c] for row in rows) for c in ("dense", "paper")},
                     "spent_images": round(sum(r["spent_flops"]["paper"] for r in rows) / (6 * macs)) if macs else 0,
                     "core_days": 2 * train / 86400, "devices": 1, "device": "cpu", "threads": 2,
                     "peak_memory_bytes": 4e8, "flop_convention": "paper"},
            "env": {"python": "3.12.1", "torch": "2.8.0", "timm": "1.0.15", "numpy": "2.0.0", "platform": "Linux",
                    "cpu": "Example CPU", "threads": 2, "dtype": "float32", "commit": self.commit, "dirty": False,
                    "project_version": "0.1.0", "time_start": "2030-01-01T00:00:00", "time_end": "2030-01-01T00:01:00"},
            "attempts": [{"started": "2030-01-01T00:00:00", "ended": "2030-01-01T00:01:00", "outcome": "complete",
                          "steps": [0, 100]}],
        }  # fmt: skip

    def diverged(self, name: str = "ViT-small/7", seed: int = 7) -> dict[str, Any]:
        """A cell whose loss became NaN."""
        family, params, macs = self.models[name]
        return self.body(name, family, self.num_images, seed, ["compute"], [], params, macs, "diverged",
                         "the loss was not a number from step 120 on")  # fmt: skip


def score(task: str, value: float, shots: int | None, draw: int | None) -> dict[str, Any]:
    n = NUM_TEST[task]
    return {
        "task": "upstream" if task == UPSTREAM else "fewshot", "data": task, "metric": "accuracy", "value": value,
        "stderr": float(np.sqrt(value * (1 - value) / n)), "num_test": n, "num_classes": CLASSES[task],
        "chance": 1 / CLASSES[task], "shots": shots, "draw": draw, "detail": {},
    }  # fmt: skip


def write(records: list[dict[str, Any]], directory: Path) -> Path:
    """Write records as a run leaves them; returns the suite's folder."""
    for record in records:
        folder = directory / "cells" / record["directory"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spec.json").write_text(json.dumps({"schema": 1, "cell": record["cell"]}))
        write_record(folder / "record.json", record)
    return directory
