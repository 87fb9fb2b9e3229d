"""Early stopping: the weights by which a training was best so far, by the accuracy that whoever drives it reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from bench.train.update import set_aside

NOT_CHECKED = -1.0
PREFIX = "best."
ACCURACY = "best_accuracy"


class Best:
    """The best weights of one training; they are part of its state, so that a run which is killed keeps them.

    Attributes:
        accuracy: theirs; negative before the first check.
        kept: every tensor of the model as it was then.
    """

    def __init__(self, model: nn.Module, checks: int) -> None:
        self.model, self.checks = model, checks
        self.accuracy, self.kept = NOT_CHECKED, dict[str, Tensor]()

    def due(self, step: int, *, end: int) -> bool:
        """Whether a check follows on this step, of so many: they are evenly spaced, and the last is at the end."""
        return step * self.checks // end > (step - 1) * self.checks // end

    def offer(self, accuracy: float) -> None:
        """Keep the weights as they are now if nothing was as accurate before; of equal ones the first stay."""
        if accuracy > self.accuracy:
            self.accuracy = accuracy
            self.kept = {name: set_aside(value) for name, value in self.model.state_dict().items()}

    def forget(self) -> None:
        """Begin another training."""
        self.accuracy, self.kept = NOT_CHECKED, {}

    def state(self) -> dict[str, Tensor]:
        """Everything, as tensors by name; nothing before the first check."""
        kept = {f"{PREFIX}{name}": value for name, value in self.kept.items()}
        return kept | {ACCURACY: torch.tensor(self.accuracy, dtype=torch.float64)} if kept else {}

    def restore(self, kept: Mapping[str, Tensor], accuracy: Tensor | None) -> None:
        """Put `state()` back."""
        self.kept = {name: set_aside(value) for name, value in kept.items()}
        self.accuracy = NOT_CHECKED if accuracy is None else float(accuracy)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the model has its best weights; afterwards exactly its own again."""
        own = {name: set_aside(value) for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.kept or own)
        try:
            yield
        finally:
            self.model.load_state_dict(own)
