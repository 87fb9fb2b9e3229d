"""Where a run is, as it stands in its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Position:
    """Where a run is. `work` counts every step done, trunk and branches, and only ever grows."""

    segment: int = 0
    step: int = 0
    work: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)  # horizons read so far
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("train", "evaluate", "save", "wait"), 0.0))
    segment_seconds: list[float] = field(default_factory=list)  # training time of each finished segment
    current_seconds: float = 0.0  # training time of the segment in hand
    micro_batches: list[dict[str, int]] = field(default_factory=list)  # {"work", "images"} where memory ran out

    def stretch(self, factor: float) -> None:
        """Multiply all times."""
        self.seconds = {kind: seconds * factor for kind, seconds in self.seconds.items()}
        self.segment_seconds = [seconds * factor for seconds in self.segment_seconds]
        self.current_seconds *= factor
