"""Data sets as a rehearsal has them: a few small images of each, generated where the set is not on this machine.

A set keeps its name, its options and what it says of itself, so that suites, tasks, tables and figures treat it as they
would the whole. Real images are read by the set's own reader. Generated ones of a set that is streamed are written as a
folder of JPEG files, which the set's own reader then decodes; the others are arrays. Classes are told apart by colour.

What a process reads is decided once (`rehearsing`), by what it does: a plan by its options, a worker by its cells.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.core.errors import UserError
from bench.core.seeds import generator
from bench.data.data_set import DataSet
from bench.data.image_set import ImageSet
from bench.study import registry
from bench.study.cell import REHEARSAL_REVISION, slug
from bench.study.names import DataName

TRAIN = 1_024  # images: VTAB takes 1,000, and 25-shot probes of ten classes 250
TEST = 40
CLASSES = 10
MAX_DRAWN = 20_000  # images of a set that is drawn as its name asks
SIDE = 32  # pixels, of a generated image
NOISE = 40.0  # standard deviation, of 255 grey levels: classes overlap
REAL_LABELS = "imagenet"  # the set whose test images also carry ReaL labels (`bench.data.real`)

_active: list[bool] = []


@contextlib.contextmanager
def rehearsing(on: bool = True) -> Iterator[None]:
    """Whether data sets of this process are those of a rehearsal, until the end of the block."""
    _active.append(on)
    try:
        yield
    finally:
        _active.pop()


def is_rehearsing() -> bool:
    """Whether they are now."""
    return bool(_active) and _active[-1]


def of(one: DataSet) -> DataSet:
    """A set as a rehearsal has it. It is always here; its numbers of images and classes are those of the whole set, by
    which suites choose their settings."""

    def here(option: str, root: Path | None) -> bool:
        return is_here(one, option, root=root)

    def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
        given = {"option": option} if option else {}
        if not here(option, root):
            return _generated(one, split, option)
        train = one.load("train", root=root, **given)
        classes = _enough(train.labels_N)
        return few(train if split == "train" else one.load(split, root=root, **given), classes)

    def look(option: str, *, root: Path | None) -> tuple[int | None, int] | None:
        if one.look is None and one.available(root):
            shape = one.load("test", root=root).image_shape
            return shape[0], shape[2]
        seen = None
        with contextlib.suppress(UserError):  # a folder that is not there
            seen = one.look(option, root=root) if one.look is not None else None
        return seen or (_side(option) or one.side or SIDE, _channels(one, option))

    def listed(option: str, *, root: Path | None) -> int:
        assert one.listed_images is not None
        return one.listed_images(option, root=root) if here(option, root) else TRAIN

    def grouped(option: str, *, root: Path | None, **tables: Any) -> tuple[str, tuple[str, ...]]:
        assert one.grouped is not None
        return one.grouped(option, root=root, **tables) if here(option, root) else (option, ())

    return _with_functions(
        one,
        load=load,
        available=lambda root: True,
        look=look,
        listed_images=None if one.listed_images is None else listed,
        some_encoded=None,
        indexed=None,
        grouped=None if one.grouped is None else grouped,
        places=None,
    )


def _with_functions(one: DataSet, **functions: Any) -> DataSet:
    """A set's facts with other functions, whatever the class of the set makes its own from."""
    kept = (entry.name for entry in fields(DataSet) if entry.name not in functions and entry.name != "download")
    return DataSet(**{name: getattr(one, name) for name in kept}, **functions)


def is_real(name: str, *, root: Path | None) -> bool:
    """Whether a rehearsal reads real images of the set of this name."""
    return is_here(registry.load("data set", name), DataName.parse(name).option, root=root)


def training_images(name: str) -> int | None:
    """The number of training images of the whole set; None of one that does not state it."""
    one: DataSet = registry.load("data set", name)
    stated = one.size(DataName.parse(name).option) if one.size is not None else one.stated
    return stated["train"] if stated is not None else None


def is_here(one: DataSet, option: str, *, root: Path | None) -> bool:
    """Whether a set is on this machine: of a folder or a set of the hub, its option says which it is. One that would
    have to be drawn first, for minutes, is not."""
    if one.size is not None and one.size(option)["train"] > MAX_DRAWN:
        return False
    if one.available(root):
        return True
    try:
        return one.places is not None and one.places(option, root=root) is not None
    except UserError:
        return False


def _enough(labels_N: np.ndarray) -> int:
    """The first classes, `CLASSES` or more, that have `TRAIN` images; all where they have fewer."""
    counts_K = np.bincount(labels_N)
    return max(CLASSES, int(np.searchsorted(np.cumsum(counts_K), TRAIN)) + 1)


def few(images: ImageSet, classes: int) -> ImageSet:
    """A part of a set: at most `TRAIN` or `TEST` images of the first classes, balanced as far as the set allows."""
    from bench.data.subset import nested

    kept_N = np.flatnonzero(images.labels_N < classes)
    most = TRAIN if images.split == "train" else TEST
    labels_M = images.labels_N[kept_N]
    chosen_N = kept_N[nested(labels_M, min(most, len(kept_N)), keys_N=np.arange(len(kept_N), dtype=np.uint64))]
    return replace(images.take(chosen_N), class_names=images.class_names[:classes])


# -- generated images --------------------------------------------------------------------------------------------------


def _side(option: str) -> int | None:
    """Pixels per side that an option says."""
    said = re.search(r"(?:^|:)(\d+)px(?=:|$)", option)
    return int(said.group(1)) if said else None


def _channels(one: DataSet, option: str) -> int:
    """Channels of a set that is not here: scans are grey."""
    grey = "grey" in option.split(":") or (one.kind == "handwriting" and "rgb" not in option.split(":"))
    return 1 if grey else 3


def _classes(one: DataSet) -> int:
    return min(one.classes or CLASSES, CLASSES)


def _generated(one: DataSet, split: str, option: str) -> ImageSet:
    name = f"{one.name}:{option}" if option else one.name
    if one.unopened:
        return _streamed(one, split, option, name=name)
    number, classes = TRAIN if split == "train" else TEST, _classes(one)
    labels_N = np.arange(number) % classes
    return ImageSet(
        name=name,
        split=split,
        images_NHWC=_pictures(name, split, labels_N, channels=_channels(one, option)),
        labels_N=labels_N.astype(np.int64),
        class_names=tuple(f"class {label}" for label in range(classes)),
        kind=one.kind,
        source="generated for a rehearsal",
    )


def _pictures(name: str, split: str, labels_N: np.ndarray, *, channels: int) -> np.ndarray:
    """uint8 (N, SIDE, SIDE, C): a pattern of blocks for each class, the same in both splits, and noise."""
    blocks = (int(labels_N.max()) + 1, 4, 4, channels)
    pattern_KHWC = generator(0, "rehearsal", name).uniform(0, 255, blocks).repeat(SIDE // 4, 1).repeat(SIDE // 4, 2)
    noise = generator(0, "rehearsal", name, split).normal(0, NOISE, (len(labels_N), SIDE, SIDE, channels))
    return np.clip(pattern_KHWC[labels_N] + noise, 0, 255).astype(np.uint8)


def _streamed(one: DataSet, split: str, option: str, *, name: str) -> ImageSet:
    """Generated images through the reader of a copy of one's own: files are indexed, and decoded when they are read."""
    from bench.data import cache as kept
    from bench.data.folder_sets import FolderSet

    root = kept.directory() / f"rehearsal-{REHEARSAL_REVISION}-{TRAIN}-{TEST}"
    if not (root / one.name).is_dir():
        _write_folder(one, root)
    copy = FolderSet(name=one.name, description=one.description, source=one.source, how_to_get=one.how_to_get)
    images = copy.load(split, root=root, option=option)
    return replace(images, name=name, kind=one.kind, source=f"generated for a rehearsal; {images.source}")


def _write_folder(one: DataSet, root: Path) -> None:
    """Files as ImageNet's are: a folder for each class below one for each split. Who comes second finds them."""
    from PIL import Image

    root.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=root, prefix="."))
    classes = _classes(one)
    for split, number in (("train", TRAIN), ("val", TEST)):
        labels_N = np.arange(number) % classes
        pictures = _pictures(one.name, split, labels_N, channels=3)
        for place, (label, pixels) in enumerate(zip(labels_N.tolist(), pictures, strict=True), start=1):
            folder = made / split / f"{slug(one.name)}-{label:02d}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"ILSVRC2012_{split}_{place:08d}.JPEG", quality=95)
    if one.name == REAL_LABELS:
        several = [[label, (label + 1) % classes][: 1 + label % 2] for label in (np.arange(TEST) % classes).tolist()]
        (made / "real.json").write_text(json.dumps(several))
    try:
        os.rename(made, root / one.name)
    except OSError:
        shutil.rmtree(made)
        if not (root / one.name).is_dir():
            raise
