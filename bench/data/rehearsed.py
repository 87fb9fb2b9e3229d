"""Data sets in a rehearsal (a trial run of a study in seconds): each is reduced to a few images, which are generated if
the set is not on this machine.

A set keeps its name, its options and its description, so that suites, tasks, tables and figures treat it like the whole
set. Real images are read by the set's own reader. Generated images of a set that is streamed are written as a folder of
JPEG files, which `FolderSet` reads; for other sets they are arrays. Classes differ in colour.

Each process states once, by `rehearsing`, whether it reads data in this way: a plan according to its options, a worker
process according to its cells (training runs).
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

TRAIN = 1_024  # training images: VTAB needs 1,000, and 25-shot probes of ten classes 250
TEST = 40
CLASSES = 10
MAX_DRAWN = 20_000  # training images of the largest rendered set that is really rendered in a rehearsal
SIDE = 32  # pixels per side of a generated image
NOISE = 40.0  # standard deviation of the noise in grey levels (0 to 255), so large that classes overlap
REAL_LABELS = "imagenet"  # the set whose test images also have ReaL labels (`bench.data.real`)

_active: list[bool] = []


@contextlib.contextmanager
def rehearsing(on: bool = True) -> Iterator[None]:
    """Make `load.data_set` return the reduced data sets of a rehearsal inside the block; with on=False, the whole ones.
    Blocks can be nested; the innermost counts."""
    _active.append(on)
    try:
        yield
    finally:
        _active.pop()


def is_rehearsing() -> bool:
    """Whether `load.data_set` currently returns the reduced data sets of a rehearsal in this process."""
    return bool(_active) and _active[-1]


def of(one: DataSet) -> DataSet:
    """Return the description of a data set in a rehearsal. The set is always available, and loads only a few images;
    `images` and `classes` still state the numbers of the whole set, because suites choose their settings by them."""

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
        with contextlib.suppress(UserError):  # the folder does not exist
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
    """Return a copy of a data set's description with `functions` (field of `DataSet` -> function) in place of its own.
    It is a plain `DataSet`, because subclasses set their functions themselves."""
    kept = (entry.name for entry in fields(DataSet) if entry.name not in functions and entry.name != "download")
    return DataSet(**{name: getattr(one, name) for name in kept}, **functions)


def is_real(name: str, *, root: Path | None) -> bool:
    """Whether a rehearsal uses real images of the set of this name, instead of generated ones. `root`: folder with data
    sets that are not installed."""
    return is_here(registry.load("data set", name), DataName.parse(name).option, root=root)


def training_images(name: str) -> int | None:
    """Return the number of training images of the whole set of this name; None if the set does not state it."""
    one: DataSet = registry.load("data set", name)
    stated = one.size(DataName.parse(name).option) if one.size is not None else one.stated
    return stated["train"] if stated is not None else None


def is_here(one: DataSet, option: str, *, root: Path | None) -> bool:
    """Whether a set is on this machine. For a folder or a set of the Hugging Face hub, `option` (the text after the
    first colon of the name) says which one is meant. A set that would take minutes to render counts as absent."""
    if one.size is not None and one.size(option)["train"] > MAX_DRAWN:
        return False
    if one.available(root):
        return True
    try:
        return one.places is not None and one.places(option, root=root) is not None
    except UserError:
        return False


def _enough(labels_N: np.ndarray) -> int:
    """Return how many classes, counted from label 0 and at least `CLASSES`, are needed for `TRAIN` images; if all
    classes together have fewer images, a number that includes all classes."""
    counts_K = np.bincount(labels_N)
    return max(CLASSES, int(np.searchsorted(np.cumsum(counts_K), TRAIN)) + 1)


def few(images: ImageSet, classes: int) -> ImageSet:
    """Return a part of a split: only images of the first `classes` classes, at most `TRAIN` for training or `TEST` for
    testing, balanced over the classes as far as the set allows."""
    from bench.data.subset import nested

    kept_N = np.flatnonzero(images.labels_N < classes)
    most = TRAIN if images.split == "train" else TEST
    labels_M = images.labels_N[kept_N]
    chosen_N = kept_N[nested(labels_M, min(most, len(kept_N)), keys_N=np.arange(len(kept_N), dtype=np.uint64))]
    return replace(images.take(chosen_N), class_names=images.class_names[:classes])


# -- generated images --------------------------------------------------------------------------------------------------


def _side(option: str) -> int | None:
    """Return the pixels per side that the option of a set's name states, 64 for "64px"; None if it states none."""
    said = re.search(r"(?:^|:)(\d+)px(?=:|$)", option)
    return int(said.group(1)) if said else None


def _channels(one: DataSet, option: str) -> int:
    """Return the channels of generated images of a set: 1 if the option of its name says "grey", or if the set holds
    scans of handwriting and the option does not say "rgb"; else 3."""
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
    """Generate images with these labels, uint8 (N, SIDE, SIDE, C): each class has a pattern of blocks, the same in both
    splits, and each image has noise of its own."""
    blocks = (int(labels_N.max()) + 1, 4, 4, channels)
    pattern_KHWC = generator(0, "rehearsal", name).uniform(0, 255, blocks).repeat(SIDE // 4, 1).repeat(SIDE // 4, 2)
    noise = generator(0, "rehearsal", name, split).normal(0, NOISE, (len(labels_N), SIDE, SIDE, channels))
    return np.clip(pattern_KHWC[labels_N] + noise, 0, 255).astype(np.uint8)


def _streamed(one: DataSet, split: str, option: str, *, name: str) -> ImageSet:
    """Return a split of generated images that are written as files and read by `FolderSet`, so that files are indexed,
    and decoded when they are read, as with the real set. `name`: name of the set with its option."""
    from bench.data import cache as kept
    from bench.data.folder_sets import FolderSet

    root = kept.directory() / f"rehearsal-{REHEARSAL_REVISION}-{TRAIN}-{TEST}"
    if not (root / one.name).is_dir():
        _write_folder(one, root)
    copy = FolderSet(name=one.name, description=one.description, source=one.source, how_to_get=one.how_to_get)
    images = copy.load(split, root=root, option=option)
    return replace(images, name=name, kind=one.kind, source=f"generated for a rehearsal; {images.source}")


def _write_folder(one: DataSet, root: Path) -> None:
    """Write generated images of a set as files into the folder of its name below `root`, in ImageNet's layout: a folder
    for each split with a folder for each class. If another process has written them meanwhile, its files stay."""
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
