"""Early stopping: keeps the weights with the highest accuracy so far, as measured by the code that drives training."""

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
    """The best weights of one training. They are part of its checkpoints, so that a killed run keeps them.

    Attributes:
        accuracy: accuracy of the best weights, in [0, 1]; negative before the first check.
        kept: name -> tensor of the model's state with the best weights; empty before the first check.
    """

    def __init__(self, model: nn.Module, checks: int) -> None:
        self.model, self.checks = model, checks
        self.accuracy, self.kept = NOT_CHECKED, dict[str, Tensor]()

    def due(self, step: int, *, end: int) -> bool:
        """Return whether a check is due after `step` of `end` steps. Checks are evenly spaced, and the last is at the
        end."""
        return step * self.checks // end > (step - 1) * self.checks // end

    def offer(self, accuracy: float) -> None:
        """Keep the model's present weights if their accuracy is higher than that of all before."""
        if accuracy > self.accuracy:
            self.accuracy = accuracy
            self.kept = {name: set_aside(value) for name, value in self.model.state_dict().items()}

    def forget(self) -> None:
        """Forget the best weights, because another training begins."""
        self.accuracy, self.kept = NOT_CHECKED, {}

    def state(self) -> dict[str, Tensor]:
        """Return the best weights and their accuracy as tensors by name; empty before the first check."""
        kept = {f"{PREFIX}{name}": value for name, value in self.kept.items()}
        return kept | {ACCURACY: torch.tensor(self.accuracy, dtype=torch.float64)} if kept else {}

    def restore(self, kept: Mapping[str, Tensor], accuracy: Tensor | None) -> None:
        """Restore what `state()` returned."""
        self.kept = {name: set_aside(value) for name, value in kept.items()}
        self.accuracy = NOT_CHECKED if accuracy is None else float(accuracy)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model its best weights inside the `with` block; afterwards it has exactly its previous ones."""
        own = {name: set_aside(value) for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.kept or own)
        try:
            yield
        finally:
            self.model.load_state_dict(own)
