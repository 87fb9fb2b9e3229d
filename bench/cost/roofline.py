"""How fast a model trains on a device that is not here: bytes and FLOPs against its peaks, and what is reached of that.

Bytes follow from the activations that a model keeps for its backward pass, by a factor per family. The factors, and the
shares assumed of the peaks, are those of the code that is generated for an H100 (tools/h100.csv), which the
roofline here gives again within an eighth. `reached`, the share of the roofline that training reaches, and its error
come from rates that others published (published_rates.csv beside this file): this project has no record of a GPU. No
torch.
"""

from __future__ import annotations

import csv
import math
import statistics
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.core.formatting import plural
from bench.cost.peaks import TERA, Accelerator, accelerator

PUBLISHED = Path(__file__).with_name("published_rates.csv")
PRODUCT_SHARE, MEMORY_SHARE = 0.7, 0.85  # assumed shares of the peaks of products and of memory
TRAFFIC = {"ViT": 2.65, "Hybrid": 4.2, "ResNet": 6.5}  # bytes moved in a step per byte of float32 activations kept
OTHER_TRAFFIC = 5.0  # of a family that is not in the table
UPDATE_BYTES = 36  # bytes moved per weight and step: AdamW's, and reading bfloat16 copies
UNSEEN_FAMILY_ERROR = 0.35  # more error (of the logarithm) for a family that no published rate is of
UNSEEN_DEVICE_ERROR = 0.2  # and for a device that none of the family's is of
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
    """A published rate of training, per device, and its share of the roofline; `alone`: of computing alone, without
    images or other machines to wait for."""

    model: str
    family: str
    device: str
    images_per_second: float
    source: str
    alone: bool
    share: float


@cache
def published() -> tuple[PublishedRate, ...]:
    """Training rates that others published."""
    with PUBLISHED.open(encoding="utf-8") as file:
        return tuple(map(_rate, csv.DictReader(line for line in file if not line.startswith("#"))))


def _rate(row: dict[str, str]) -> PublishedRate:
    rate = float(row["images_per_second"])
    work = StepWork(
        family=row["family"],
        flops=float(row["gflops"]) * 1e9,
        images=int(row["batch"]),
        activation_bytes=float(row["activation_megabytes"]) * 1e6,
        params=round(float(row["params_millions"]) * 1e6),
    )
    return PublishedRate(
        model=row["model"],
        family=row["family"],
        device=row["device"],
        images_per_second=rate,
        source=row["source"],
        alone=row["kind"] == "compute",
        share=rate * seconds(work, accelerator(row["device"])) / work.images,
    )


@dataclass(frozen=True, kw_only=True)
class Reached:
    """A share of the roofline. `error`: of its logarithm for a model that is not among the published ones, one standard
    deviation. `source`: in words."""

    share: float
    error: float
    source: str


@cache
def reached(family: str, device: str) -> Reached:
    """The share of the roofline that training reaches: the geometric mean over the models of a family, or of all where
    none of it is known, whose rates of computing alone were published, each the mean of its sources. Rates scatter
    alike in all families."""
    means = dict[str, dict[str, float]]()
    alone = [row for row in published() if row.alone]
    for row in alone:
        same = [math.log(other.share) for other in alone if other.model == row.model]
        means.setdefault(row.family, {})[row.model] = statistics.fmean(same)
    residuals = [math.log(row.share) - statistics.fmean(means[row.family].values()) for row in alone]
    logs = [log for name, models in means.items() if name == family or family not in means for log in models.values()]
    mean = statistics.fmean(logs)
    variance = sum(x**2 for x in residuals) / (len(residuals) - len(means)) * (1 + 1 / len(logs))
    if family not in means:
        variance += UNSEEN_FAMILY_ERROR**2
    elif not any((row.family, row.device) == (family, device) for row in alone):
        variance += UNSEEN_DEVICE_ERROR**2
    whose = plural(len(logs), family if family in means else "network")
    text = f"{math.exp(mean):.0%} of the roofline, as in published rates of {whose}, computing alone"
    return Reached(share=math.exp(mean), error=math.sqrt(variance), source=text)
