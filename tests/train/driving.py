"""A training run with its loop: what a job does with events, for tests."""

from __future__ import annotations

from bench.core.record import Horizon
from bench.train.events import HorizonReached, Stepped
from bench.train.trainer import Trainer


class Driven(Trainer):
    """A trainer that drives itself: `evaluate(horizon, loss)` makes the rows, `on_step(loss)` follows each step."""

    def __init__(self, *, evaluate=None, on_step=lambda _: None, **arguments) -> None:
        super().__init__(**arguments)
        self.evaluate, self.on_step = evaluate, on_step

    def drive(self) -> list[Horizon]:
        for event in self.run():
            match event:
                case Stepped():
                    self.on_step(event.loss)
                case HorizonReached() if self.evaluate is not None:
                    with self.evaluating():
                        row = self.evaluate(event.images_seen, event.loss)
                    self.keep(row)
        return self.progress.rows
