"""Events that a training run yields to the loop that drives it: `for event in trainer.run(): …`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bench.core.events import Advanced


@dataclass(frozen=True, slots=True)
class Stepped:
    """One optimizer step is done.

    Attributes:
        loss: mean over the global batch, a scalar on the device: reading it waits for the device.
    """

    loss: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class HorizonReached:
    """The model is cooled down to a compute budget. Whoever evaluates it hands the row to `Trainer.keep`.

    Attributes:
        images_seen: the budget; 0 is the untrained network.
        loss: mean training loss of the last steps; None where there were none.
    """

    images_seen: int
    loss: float | None


@dataclass(frozen=True, slots=True)
class CheckDue:
    """The model is to be checked for early stopping. Whoever reads its accuracy tells `Trainer.best`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointSaved:
    """A checkpoint is on the disk.

    Attributes:
        work: steps done by then, over all segments; a run that is killed continues from here.
    """

    work: int


Event = Stepped | Advanced | HorizonReached | CheckDue | CheckpointSaved
