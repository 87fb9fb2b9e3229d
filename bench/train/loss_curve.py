"""The learning curve: mean loss between points fixed in advance, at most about 200 of them per cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bench.train.schedule import Segment

MAX_POINTS = 200


class LossCurve:
    """Adds up losses on the device they are on; reading them, which waits for the device, happens at the end.

    Points lie at fixed steps of each segment and at its end, whatever stopped and continued the run in between.
    """

    def __init__(self, segments: Sequence[Segment], *, batch: int, device: str) -> None:
        self.batch, self.segments = batch, segments
        steps = sum(s.end - s.start for s in segments)
        self.every = max(1, math.ceil(steps / max(1, MAX_POINTS - len(segments))))
        lengths = [math.ceil((s.end - s.start) / self.every) for s in segments]
        self.first = [sum(lengths[:n]) for n in range(len(lengths))]
        self.sums = torch.zeros(sum(lengths), dtype=torch.float64, device=device)
        self.counts = [0] * len(self.sums)

    def add(self, loss: Tensor, *, segment: int, step: int) -> None:
        """Take in the loss of one step. `step` counts from the start of training."""
        point = self.first[segment] + (step - self.segments[segment].start) // self.every
        self.sums[point] += loss
        self.counts[point] += 1

    def state(self) -> Tensor:
        """Everything, as one tensor."""
        return torch.stack([self.sums.cpu(), torch.tensor(self.counts, dtype=torch.float64)])

    def restore(self, state: Tensor) -> None:
        """Put `state()` back."""
        self.sums.copy_(state[0])
        self.counts = [int(count) for count in state[1]]

    def points(self, *, settled: bool = False) -> list[dict[str, Any]]:
        """One {"images", "loss", "horizon"} per point that was reached, in the order of the work.

        `images` counts from the start of training; `horizon` is None on a shared trunk. A loss that is not finite ends
        the curve. Settled points are those that further steps do not change.
        """
        found: list[dict[str, Any]] = []
        sums = self.sums.tolist()
        for segment, horizon, first in zip(self.segments, self._horizons(), self.first, strict=True):
            steps = segment.end - segment.start
            for index in range(math.ceil(steps / self.every)):
                count = self.counts[first + index]
                if not count or (settled and count < min(self.every, steps - index * self.every)):
                    continue
                if not math.isfinite(sums[first + index]):
                    return found
                images = (segment.start + index * self.every + count) * self.batch
                found.append({"images": images, "loss": sums[first + index] / count, "horizon": horizon})
        return found

    def _horizons(self) -> list[int | None]:
        """What each segment is trained for. Where every horizon starts anew, its whole run is its own."""
        shared = sum(s.origin == "init" for s in self.segments) == 1
        owners = [next((b.horizon for b in self.segments[n:] if b.is_branch), None) for n in range(len(self.segments))]
        return [s.horizon if shared else owner for s, owner in zip(self.segments, owners, strict=True)]
