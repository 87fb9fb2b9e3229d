"""Published data sets that torchvision's classes read, check and download.

A row of the table `bench.data.public` states the arguments of the class and where its files lie. Images are decoded
once, by this module.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from bench.core.errors import UserError, unknown
from bench.data import cache
from bench.data.data_set import DataSet, Download
from bench.data.image_set import ImageSet
from bench.data.source import Source, image_files, pixels

MIN_SIDE, MAX_SIDE = 8, 1024  # pixels per side that a name may state
TEST_SHARE = 0.2  # test fraction of every class if no split is published: VTAB's 60/20/20, validation part in "train"
ARCHIVES = (".zip", ".tar", ".tgz", ".gz")
Part = Mapping[str, Any]  # arguments with which a class of torchvision reads a part of a split


def by_word(*, train: Sequence[str] = ("train",), test: Sequence[str] = ("test",)) -> Callable[..., Sequence[Part]]:
    """Return the function `TorchvisionSet.parts` for a class of torchvision that takes split="train", "val" or "test".
    `train`, `test`: values of that argument, whose images together make up the training or test split."""
    return lambda split, choice: [{"split": word} for word in {"train": train, "test": test}[split]]


def by_flag(split: str, choice: str) -> Sequence[Part]:
    """Return {"train": True or False} for the only part of a split: the function `TorchvisionSet.parts` for a class of
    torchvision that takes this argument. `choice` is ignored."""
    return [{"train": split == "train"}]


def undivided(split: str, choice: str) -> Sequence[Part]:
    """Return one part without arguments, for any split: the function `TorchvisionSet.parts` for a class of torchvision
    without splits. The part holds all images, which a hash divides into splits (`by_hash`)."""
    return [{}]


@dataclass(frozen=True, kw_only=True)
class TorchvisionSet(DataSet):
    """A data set that a class of torchvision reads.

    Attributes:
        of: name of the class in torchvision.datasets.
        parts: (split, choice) -> arguments of the class for each part of the split; `choice` is one of `choices`.
        needs: paths that must exist below the data root; "{choice}" in them stands for the choice.
        base: the folder below the data root that is passed to the class; "." for the data root.
        is_pixels: whether the class returns pixels of one size, not image files.
        train_per_class: training images of every class, if a hash divides the set; None for all but TEST_SHARE.
        choices: words that may follow the name, such as variants of the set; without a word the first is meant.
        class_names: choice -> names of the classes, where torchvision's are missing or not wanted.
        relabel: (labels, choice) -> labels that count from 0.
        transposed: whether rows and columns of the published images are exchanged.
        fetched_by: name of the class that downloads the set; None if that is `of`, "" if no class can.
        archive_bytes: approximate bytes to download; None if not known.
    """

    of: str
    parts: Callable[[str, str], Sequence[Part]]
    needs: tuple[str, ...]
    base: str = "."
    is_pixels: bool = False
    train_per_class: int | None = None
    choices: tuple[str, ...] = ("",)
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    relabel: Callable[[np.ndarray, str], np.ndarray] = lambda labels_N, choice: labels_N
    transposed: bool = False
    fetched_by: str | None = None
    archive_bytes: int | None = None
    load: Callable[..., ImageSet] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        options = f"{self.name}:WORD with WORD one of {', '.join(self.choices)} (default the first)"
        if self.side is not None:
            options = f"{self.name}[:64px][:rgb|:grey]; the whole image is resized to a square of so many pixels "
            options += f"(default {self.side}px)"
        how = self.how_to_get
        run = f"vit-bench data {self.name} --download --data-root <data root>"
        if self.fetched_by != "" and run not in how:
            how = f"Run: {run}. {how}" if how else f"Run: {run}"
        described = self.description
        if self.images and "classes" not in described:
            described += f", {self.classes} classes, {self.images[0]:,} + {self.images[1]:,}"
        wired = {
            "load": self._load,
            "available": self._is_here,
            "look": self._look,
            "takes_side": self.side is not None,
            "takes_colour": self.side is not None,
            "how_to_get": how,
            "description": described,
            "options": options if self.side is not None or len(self.choices) > 1 else "",
            "pinned": "checksums that torchvision knows, where it knows them",
            "download": None if self.fetched_by == "" else self._download,
        }
        for name, value in wired.items():
            object.__setattr__(self, name, value)

    def _is_here(self, root: Path | None) -> bool:
        return root is not None and all((root / path).exists() for path in self._paths(self.choices[0]))

    def _paths(self, choice: str) -> list[str]:
        return [path.format(choice=choice) for path in self.needs]

    def _parsed(self, option: str) -> tuple[str, int | None, int | None]:
        """Parse the option of a set's name into (choice, pixels per side, channels). The choice is the first of
        `choices`, and the others are None, if the option does not say.

        Raises:
            UserError: a word is unknown, or a size is out of range.
        """
        if self.side is None:
            if option and option not in self.choices:
                raise unknown(f"choice of {self.name}", option, self.choices)
            return option or self.choices[0], None, None
        return (self.choices[0], *sized(self.name, option, option.split(":") if option else (), self.options))

    def _look(self, option: str, *, root: Path | None) -> tuple[int | None, int] | None:
        choice, side, channels = self._parsed(option)
        if self.side is not None:
            return side or self.side, channels or 3
        if not self._is_here(root):
            return None
        _, own_side, _, own_channels = self._load("test", root=root, option=choice).images_NHWC.shape
        return own_side, own_channels

    def _load(self, split: str, *, root: Path | None, option: str = "") -> ImageSet:
        choice, side, channels = self._parsed(option)
        if root is None or not all((root / path).exists() for path in self._paths(choice)):
            raise self.absent("" if choice == self.choices[0] else choice)
        with guarded(self, root, done="read"):
            stored, names, source = (self._pixels if self.is_pixels else self._files)(
                root, split, choice, side, channels
            )
        return ImageSet(
            name=self.name if option in ("", self.choices[0]) else f"{self.name}:{option}",
            split=split,
            images_NHWC=stored["images"],
            labels_N=stored["labels"],
            class_names=tuple(names),
            kind=self.kind,
            source=source,
        )

    def _opened(self, root: Path, split: str, choice: str, **more: Any) -> list[Any]:
        """Return objects of the torchvision class, one for each part of a split. `choice`: one of `choices`; `more`:
        further arguments of the class."""
        from torchvision import datasets

        kind, base = getattr(datasets, self.of), root / self.base
        return [kind(base, **part, **more) for part in self.parts(split, choice)]

    def _checked(self, labels: Sequence[int] | np.ndarray, names: Sequence[str], choice: str) -> np.ndarray:
        labels_N = self.relabel(np.asarray(labels, dtype=np.int64), choice)
        wrong = labels_N[(labels_N < 0) | (labels_N >= len(names))]
        if len(wrong):
            what = f"Data set {self.name!r} holds label {wrong[0]}; classes are 0 to {len(names) - 1}."
            raise UserError(what, "Get its files again.")
        return labels_N

    def _files(
        self, root: Path, split: str, choice: str, side: int | None, channels: int | None
    ) -> tuple[dict[str, np.ndarray], Sequence[str], str]:
        """Return (arrays by name: "images", "labels"; names of the classes; description of the source) of a split of
        image files, which torchvision lists and which are decoded once to one size.

        `Path` as the argument `loader` makes a class return paths instead of images. Paths are sorted within a part,
        because some classes list a folder in the file system's order.

        Args:
            choice: one of `choices`.
            side, channels: pixels per side and channels to decode to; None for the set's own side and for RGB.
        """
        listed: list[tuple[Path, int]] = []
        if self.of == "OxfordIIITPet":  # this class has no argument `loader`
            parts = self._opened(root, split, choice)
            listed += [pair for data in parts for pair in zip(data._images, data._labels, strict=True)]
        else:
            parts = self._opened(root, split, choice, loader=Path)
            for data in parts:
                pairs = (data[row] for row in range(len(data)))
                listed += sorted(pairs, key=lambda pair: pair[0].as_posix())
        names = self.class_names.get(choice) or tuple(map(str, parts[0].classes))
        labels_N = self._checked([label for _, label in listed], names, choice)
        paths = [path for path, _ in listed]
        if self.parts is undivided:
            paths, labels_N = by_hash(paths, labels_N, split=split, train_per_class=self.train_per_class)
        if not paths:
            what = f"Data set {self.name!r} holds no images of the {split} split below {root}."
            raise UserError(what, self.how_to_get)
        source = image_files(paths, labels_N)
        settings = (self.name, self.revision, split, tuple(names), labels_N.tobytes())
        stored = resized(self, source, settings, side=side or self.side or 224, channels=channels or 3, split=split)
        unreadable = json.loads(stored["facts"].tobytes())["unreadable"]
        return stored, names, "published files" + (f"; {unreadable} unreadable left out" if unreadable else "")

    def _pixels(
        self, root: Path, split: str, choice: str, side: int | None, channels: int | None
    ) -> tuple[dict[str, np.ndarray], Sequence[str], str]:
        """Return (arrays by name: "images", "labels"; names of the classes; description of the source) of a split of
        pixels. They are copied once from the class's files, and resized once if another size is asked for.

        Args:
            choice: one of `choices`.
            side, channels: pixels per side and channels asked for; None for those of the files.
        """
        paths = [path for path in (root / name for name in self._paths(choice)) if path.is_file()]
        settings = (self.name, self.revision, split, choice)
        key = f"{self.name}-{cache.fingerprint(settings, paths)}"
        stored = cache.arrays(key, partial(self._copied, root, split, choice))
        names = self.class_names.get(choice) or tuple(json.loads(stored["names"].tobytes()))
        _, own_side, _, own_channels = stored["images"].shape
        side, channels = side or own_side, channels or own_channels
        if (side, channels) != (own_side, own_channels):
            source = pixels(stored["images"], stored["labels"], files=tuple(paths))
            stored = resized(self, source, settings, side=side, channels=channels, split=split)
        return stored, names, "published files"

    def _copied(self, root: Path, split: str, choice: str) -> Mapping[str, np.ndarray]:
        parts = self._opened(root, split, choice)
        first = np.asarray(parts[0][0][0])
        count, shape = sum(map(len, parts)), (first if first.ndim == 3 else first[..., None]).shape
        images_NHWC = cache.scratch((count, *shape))
        labels_N = np.empty(count, dtype=np.int64)
        items = chain.from_iterable((data[row] for row in range(len(data))) for data in parts)
        for row, (image, label) in enumerate(items):
            pixels_HWC = np.asarray(image).reshape(shape)
            images_NHWC[row] = pixels_HWC.swapaxes(0, 1) if self.transposed else pixels_HWC
            labels_N[row] = label
        names = self.class_names.get(choice) or tuple(map(str, parts[0].classes))
        labels_N = self._checked(labels_N, names, choice)
        return {"images": images_NHWC, "labels": labels_N, "names": as_bytes(list(names))}

    def _download(self, option: str) -> Download:
        return Download(
            name=f"{self.name}:{option}" if option else self.name,
            licence=self.licence,
            source=f"{self.source}, by torchvision",
            bytes_missing=partial(self._missing, self._parsed(option)[0]),
            fetch=partial(self._fetch, self._parsed(option)[0]),
            is_archive=True,
        )

    def _missing(self, choice: str, root: Path) -> int | None:
        return 0 if all((root / path).exists() for path in self._paths(choice)) else self.archive_bytes

    def _fetch(self, choice: str, root: Path) -> list[str]:
        """Let torchvision download and unpack the set in a temporary folder, then move the complete result below the
        data root `root`. Return lines of text for the user. `choice`: one of `choices`.

        Raises:
            UserError: the server does not answer or sends something else; the disk is full; or a file is in the way.
        """
        from torchvision import datasets

        if all((root / path).exists() for path in self._paths(choice)):
            return [f"{self.name}: there already"]
        aside = root / f".{self.name}.part"
        prepare(aside)
        kind = getattr(datasets, self.fetched_by or self.of)
        parts = {} if self.fetched_by else {repr(p): p for s in ("train", "test") for p in self.parts(s, choice)}
        with guarded(self, root, done="fetched"):
            (aside / self.base).mkdir(parents=True, exist_ok=True)
            for part in parts.values() or [{}]:
                kind(aside / self.base, **part, download=True)
        for archive in (path for path in aside.rglob("*") if path.is_file() and path.suffix in ARCHIVES):
            archive.unlink()
        for made in sorted(aside.iterdir()):
            if (root / made.name).exists():
                raise UserError(f"{root / made.name} is in the way of {self.name}.", "Move it away, and try again.")
            os.replace(made, root / made.name)
        aside.rmdir()
        return [f"{self.name}: fetched, checksums right"]


def fetched_below(data_set: DataSet, *, of: str, archive_bytes: int) -> Download:
    """Return the download of a set in MNIST's format by torchvision, into torchvision's layout of folders; the set is
    read by a reader of this project. `of`: name of the class in torchvision.datasets; `archive_bytes`: approximate
    bytes to download."""
    facts = {one.name: getattr(data_set, one.name) for one in fields(DataSet) if one.name != "load"}
    names = (f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))
    full = TorchvisionSet(
        **facts,
        of=of,
        parts=by_flag,
        needs=tuple(f"{of}/raw/{name}" for name in names),
        is_pixels=True,
        archive_bytes=archive_bytes,
    )
    return full._download("")


def prepare(aside: Path) -> None:
    """Make the temporary folder `aside` of a download, or clean the one that an interrupted download left: keep
    archives, which are verified again, and delete what may be unpacked incompletely."""
    aside.mkdir(parents=True, exist_ok=True)
    for path in sorted(aside.rglob("*"), reverse=True):  # contents of a folder before the folder itself
        if path.is_file() and path.suffix not in ARCHIVES:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def by_hash(
    paths: Sequence[Path], labels_N: np.ndarray, *, split: str, train_per_class: int | None = None
) -> tuple[list[Path], np.ndarray]:
    """Return (paths, labels) of one split of a set without published splits.

    A hash of the file's name chooses the images for training, so the split is the same on every machine. All others are
    for testing.

    Args:
        split: "train" or "test".
        train_per_class: training images of every class; None for all but the fraction TEST_SHARE.
    """
    place = [hashlib.sha256("/".join(path.parts[-2:]).encode(errors="surrogateescape")).digest() for path in paths]
    order = sorted(range(len(paths)), key=lambda i: (int(labels_N[i]), place[i]))
    counts = np.bincount(labels_N)
    rank_N = np.empty(len(paths), dtype=np.int64)
    rank_N[order] = np.concatenate([np.arange(count) for count in counts]) if len(paths) else 0
    last = [count - round(TEST_SHARE * count) if train_per_class is None else train_per_class for count in counts]
    kept = [i for i in range(len(paths)) if (rank_N[i] >= last[labels_N[i]]) == (split == "test")]
    return [paths[i] for i in kept], labels_N[kept]


def sized(name: str, option: str, words: Sequence[str], options: str) -> tuple[int | None, int | None]:
    """Parse words such as "64px" and "grey" or "rgb" into (pixels per side, channels); None for what no word states.

    Args:
        name, option: name of the set and the text after its colon, for messages.
        words: the words of the option.
        options: explanation of the allowed words, for messages.

    Raises:
        UserError: a word is unknown, or a size is out of range.
    """
    side, channels = None, None
    for word in words:
        if match := re.fullmatch(r"(\d{1,4})px", word):
            side = int(match.group(1))
        elif word in ("rgb", "grey"):
            channels = 3 if word == "rgb" else 1
        else:
            raise UserError(f"{name}:{option}: {word!r} is not understood.", f"{options}.")
    if side is not None and not MIN_SIDE <= side <= MAX_SIDE:
        raise UserError(f"{name}:{option}: a side of {side} pixels.", f"From {MIN_SIDE} to {MAX_SIDE}.")
    return side, channels


def resized(
    data_set: DataSet, source: Source, settings: tuple[Any, ...], *, side: int, channels: int, split: str
) -> dict[str, np.ndarray]:
    """Return the images of a source from the cache: "images", uint8 (N, side, side, channels), "labels", and "facts",
    JSON about unreadable images. Whole images are resized to a square of `side` pixels, whatever their shape.

    VTAB and the few-shot protocol do this too (task_adaptation, big_vision), because nothing may be cut off a scene
    whose objects are counted.

    Args:
        settings: everything else that the images depend on; part of the cache key.
        split: name of the split in messages.
    """
    key = f"{data_set.name}-{cache.fingerprint((*settings, side, channels), source.files)}"

    def build() -> Mapping[str, np.ndarray | cache.Chunks]:
        from bench.data.decode import Storage, decode_all  # imported here, because it imports Pillow

        storage = Storage(size=side, channels=channels, whole=True, as_published=True)
        decoded = decode_all(source, storage=storage, where=f"{data_set.name}, {split}")
        return {
            "images": cache.rows(decoded.images_NHWC, np.arange(len(decoded.labels_N))),
            "labels": decoded.labels_N,
            "facts": as_bytes({"unreadable": len(decoded.unreadable), "named": decoded.unreadable[:100]}),
        }

    return cache.arrays(key, build)


def as_bytes(value: Any) -> np.ndarray:
    """Return a value as JSON in a uint8 array, the form in which the cache can store it."""
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)


@contextmanager
def guarded(data_set: DataSet, root: Path, *, done: str) -> Iterator[None]:
    """Turn any exception in the block, such as one from a damaged list or archive or from a missing package, into a
    UserError. What the block prints goes to standard error.

    Args:
        root: the data root, for the message.
        done: what is being done to the set, for the message: "read" or "fetched".

    Raises:
        UserError: in place of any other exception.
    """
    try:
        with tidy_stdout():
            yield
    except UserError:
        raise
    except ImportError as error:
        needed = error.name or "a package"
        raise UserError(f"Data set {data_set.name!r} needs {needed}.", f"Run: pip install {needed}") from error
    except RuntimeError as error:  # torchvision raises this for absent files and wrong checksums
        what = f"Data set {data_set.name!r} cannot be {done}: {str(error).rstrip('.')}."
        raise UserError(what, data_set.how_to_get) from error
    except Exception as error:  # damaged files raise errors of many kinds
        what = f"Data set {data_set.name!r} below {root} cannot be {done}: {type(error).__name__}: {error}."
        raise UserError(what, f"Get its files again. {data_set.how_to_get}") from error


@contextmanager
def tidy_stdout() -> Iterator[None]:
    """Redirect what torchvision prints in the block to standard error, because standard output is for answers."""
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout = out
