"""How many cells to put on each GPU, and what that gains: a proposal, from a calibration on the GPU.

A step is launched by a processor and computed by the GPU, which is idle where launching takes longer. So N alike cells
are up to N times as fast together, and never more than a step's launching is longer than its computing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.core import environment
from bench.core.device import accelerators
from bench.plan.estimate import Rates
from bench.plan.resources import MEMORY_MARGIN, Needs

LEAST_GAIN, NEAR = 1.2, 0.97  # a gain that is worth a word; a share of the most that counts as all of it


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is left of one cell: seconds alone on a GPU, and what its model and its resources are known to be."""

    seconds: float
    rates: Rates
    needs: Needs


def gain(loads: Sequence[Load], number: int) -> float:
    """How many times as fast so many cells at once on each GPU are as one: the most that can be."""
    idle = ((load.seconds, max(1.0, load.rates.launching / load.rates.computing)) for load in loads)
    together = sum(seconds / min(number, ratio) for seconds, ratio in idle)
    return sum(load.seconds for load in loads) / together


def proposal(loads: Sequence[Load], *, device: str, memory: int) -> str:
    """A sentence for a plan; "" where one cell at a time is as fast, or there are no more cells than GPUs.

    Args:
        memory: free bytes of one GPU.
    """
    devices = max(1, len(accelerators(device)))
    if len(loads) <= devices:
        return ""
    if not all(load.rates.computing for load in loads):
        return "How many cells each GPU is to be shared by (--share) is known after a calibration on the GPU alone."
    largest = max(load.needs.device for load in loads)
    fitting = int(memory / (MEMORY_MARGIN * largest)) if largest else len(loads)
    most = max(1, min(fitting, environment.cores() // devices, -(-len(loads) // devices)))
    number = next(n for n in range(1, most + 1) if gain(loads, n) >= NEAR * gain(loads, most))
    if (faster := gain(loads, number)) < LEAST_GAIN:
        return ""
    idlest = max(loads, key=lambda load: load.rates.launching / load.rates.computing).rates
    return (
        f"GPUs are idle while steps are launched ({idlest.model}: {1e3 * idlest.launching:.1f} ms, computed in "
        f"{1e3 * idlest.computing:.1f} ms, not compiled): --share {number} is up to {faster:.1f} times as fast."
    )
