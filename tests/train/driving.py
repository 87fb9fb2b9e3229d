"""For tests: a training run with its loop, which a job has, and what a worker hands to a job."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.execute.jobs.job import JobContext
from bench.store.study import CellDirectory
from bench.study.record import Horizon
from bench.train.events import CheckDue, HorizonReached, Stepped
from bench.train.trainer import Trainer


class Tight(nn.Module):
    """Has room for `room` images at a time."""

    def __init__(self, body: Callable[..., Tensor], room: int) -> None:
        super().__init__()
        self.body, self.room = body, room

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > self.room:
            raise torch.OutOfMemoryError("out of memory: no room for the activations")
        return self.body(x)


class Driven(Trainer):
    """A trainer that drives itself: `evaluate(horizon, loss)` makes the rows, `on_step(loss)` follows each step,
    `check()` says how accurate the weights are."""

    def __init__(self, *, evaluate=None, check=lambda: 0.0, on_step=lambda _: None, **arguments) -> None:
        super().__init__(**arguments)
        self.evaluate, self.check, self.on_step = evaluate, check, on_step

    def drive(self) -> list[Horizon]:
        for event in self.run():
            match event:
                case Stepped():
                    self.on_step(event.loss)
                case CheckDue() if self.best is not None:
                    with self.checking():
                        self.best.offer(self.check())
                case HorizonReached() if self.evaluate is not None:
                    with self.evaluating():
                        row = self.evaluate(event.images_seen, event.loss)
                    self.keep(row)
        return self.progress.rows


def job_context(folder: Path, **changes: Any) -> JobContext:
    """The context that a worker of one thread on the CPU hands to a job, but for `changes`."""
    folder.mkdir(parents=True, exist_ok=True)  # as whoever claims a cell has done
    given: dict[str, Any] = {"directory": CellDirectory(folder), "attempt": folder, "device": "cpu", "threads": 1}
    given |= {"progress": lambda _: None, "should_stop": lambda: False, "log": lambda _: None}
    return JobContext(**given | changes)
