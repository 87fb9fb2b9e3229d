"""Convert compute to the units in which it is budgeted: core-days, TPUv3-core-days, GPU-hours. This file imports no
torch.

Core-days come from measured time. TPUv3-core-days and GPU-hours come from FLOPs and an assumed utilisation, which every
result states. The utilisation of TPUv3 cores is the one that Tables 2 (core-days) and 6 (FLOPs) of the ViT paper imply:
the geometric mean over the three ViTs whose FLOPs are known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bench.core.formatting import compact
from bench.cost.peaks import TERA, accelerator

SECONDS_PER_DAY = 86_400
SECONDS_PER_HOUR = 3_600
EXA = 1e18
OPTIMIZER_BYTES = 8  # AdamW keeps two float32 moments per parameter
TPUV3 = "TPUv3-core"

# ImageNet-21k has no row in Table 6, so this is counted: 6 FLOPs per forward MAC of ViT-L/16 with the 21,843-way head
# and hidden layer, over 90 epochs (Table 3) of the 14,197,122 images.
_I21K_EXAFLOPS = 6 * (61_554_712_576 - 1024 * 1000 + 1024 * 21_843 + 1024 * 1024) * 90 * 14_197_122 / EXA


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """One column of the ViT paper's Table 2 whose training FLOPs are known.

    Attributes:
        name: the ViT and its pre-training set.
        exaflops: training compute in 1e18 FLOPs, by the "paper" convention (see bench/cost/counter.py).
        core_days: published TPUv3-core-days.
        source: where both numbers come from.
    """

    name: str
    exaflops: float
    core_days: float
    source: str

    @property
    def rate(self) -> float:
        """Throughput of one TPUv3 core, in FLOP/s, that `exaflops` and `core_days` imply."""
        return self.exaflops * EXA / (self.core_days * SECONDS_PER_DAY)


ANCHORS: tuple[Anchor, ...] = (
    Anchor(name="ViT-H/14 (JFT)", exaflops=4262.0, core_days=2500.0, source="Tables 2 and 6"),
    Anchor(name="ViT-L/16 (JFT)", exaflops=1567.0, core_days=680.0, source="Tables 2 and 6"),
    Anchor(name="ViT-L/16 (I21k)", exaflops=_I21K_EXAFLOPS, core_days=230.0, source="Table 2; FLOPs counted"),
)


@dataclass(frozen=True, kw_only=True)
class CostEstimate:
    """A cost derived from FLOPs.

    Attributes:
        value, unit: the cost, and its unit in words ("TPUv3-core-days").
        device: name of the device.
        assumed: assumed utilisation of the device, as a fraction of its peak.
        source: where the utilisation comes from, in words.
    """

    value: float
    unit: str
    device: str
    assumed: float
    source: str

    def __str__(self) -> str:
        return f"{compact(self.value, 3)} {self.unit} (assuming {self.assumed:.0%} utilisation: {self.source})"


def core_days(seconds: float, devices: int) -> float:
    """Return the measured cost of a run in core-days: its days times its number of devices."""
    return seconds * devices / SECONDS_PER_DAY


def tpuv3_utilisation() -> float:
    """Return the fraction of a TPUv3 core's peak that the ViT paper's runs reached: the geometric mean over
    `ANCHORS`."""
    rate = math.exp(sum(math.log(anchor.rate) for anchor in ANCHORS) / len(ANCHORS))
    return rate / _peak(TPUV3)


def tpuv3_core_days(flops: float) -> CostEstimate:
    """Estimate how many TPUv3-core-days a training of so many FLOPs ("paper" convention) would have cost at the
    utilisation of the ViT paper's runs."""
    used = tpuv3_utilisation()
    days = flops / (used * _peak(TPUV3)) / SECONDS_PER_DAY
    worst = max(abs(row.ratio - 1) for row in reproduction())
    source = f"geometric mean implied by the paper's Table 2, which it reproduces within {worst:.0%}"
    return CostEstimate(value=days, unit="TPUv3-core-days", device=TPUV3, assumed=used, source=source)


def gpu_hours(flops: float, accelerator_name: str, utilisation: float, *, dtype: str = "bfloat16") -> CostEstimate:
    """Estimate how many device-hours a training of so many FLOPs takes on an accelerator, at an assumed utilisation (a
    fraction of the peak for `dtype`).

    Raises:
        UserError: there is no accelerator of this name.
        ValueError: the utilisation is not in (0, 1].
    """
    if not 0 < utilisation <= 1:
        raise ValueError(f"utilisation {utilisation} is not in (0, 1]")
    hours = flops / (utilisation * _peak(accelerator_name, dtype)) / SECONDS_PER_HOUR
    name = accelerator(accelerator_name).name
    return CostEstimate(
        value=hours, unit=f"{name}-hours", device=name, assumed=utilisation, source="given by the caller"
    )


@dataclass(frozen=True, kw_only=True)
class Reproduced:
    """One column of the ViT paper's Table 2 compared with our estimate.

    Attributes:
        name: the ViT and its pre-training set.
        published: TPUv3-core-days in Table 2.
        proxy: TPUv3-core-days that `tpuv3_core_days` estimates.
        utilisation: fraction of a TPUv3 core's peak that this column alone implies.
    """

    name: str
    published: float
    proxy: float
    utilisation: float

    @property
    def ratio(self) -> float:
        return self.proxy / self.published


def reproduction() -> tuple[Reproduced, ...]:
    """Return for each column of the ViT paper's Table 2 whose FLOPs are known its TPUv3-core-days, and the estimate
    from one utilisation for all columns."""
    rate = tpuv3_utilisation() * _peak(TPUV3)
    return tuple(
        Reproduced(
            name=anchor.name,
            published=anchor.core_days,
            proxy=anchor.exaflops * EXA / rate / SECONDS_PER_DAY,
            utilisation=anchor.rate / _peak(TPUV3),
        )
        for anchor in ANCHORS
    )


def reproduction_text() -> str:
    """Return a sentence for reports on how well the estimates reproduce the core-days of the ViT paper's Table 2."""
    rows = "; ".join(f"{r.name} {r.proxy:.0f} against {r.published:.0f} ({r.ratio - 1:+.0%})" for r in reproduction())
    return f"One utilisation of {tpuv3_utilisation():.1%} of {_peak(TPUV3) / TERA:g} TFLOP/s gives {rows} core-days."


def _peak(name: str, dtype: str = "bfloat16") -> float:
    return accelerator(name).tera[dtype] * TERA
