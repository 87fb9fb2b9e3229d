"""Events that a training run yields to the loop that drives it: `for event in trainer.run(): …`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bench.core.events import Advanced


@dataclass(frozen=True, slots=True)
class Stepped:
    """One optimizer step is done.

    Attributes:
        loss: mean loss over the global batch, a scalar on the device: reading it waits for the device.
    """

    loss: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class HorizonReached:
    """The model has reached a budget, and its learning rate has been cooled down. The caller evaluates it, and passes
    the results (a `Horizon`) to `Trainer.keep`.

    Attributes:
        images_seen: the budget in images; 0 is the untrained network.
        loss: mean training loss of the last steps; None where there were none.
    """

    images_seen: int
    loss: float | None


@dataclass(frozen=True, slots=True)
class CheckDue:
    """A check for early stopping is due. The caller measures the model's accuracy, and passes it to
    `Trainer.best.offer`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointSaved:
    """A checkpoint has been written to disk. A run that is killed continues from there.

    Attributes:
        work: optimizer steps done so far, over all segments of the training.
    """

    work: int


Event = Stepped | Advanced | HorizonReached | CheckDue | CheckpointSaved
