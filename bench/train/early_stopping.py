"""Early stopping: keep the weights with the highest accuracy so far. The code that drives training measures
accuracy."""

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
    """The weights of one training with the highest accuracy so far. They are part of its checkpoints, so that a killed
    run keeps them.

    Args:
        model: the model that is trained.
        checks: how many times its accuracy is measured on the way to a budget.

    Attributes:
        accuracy: accuracy of the best weights, in [0, 1]; negative before the first check.
        kept: the model's state_dict with the best weights, in host memory; empty before the first check.
    """

    def __init__(self, model: nn.Module, checks: int) -> None:
        self.model, self.checks = model, checks
        self.accuracy, self.kept = NOT_CHECKED, dict[str, Tensor]()

    def due(self, step: int, *, end: int) -> bool:
        """Return whether accuracy is to be measured after `step`, in a training of `end` steps. The checks are evenly
        spaced, and the last is at the end."""
        return step * self.checks // end > (step - 1) * self.checks // end

    def offer(self, accuracy: float) -> None:
        """Keep the model's present weights if their accuracy is higher than at all checks before."""
        if accuracy > self.accuracy:
            self.accuracy = accuracy
            self.kept = {name: set_aside(value) for name, value in self.model.state_dict().items()}

    def forget(self) -> None:
        """Forget the best weights, because another training begins."""
        self.accuracy, self.kept = NOT_CHECKED, {}

    def state(self) -> dict[str, Tensor]:
        """Return the best weights and their accuracy as tensors for a checkpoint, named "best.WEIGHT" and
        "best_accuracy"; empty before the first check."""
        kept = {f"{PREFIX}{name}": value for name, value in self.kept.items()}
        return kept | {ACCURACY: torch.tensor(self.accuracy, dtype=torch.float64)} if kept else {}

    def restore(self, kept: Mapping[str, Tensor], accuracy: Tensor | None) -> None:
        """Restore the best weights from a checkpoint.

        Args:
            kept: name of the weight -> tensor; empty if there was no check.
            accuracy: their accuracy, a scalar; None if there was no check.
        """
        self.kept = {name: set_aside(value) for name, value in kept.items()}
        self.accuracy = NOT_CHECKED if accuracy is None else float(accuracy)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model its best weights inside the `with` block; afterwards it has exactly its previous ones. Before
        the first check its weights stay as they are."""
        own = {name: set_aside(value) for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.kept or own)
        try:
            yield
        finally:
            self.model.load_state_dict(own)
