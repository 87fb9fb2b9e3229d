"""Where a run is, as it stands in its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bench.core.errors import UserError
from bench.core.record import Horizon
from bench.store.records import horizon_from_json


@dataclass
class Position:
    """Where a run is. `work` counts every step done, trunk and branches, and only ever grows."""

    segment: int = 0
    step: int = 0
    work: int = 0
    rows: list[Horizon] = field(default_factory=list)  # horizons read so far
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("train", "evaluate", "save", "wait"), 0.0))
    segment_seconds: list[float] = field(default_factory=list)  # training time of each finished segment
    current_seconds: float = 0.0  # training time of the segment in hand
    micro_batches: list[dict[str, int]] = field(default_factory=list)  # {"work", "images"} where memory ran out

    def stretch(self, factor: float) -> None:
        """Multiply all times."""
        self.seconds = {kind: seconds * factor for kind, seconds in self.seconds.items()}
        self.segment_seconds = [seconds * factor for seconds in self.segment_seconds]
        self.current_seconds *= factor


def continued(state: Mapping[str, Any], *, folder: Path, content: str) -> Position:
    """The position in a checkpoint's state, if it is of the cell that `folder` belongs to, trained on these images.

    Raises:
        UserError: it is not: what follows would be the result of neither.
    """
    if (cell := state.get("cell", folder.parent.name)) != folder.parent.name:
        raise UserError(f"The checkpoints in {folder} are of another cell, {cell}.",
                        "Put them back; or delete that folder, and the training begins anew.")  # fmt: skip
    if state.get("content", content) != content:
        raise UserError(
            f"The training in {folder} was begun on other images under the same name.",
            "Give the same --data-root as then; or delete that folder, and it begins anew.",
        )
    values = {entry.name: state[entry.name] for entry in fields(Position) if entry.name in state}
    return Position(**values | {"rows": [horizon_from_json(row) for row in state["rows"]]})
