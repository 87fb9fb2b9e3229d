"""Compute in the units people budget in: core-days, TPUv3-core-days, GPU-hours. No torch.

Core-days come from measured time. TPUv3-core-days and GPU-hours come from FLOPs and a utilisation that is assumed,
and everything that returns one can say which. The TPUv3 utilisation is what the paper's Table 2 implies, taken with
its Table 6: the geometric mean over the three ViTs whose FLOPs are known.
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

# ImageNet-21k has no row in Table 6. Forward MACs of ViT-L/16 with the 21,843-way head and hidden layer, 90 epochs
# (Table 3) of its 14,197,122 images.
_I21K_EXAFLOPS = 6 * (61_554_712_576 - 1024 * 1000 + 1024 * 21_843 + 1024 * 1024) * 90 * 14_197_122 / EXA


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """One column of Table 2 whose training FLOPs are known. `exaflops` is "paper" convention; `source` says whose."""

    name: str
    exaflops: float
    core_days: float
    source: str

    @property
    def rate(self) -> float:
        """FLOPs per second of one TPUv3 core that the two published numbers imply."""
        return self.exaflops * EXA / (self.core_days * SECONDS_PER_DAY)


ANCHORS: tuple[Anchor, ...] = (
    Anchor(name="ViT-H/14 (JFT)", exaflops=4262.0, core_days=2500.0, source="Tables 2 and 6"),
    Anchor(name="ViT-L/16 (JFT)", exaflops=1567.0, core_days=680.0, source="Tables 2 and 6"),
    Anchor(name="ViT-L/16 (I21k)", exaflops=_I21K_EXAFLOPS, core_days=230.0, source="Table 2; FLOPs counted"),
)


@dataclass(frozen=True, kw_only=True)
class CostEstimate:
    """A cost derived from FLOPs: `value` in `unit`, with the utilisation `assumed` of `device` and its origin."""

    value: float
    unit: str
    device: str
    assumed: float
    source: str

    def __str__(self) -> str:
        return f"{compact(self.value, 3)} {self.unit} (assuming {self.assumed:.0%} utilisation: {self.source})"


def core_days(seconds: float, devices: int) -> float:
    """Devices x days: the measured cost of a run."""
    return seconds * devices / SECONDS_PER_DAY


def tpuv3_utilisation() -> float:
    """The share of a TPUv3 core's peak that the paper's runs reached: geometric mean over Table 2's ViTs."""
    rate = math.exp(sum(math.log(anchor.rate) for anchor in ANCHORS) / len(ANCHORS))
    return rate / _peak(TPUV3)


def tpuv3_core_days(flops: float) -> CostEstimate:
    """A proxy: what training FLOPs ("paper" convention) would have cost the paper's authors."""
    used = tpuv3_utilisation()
    days = flops / (used * _peak(TPUV3)) / SECONDS_PER_DAY
    worst = max(abs(row.ratio - 1) for row in reproduction())
    source = f"geometric mean implied by the paper's Table 2, which it reproduces within {worst:.0%}"
    return CostEstimate(value=days, unit="TPUv3-core-days", device=TPUV3, assumed=used, source=source)


def gpu_hours(flops: float, accelerator_name: str, utilisation: float, *, dtype: str = "bfloat16") -> CostEstimate:
    """Device-hours for training FLOPs on a named accelerator at an assumed utilisation of its peak.

    Raises:
        UserError: no such accelerator.
        ValueError: utilisation outside (0, 1].
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
    """One column of Table 2 beside the proxy. `ratio` = proxy / published; `utilisation` is the column's own."""

    name: str
    published: float
    proxy: float
    utilisation: float

    @property
    def ratio(self) -> float:
        return self.proxy / self.published


def reproduction() -> tuple[Reproduced, ...]:
    """How well one utilisation for all reproduces Table 2's TPUv3-core-days."""
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
    """What a reproduction costs, in words for reports."""
    rows = "; ".join(f"{r.name} {r.proxy:.0f} against {r.published:.0f} ({r.ratio - 1:+.0%})" for r in reproduction())
    return f"One utilisation of {tpuv3_utilisation():.1%} of {_peak(TPUV3) / TERA:g} TFLOP/s gives {rows} core-days."


def _peak(name: str, dtype: str = "bfloat16") -> float:
    return accelerator(name).tera[dtype] * TERA
