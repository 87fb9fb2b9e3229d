"""Estimate how fast a model trains on a device that is not at hand, by a roofline: the time that its bytes and its
FLOPs take at the device's peaks.

The bytes moved in a step are those of the activations that a model keeps for its backward pass, times a factor per
family. The factors, and the assumed fractions of the peaks, come from the code that is generated for an H100
(tools/h100.csv, computed and not measured), whose throughput this roofline reproduces within an eighth. The fraction of
the roofline that training reaches in practice (`reached`) and its error come from throughputs that others published
(published_rates.csv beside this file), because this project has no record of a GPU. This file imports no torch.
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
PRODUCT_SHARE, MEMORY_SHARE = 0.7, 0.85  # assumed fractions of the peaks of matrix products and of memory bandwidth
TRAFFIC = {"ViT": 2.65, "Hybrid": 4.2, "ResNet": 6.5}  # bytes moved in a step per byte of float32 activations kept
OTHER_TRAFFIC = 5.0  # the same for a family that is not in TRAFFIC
UPDATE_BYTES = 36  # bytes moved per weight and step: by AdamW, and in reading bfloat16 copies
UNSEEN_FAMILY_ERROR = 0.35  # standard deviation (of the logarithm) added for a family without published throughput
UNSEEN_DEVICE_ERROR = 0.2  # the same for a device on which no throughput of the family was published
OVERLAP = 0.81  # time of a step / (time for memory + time for products): most kernels wait for one, some for both
STEP_SECONDS = 5e-4  # seconds between the kernels of a step, whatever the number of images
INFERENCE_SPEEDUP = 2.5
"""Throughput of inference divided by that of training. The forward pass takes 1 / 2.9 of a step's kernel time; copies
account for the difference between 2.9 and 2.5."""


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """The work of one optimizer step on one device.

    Attributes:
        family: label of the model's family ("ViT").
        flops: training FLOPs per image.
        activation_bytes: bytes kept for the backward pass per image, in float32.
        params: number of parameters.
        images: images per step.
    """

    family: str
    flops: float
    activation_bytes: float
    params: int
    images: int


def seconds(work: StepWork, device: Accelerator) -> float:
    """Return the seconds that a training step would take on a device if it reached the roofline."""
    moved = TRAFFIC.get(work.family, OTHER_TRAFFIC) * work.activation_bytes * work.images + UPDATE_BYTES * work.params
    memory = moved / (MEMORY_SHARE * device.bandwidth * TERA)
    products = work.flops * work.images / (PRODUCT_SHARE * device.tera["bfloat16"] * TERA)
    return OVERLAP * (memory + products) + STEP_SECONDS


@dataclass(frozen=True, kw_only=True)
class PublishedRate:
    """A training throughput that others published.

    Attributes:
        model: the model's name.
        family: label of the model's family (a key of TRAFFIC).
        device: name of a device in `peaks.ACCELERATORS`.
        images_per_second: images per second and device.
        source: who published the throughput, in words.
        alone: whether the device only computed, without waiting for images or other machines.
        share: the throughput as a fraction of the roofline's.
    """

    model: str
    family: str
    device: str
    images_per_second: float
    source: str
    alone: bool
    share: float


@cache
def published() -> tuple[PublishedRate, ...]:
    """Return the training throughputs that others published, as published_rates.csv lists them."""
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
    """The fraction of the roofline's throughput that training reaches.

    Attributes:
        share: the fraction.
        error: one standard deviation of the fraction's logarithm, for a model whose throughput was not published.
        source: where `share` comes from, in words.
    """

    share: float
    error: float
    source: str


@cache
def reached(family: str, device: str) -> Reached:
    """Return the fraction of the roofline's throughput that training the models of a family reaches on a device.

    The fraction is the geometric mean over the family's models with a published throughput of computing alone (over all
    such models if the family has none). Several throughputs of one model are averaged first. The scatter between models
    is assumed to be the same in all families.
    """
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
