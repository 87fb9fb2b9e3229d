"""Sizes of the data sets of a study. Each set is opened once for a plan, and not at all if its size is declared."""

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
    """The number of images in a set's two splits, and of its classes.

    Attributes:
        shape: (height, width, channels) of the images; None if they were not opened.
        streamed: whether images are decoded when they are read, and never stored decoded.
        several: whether an image may have several labels.
        test_groups: number of groups (images that belong together, such as those of one patient) in the test split;
            None if there are no groups, or the images were not opened.
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
        published: whether sets that are not here have their published sizes, so that a study can be costed before they
            are fetched.
    """

    def __init__(self, *, root: Path | None = None, published: bool = False) -> None:
        self.root, self.published = root, published
        self._found: dict[str, DataSize] = {}

    def __getitem__(self, name: str) -> DataSize:
        """Return the size of a data set. The set is opened, which also stores its decoded images in the cache, unless
        its size is known without that.

        Raises:
            UserError: the set is unknown, or not on this machine; the message says how to get it.
        """
        if name not in self._found:
            self._found[name] = self._known(name) or self._opened(name)
        return self._found[name]

    def _known(self, name: str) -> DataSize | None:
        """Return a size that is known without opening the set; None if there is none.

        It is the size that the set declares, because it is generated, too large to be opened, or not public (if a copy
        on this machine is indexed, the size of that copy); or a published size, if these are asked for and the set is
        not here.
        """
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
        """Return the shape (height, width, channels) of the images of a generated set. `option`: the part of the set's
        name that asks for their form."""
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
        """Return about how many bytes of pixels are written to the disk when a set is opened; 0 if they are there
        already, or their number is not known."""
        one, option = data_set(name), DataName.parse(name).option
        if one.size is None:
            return 0
        numbers, (side, _, channels) = one.size(option), self._drawn_shape(one, option)
        stored = cache.directory().glob(f"{one.name}-r{one.revision}-train-*-{side}px")
        return 0 if any(stored) else (numbers["train"] + numbers["test"]) * side * side * channels


def evaluation_images(cell: Cell, sizes: DataSizes) -> int:
    """Return how many images pass through the network to evaluate one horizon (budget) of a cell.

    Raises:
        UserError: a task cannot be evaluated with so few images.
    """
    total = sizes[cell.data].test
    for task in cell.tasks:
        size = read(cell, task, sizes)
        says = registry.load("task", task.task).forward_images  # None: all images of both splits
        try:
            total += says(**_asked(task, size), own_size=cell.image_size) if says else size.train + size.test
        except UserError as error:
            raise UserError(f"{task.task} on {task.data}: {error.what}", error.fix) from error
    return total


def solving_seconds(cell: Cell, sizes: DataSizes, *, features: int) -> float:
    """Return the seconds that one core takes for what a cell's tasks do with the features of one horizon (budget).
    Tasks that do not state their time count as 0. `features`: number of features per image."""
    total = 0.0
    for task in cell.tasks:
        if says := registry.load("task", task.task).solving_seconds:
            size = read(cell, task, sizes)
            shape = size.shape or (cell.image_size,)
            total += says(**_asked(task, size), features=features, image_side=shape[0])
    return total


def read(cell: Cell, task: TaskSpec, sizes: DataSizes) -> DataSize:
    """Return the size of the data set that a task reads. If the cell is not trained and names the same set, its limit
    on the number of training images holds for the task too."""
    size = sizes[task.data]
    own = task.data == cell.data and cell.horizons == (0,)
    return replace(size, train=min(size.train, cell.num_images or size.train)) if own else size


def _asked(task: TaskSpec, size: DataSize) -> dict[str, Any]:
    """Return the keyword arguments for a task's functions that forecast its cost: numbers of images and classes, and
    the task's own options, which replace them where they have the same name."""
    return {"num_train": size.train, "num_test": size.test, "num_classes": size.classes, **task.kwargs}
