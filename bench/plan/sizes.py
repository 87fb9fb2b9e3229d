"""Sizes of the data sets of a study. Each set is opened once for a plan, and not at all where its size is declared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.core.errors import UserError
from bench.data import cache
from bench.data.data_set import DataSet
from bench.data.load import data_set, load
from bench.study import registry
from bench.study.cell import Cell, TaskSpec
from bench.study.names import DataName


@dataclass(frozen=True, kw_only=True)
class DataSize:
    """Images in a set's two splits, and its classes.

    Attributes:
        shape: (height, width, channels) of the images; None where they were not opened.
        streamed: they are decoded when they are read, and never stored.
        several: whether an image may have several labels.
        test_groups: groups that the test images are of; None where nobody says, or they were not opened.
    """

    train: int
    test: int
    classes: int
    shape: tuple[int, ...] | None = None
    streamed: bool = False
    several: bool = False
    test_groups: int | None = None


class DataSizes:
    """The size of a set by its name: `sizes["fashion-mnist"].train`.

    Args:
        root: folder with data sets that do not come with the installation.
        published: take the published sizes of sets that are not here: a study can be costed before they are fetched.
    """

    def __init__(self, *, root: Path | None = None, published: bool = False) -> None:
        self.root, self.published = root, published
        self._found: dict[str, DataSize] = {}

    def __getitem__(self, name: str) -> DataSize:
        """Opens the set, which also caches it decoded, unless its size is known without.

        Raises:
            UserError: unknown, or not on this machine, with how to get it.
        """
        if name not in self._found:
            self._found[name] = self._known(name) or self._opened(name)
        return self._found[name]

    def _known(self, name: str) -> DataSize | None:
        """A size that the set declares (it is too large to be opened, or not public), or a published one; of a copy
        that is indexed, the true one."""
        one, option = data_set(name), DataName.parse(name).option
        if one.size is not None:
            return DataSize(**one.size(option), shape=self._drawn_shape(one, option))
        if one.unopened and one.stated:
            counted = one.indexed(self.root) if one.indexed is not None else None
            return DataSize(**(counted or one.stated), streamed=True)
        if self.published and one.stated and not one.carried_in_part and not one.available(self.root):
            return DataSize(**one.stated)
        return None

    def _drawn_shape(self, one: DataSet, option: str) -> tuple[int, int, int]:
        """The shape of images that are drawn as the name asks."""
        assert one.look is not None
        side, channels = one.look(option, root=self.root) or (0, 0)
        return side or 0, side or 0, channels

    def _opened(self, name: str) -> DataSize:
        train, test = load(name, "train", root=self.root), load(name, "test", root=self.root)
        return DataSize(
            train=len(train),
            test=len(test),
            classes=train.num_classes,
            shape=train.image_shape,
            streamed=train.encoded_bytes is not None,
            several=train.several,
            test_groups=None if test.groups_N is None else len(np.unique(test.groups_N)),
        )

    def to_be_stored(self, name: str) -> int:
        """Bytes of pixels that opening a set writes to the disk, about; 0 where they are there, or are not known."""
        one, option = data_set(name), DataName.parse(name).option
        if one.size is None:
            return 0
        numbers, (side, _, channels) = one.size(option), self._drawn_shape(one, option)
        stored = cache.directory().glob(f"{one.name}-r{one.revision}-train-*-{side}px")
        return 0 if any(stored) else (numbers["train"] + numbers["test"]) * side * side * channels


def evaluation_images(cell: Cell, sizes: DataSizes) -> int:
    """Images that pass through the network to evaluate one horizon.

    Raises:
        UserError: a task that cannot be evaluated with so few images.
    """
    total = sizes[cell.data].test
    for task in cell.tasks:
        size = read(cell, task, sizes)
        says = registry.load("task", task.task).forward_images  # None: all of them
        try:
            total += says(**_asked(task, size), own_size=cell.image_size) if says else size.train + size.test
        except UserError as error:
            raise UserError(f"{task.task} on {task.data}: {error.what}", error.fix) from error
    return total


def solving_seconds(cell: Cell, sizes: DataSizes, *, features: int) -> float:
    """One core's seconds for what the tasks do with the features of one horizon, as far as they say."""
    total = 0.0
    for task in cell.tasks:
        if says := registry.load("task", task.task).solving_seconds:
            size = read(cell, task, sizes)
            shape = size.shape or (cell.image_size,)
            total += says(**_asked(task, size), features=features, image_side=shape[0])
    return total


def read(cell: Cell, task: TaskSpec, sizes: DataSizes) -> DataSize:
    """The images that a task reads: the cell's own part of its set where the network is given, not trained."""
    size = sizes[task.data]
    own = task.data == cell.data and cell.horizons == (0,)
    return replace(size, train=min(size.train, cell.num_images or size.train)) if own else size


def _asked(task: TaskSpec, size: DataSize) -> dict[str, Any]:
    """Arguments of a task's functions for planning; its own options come last."""
    return {"num_train": size.train, "num_test": size.test, "num_classes": size.classes, **task.kwargs}
