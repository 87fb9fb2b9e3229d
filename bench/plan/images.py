"""Fit a study's models and images to each other: pixels per side and channels follow the data sets that the user named.

Without --image-size, a set whose images have one size decides by itself (`cifar10`: 32 px, colour), but never below the
suite's own size; larger photographs are taken at `DEFAULT_SIDE` or at the suite's size. If a set can be stored at any
size, its name states the size, `folder:mine` -> `folder:mine:64px:rgb`, so that a cell says what it was trained on;
images of other sets are resized as they are read. Models get the nearest patch size that divides the size of images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.core.errors import UserError
from bench.core.formatting import join
from bench.data.load import DEFAULT_SIDE, look, resizes, stored_at
from bench.study.cell import Cell, TaskSpec
from bench.study.suite import fitting, merge, patched

MIN_SIDE, MAX_SIDE = 8, 1024  # pixels per side


class StudyImages:
    """The images that a study was asked to use.

    Args:
        asked: pixels per side; None to follow the data.
        upstream: upstream (pre-training) sets that the user named; None for the suite's own, which then count as if
            they were named.
        downstream: sets that replace those of the suite's tasks; None leaves them.
        models: models that the user named; if their patches do not divide the size, they are refused, not exchanged.
        root: folder with data sets that do not come with the installation.

    Attributes:
        names: name of an upstream set as it was written -> name that states the size at which it is stored; filled by
            `at_one_size`.

    Raises:
        UserError: a set that is unknown or not here, a size out of range.
    """

    def __init__(
        self,
        *,
        asked: int | None = None,
        upstream: Sequence[str] | None = None,
        downstream: Sequence[str] | None = None,
        models: Sequence[str] | None = None,
        root: Path | None = None,
    ) -> None:
        self.upstream, self.downstream, self.models, self.root = upstream, downstream, models or (), root
        self.names: dict[str, str] = {}
        named = (*(upstream or ()), *(downstream or ()))
        self._looks = {name: look(name, root=root) for name in named}
        known = {name: seen for name, seen in self._looks.items() if seen is not None}
        said = [seen[0] or DEFAULT_SIDE for name, seen in known.items() if "px" in name and not resizes(name)]
        self.asked = asked or max(said, default=None)
        if self.asked is not None and not MIN_SIDE <= self.asked <= MAX_SIDE:
            raise UserError(f"An image size of {self.asked} px is out of range.", f"From {MIN_SIDE} to {MAX_SIDE}.")
        whole = known if len(known) == len(self._looks) else {}  # the size is known only if all sets are here
        sides = ((seen[0] or DEFAULT_SIDE, resizes(name)) for name, seen in whole.items())
        self.side = max((min(side, DEFAULT_SIDE) if resized else side for side, resized in sides), default=0)
        self.channels = max((seen[1] for seen in whole.values()), default=0)

    def at_one_size(self, cells: Sequence[Cell]) -> tuple[list[Cell], tuple[str, ...]]:
        """Return the cells with images of the study's size, evaluated on the downstream sets that the user named; and a
        note if models were exchanged for others whose patches divide the size.

        Raises:
            UserError: the patches of a model that the user named do not divide the size.
        """
        exchanged: dict[str, str] = {}
        fitted = cells
        if self._looks or self.asked:
            fitted = merge(self._judged(self._resized(cell, exchanged)) for cell in cells)
        pairs = join([f"{new} instead of {old}" for old, new in exchanged.items()])
        note = f"At {max(cell.image_size for cell in fitted)} px: {pairs}; patches must divide the image."
        return list(fitted), (note,) if exchanged else ()

    def _resized(self, cell: Cell, exchanged: dict[str, str]) -> Cell:
        if cell.job != "train" and self.asked is None:
            return cell
        side = self.asked or max(self.side, cell.image_size)
        channels = max(self.channels, 0 if self.upstream else cell.channels) or cell.channels
        data = self.names[cell.data] = self._stored(cell.data, side, channels)
        if (side, channels) == (cell.image_size, cell.channels):
            return replace(cell, data=data)
        model = patched(cell.model, side)
        if model != cell.model and cell.model in self.models:
            raise UserError(
                f"The patches of {cell.model} do not divide images of {side} px.",
                f"Name {model}, or give --image-size {fitting(cell.model, side)}.",
            )
        if model != cell.model:
            exchanged[cell.model] = model
        tasks = tuple(_at_ratio(task, model, side / cell.image_size) for task in cell.tasks)
        return replace(cell, model=model, data=data, image_size=side, channels=channels, tasks=tasks)

    def _judged(self, cell: Cell) -> Cell:
        """Return the cell, evaluated on each downstream set that the user named by every distinct task of its own (by
        the few-shot probe if it has none)."""
        if self.downstream is None or cell.job != "train":
            return cell
        distinct = list(dict.fromkeys((task.task, task.options) for task in cell.tasks)) or [("fewshot", ())]
        largest = max([cell.image_size, *(dict(options).get("image_size") or 0 for _, options in distinct)])
        names = [self._stored(name, largest, cell.channels) for name in self.downstream]
        tasks = (TaskSpec(task=task, data=name, options=options) for name in names for task, options in distinct)
        return replace(cell, tasks=tuple(tasks))

    def _stored(self, name: str, side: int, channels: int) -> str:
        """Return the name under which a set gives images of `side` pixels per side and `channels` channels; the name as
        it is if the set has this size already, or cannot be stored at other sizes."""
        if not resizes(name):
            return name
        if name not in self._looks:
            self._looks[name] = look(name, root=self.root)
        seen = self._looks[name]
        return name if seen == (side, channels) else stored_at(name, side, channels, root=self.root)


def _at_ratio(task: TaskSpec, model: str, ratio: float) -> TaskSpec:
    """Return the task with its image size multiplied by `ratio`, the factor by which the size of the study's images
    grows, and rounded to whole patches of the model: fine-tuning at 56 px in a study at 28 px becomes fine-tuning at
    128 px in one at 64 px."""

    def changed(name: str, value: Any) -> Any:
        return fitting(model, round(value * ratio)) if name == "image_size" and value else value

    return replace(task, options=tuple((name, changed(name, value)) for name, value in task.options))
