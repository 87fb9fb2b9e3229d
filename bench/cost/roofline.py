"""How fast a model trains on a device that is not here: bytes and FLOPs against its peaks, and what is reached of that.

Bytes follow from the activations that a model keeps for its backward pass, by a factor per family. The factors, and the
shares assumed of the peaks, are those of the code that is generated for an H100 (tools/h100.csv), which the
roofline here gives again within an eighth. `REACHED`, the share of the roofline that training reaches, comes from rates
that others published (h100_published.csv beside this file), since this project has no record of a GPU; so does its
error. No torch.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.cost.peaks import TERA, Accelerator, accelerator

PUBLISHED = Path(__file__).with_name("h100_published.csv")
PRODUCT_SHARE, MEMORY_SHARE = 0.7, 0.85  # assumed shares of the peaks of products and of memory
TRAFFIC = {"ViT": 2.65, "Hybrid": 4.2, "ResNet": 6.5}  # bytes moved in a step per byte of float32 activations kept
OTHER_TRAFFIC = 5.0  # of a family that is not in the table
UPDATE_BYTES = 36  # bytes moved per weight and step: AdamW's, and reading bfloat16 copies
OVERLAP = 0.81  # of the sum of the two times: kernels wait for one of them at a time, some for both
STEP_SECONDS = 5e-4  # seconds of a step that no image takes: between kernels
INFERENCE_SPEEDUP = 2.5
"""Images read per image trained on: of a step's kernels the forward pass takes 1 / 2.9; the rest are copies."""


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """One optimizer step on one device: `flops` and `activation_bytes` are of one image (training, float32)."""

    family: str
    flops: float
    activation_bytes: float
    params: int
    images: int


def seconds(work: StepWork, device: Accelerator) -> float:
    """The time of the step, were the roofline reached."""
    moved = TRAFFIC.get(work.family, OTHER_TRAFFIC) * work.activation_bytes * work.images + UPDATE_BYTES * work.params
    memory = moved / (MEMORY_SHARE * device.bandwidth * TERA)
    products = work.flops * work.images / (PRODUCT_SHARE * device.tera["bfloat16"] * TERA)
    return OVERLAP * (memory + products) + STEP_SECONDS


@dataclass(frozen=True, kw_only=True)
class PublishedRate:
    """A published rate of training, per device, and its share of the roofline."""

    model: str
    images_per_second: float
    source: str
    share: float


@cache
def published() -> tuple[PublishedRate, ...]:
    """Training rates on H100s that others published."""
    device, found = accelerator("H100"), []
    with PUBLISHED.open(encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            work = StepWork(
                family="ViT",
                flops=float(row["gflops"]) * 1e9,
                images=int(row["batch"]),
                activation_bytes=float(row["activation_megabytes"]) * 1e6,
                params=round(float(row["params_millions"]) * 1e6),
            )
            rate = float(row["images_per_second"])
            share = rate * seconds(work, device) / work.images
            found.append(PublishedRate(model=row["model"], images_per_second=rate, source=row["source"], share=share))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Reached:
    """A share of the roofline. `error`: of its logarithm, one standard deviation. `source`: in words."""

    share: float
    error: float
    source: str


@cache
def reached() -> Reached:
    """By training in general: the geometric mean over models of what was published, each the mean of its sources."""
    by_model: dict[str, list[float]] = {}
    for row in published():
        by_model.setdefault(row.model, []).append(math.log(row.share))
    means = [sum(logs) / len(logs) for logs in by_model.values()]
    mean = sum(means) / len(means)
    logs = [log for found in by_model.values() for log in found]
    error = math.sqrt(sum((log - mean) ** 2 for log in logs) / (len(logs) - 1))
    text = f"{math.exp(mean):.0%} of the roofline, as in {len(logs)} published rates of {len(means)} ViTs on H100s"
    return Reached(share=math.exp(mean), error=error, source=text)
