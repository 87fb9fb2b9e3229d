"""The kinds of rows that the table of public sets (`bench.data.public`) has, and how each is loaded.

Rows have what a file in bench/data/sets/ has (CONTRIBUTING.md), under the same names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from bench.core.errors import UserError, unknown
from bench.data import cache
from bench.data.fetch import Download, File
from bench.data.hub import Repository, look_up
from bench.data.image_set import ImageSet
from bench.data.source import Source

MAX_SIDE = 1024
Arrays = Mapping[str, np.ndarray | cache.Chunks]


@dataclass(frozen=True, kw_only=True)
class PublicSet:
    """A data set that is published somewhere.

    Attributes:
        SPLIT: how training and test images are told apart.
        images, classes: published numbers: images to train and to test with, as divided here. DESCRIPTION ends with
            them where it does not name classes itself.
        DOWNLOADS: files that `--download` fetches: where the licence allows it and a checksum is published.
        hub: its files on the Hugging Face hub, where `--download` takes them from there.
        vast: too large to look into while a study is planned: the published numbers are taken, until it is indexed.
    """

    NAME: str
    DESCRIPTION: str
    LICENCE: str
    SOURCE: str
    HOW_TO_GET: str
    KIND: str = "photographs"
    SPLIT: str = "as published; the validation part is for training"
    OPTIONS: str | None = None
    DOWNLOADS: tuple[File, ...] = ()
    REVISION: int = 1
    hub: Repository | None = None
    images: tuple[int, int] | None = None
    classes: int | None = None
    vast: bool = False

    def __post_init__(self) -> None:
        if self.images and "classes" not in self.DESCRIPTION:
            counts = " + ".join(f"{count:,}" for count in self.images)
            object.__setattr__(self, "DESCRIPTION", f"{self.DESCRIPTION}, {self.classes} classes, {counts}")
        if self.DOWNLOADS or self.hub:
            run = f"Or run: python -m bench.data {self.NAME} --download --data-root <data root>"
            object.__setattr__(self, "HOW_TO_GET", f"{self.HOW_TO_GET} {run}")

    @property
    def PINNED(self) -> str:
        """What says that a copy is the one that is meant."""
        if self.hub is not None:
            return f"commit {self.hub.revision}" if self.hub.revision else "not verified: the newest commit is fetched"
        return "checksums of what is downloaded" if self.DOWNLOADS else "not verified: a copy of yours"

    def download(self) -> Download:
        """What `--download` fetches.

        Raises:
            UserError: it has to be got by hand; the hub refuses.
        """
        if self.hub is not None:
            found = look_up(self.hub, named=self.NAME)
            return replace(found, licence=self.LICENCE)
        if not self.DOWNLOADS:
            why = "its licence forbids it, or it has no published checksum"
            raise UserError(f"Data set {self.NAME!r} cannot be downloaded: {why}.", self.HOW_TO_GET)
        return Download(name=self.NAME, files=self.DOWNLOADS, licence=self.LICENCE, source=self.SOURCE)

    @property
    def SIZE(self) -> dict[str, int] | None:
        """Published numbers, used instead of opening a very large set."""
        if not self.vast or self.images is None or self.classes is None:
            return None
        return {"train": self.images[0], "test": self.images[1], "classes": self.classes}

    def available(self, root: Path | None) -> bool:
        """Whether both splits are on this machine. Opens nothing."""
        return False

    def load(self, split: str, *, root: Path | None, option: str = "") -> ImageSet:
        """One split.

        Raises:
            UserError: it is not there, it is damaged, the option is not understood.
        """
        raise UserError(f"The data set {self.NAME} is not public.", self.HOW_TO_GET)

    def named(self, option: str) -> str:
        return f"{self.NAME}:{option}" if option else self.NAME

    def absent(self, option: str = "") -> UserError:
        """The error for a set that is not on this machine."""
        return UserError(f"Data set {self.named(option)!r} is not on this machine.", self.HOW_TO_GET)

    @contextmanager
    def guarded(self, root: Path) -> Iterator[None]:
        """One message for whatever a damaged list or archive, or a package that is missing, ends in."""
        try:
            yield
        except UserError:
            raise
        except ImportError as error:
            needed = error.name or "a package"
            raise UserError(f"Reading data set {self.NAME!r} needs {needed}.", f"Run: pip install {needed}") from error
        except RuntimeError as error:  # torchvision's word for absent files and wrong checksums
            raise UserError(f"Data set {self.NAME!r} cannot be read: {error}.", self.HOW_TO_GET) from error
        except Exception as error:  # in any way
            what = f"Data set {self.NAME!r} below {root} cannot be read: {type(error).__name__}: {error}."
            raise UserError(what, "Get its files again. " + self.HOW_TO_GET) from error


@dataclass(frozen=True, kw_only=True)
class ImageFiles(PublicSet):
    """Images of many sizes, listed first, then decoded once to one storage size.

    After a colon comes that size: `flowers102:64px`, `dtd:224px:grey`. The whole image is resized to a square, whatever
    its shape, as VTAB and the few-shot protocol do (task_adaptation, big_vision): of a scene whose objects are counted
    nothing may be cut off.

    Attributes:
        needs: what must be below the data root.
        listed: (split, data root) -> (the images, not yet decoded; the names of the classes).
        SIDE: at which size they are stored where nobody says another.
    """

    needs: tuple[str, ...]
    listed: Callable[[str, Path], tuple[Source, Sequence[str]]]
    SIDE: int = 224

    def __post_init__(self) -> None:
        super().__post_init__()
        words = f"{self.NAME}[:64px][:rgb|:grey]; the whole image is resized to a square of so many pixels"
        object.__setattr__(self, "OPTIONS", f"{words} (default {self.SIDE}px)")

    def available(self, root: Path | None) -> bool:
        return root is not None and all((root / path).exists() for path in self.needs)

    def look(self, option: str, *, root: Path | None) -> tuple[int, int]:
        """(pixels per side, channels); see `bench.data.load.look`."""
        return storage_of(self, option, side=self.SIDE)

    def load(self, split: str, *, root: Path | None, option: str = "") -> ImageSet:
        side, channels = storage_of(self, option, side=self.SIDE)
        if root is None or not self.available(root):
            raise self.absent()
        with self.guarded(root):
            source, names = self.listed(split, root)
        if not len(source):
            what = f"Data set {self.NAME!r} holds no images of the {split} split below {root}."
            raise UserError(what, self.HOW_TO_GET)
        settings = (self.NAME, self.REVISION, split, side, channels, tuple(names), source.labels_N.tobytes())
        build = partial(_decoded, source, side=side, channels=channels, where=f"{self.NAME}, {split}")
        stored = cache.arrays(f"{self.NAME}-{cache.fingerprint(settings, source.files)}", build)
        unreadable = json.loads(stored["facts"].tobytes())["unreadable"]
        return ImageSet(
            name=self.named(option),
            split=split,
            images_NHWC=stored["images"],
            labels_N=stored["labels"],
            class_names=tuple(names),
            kind=self.KIND,
            source="published files" + (f"; {unreadable} unreadable left out" if unreadable else ""),
        )


def storage_of(row: PublicSet, option: str, *, side: int) -> tuple[int, int]:
    """ "64px:grey" -> (64, 1): pixels per side, channels.

    Args:
        side: where the option says none.
    """
    channels = 3
    for word in option.split(":") if option else ():
        if match := re.fullmatch(r"(\d{1,4})px", word):
            side = int(match.group(1))
        elif word in ("rgb", "grey"):
            channels = 3 if word == "rgb" else 1
        else:
            raise UserError(f"{row.NAME}:{option}: {word!r} is not understood.", f"{row.OPTIONS}.")
    if not 8 <= side <= MAX_SIDE:
        raise UserError(f"{row.NAME}:{option}: a side of {side} pixels.", f"From 8 to {MAX_SIDE}.")
    return side, channels


def _decoded(source: Source, *, side: int, channels: int, where: str) -> Arrays:
    from bench.data.decode import Storage, decode_all  # brings Pillow

    storage = Storage(size=side, channels=channels, whole=True, as_published=True)
    decoded = decode_all(source, storage=storage, where=where)
    facts = json.dumps({"unreadable": len(decoded.unreadable), "named": decoded.unreadable[:100]})
    return {
        "images": cache.rows(decoded.images_NHWC, np.arange(len(decoded.labels_N))),
        "labels": decoded.labels_N,
        "facts": np.frombuffer(facts.encode(), dtype=np.uint8),
    }


@dataclass(frozen=True, kw_only=True)
class ArrayFiles(PublicSet):
    """Pixels in a few files, unpacked once and memory-mapped from then on.

    Attributes:
        places: (split, option) -> where the files of a split may be below the data root: the first alternative of
            which all are there is read.
        read: (paths, split, option) -> `images` (N, H, W, C) and `labels` (N,), counted from 0.
        names: of the classes, by option; the first option is meant where none is given.
        option: what an option is, for messages.
        source: what the files are, for people; or a function of their paths.
    """

    places: Callable[[str, str], Iterable[Sequence[str]]]
    read: Callable[[Sequence[Path], str, str], Arrays]
    names: Mapping[str, Sequence[str]]
    option: str = ""
    source: str | Callable[[Sequence[Path]], str] = "published files"

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", len(next(iter(self.names.values()))))
        super().__post_init__()

    def find(self, root: Path | None, split: str, option: str) -> list[Path] | None:
        """The files of a split, or None where one is missing."""
        alternatives = ([root / name for name in names] for names in self.places(split, option)) if root else ()
        return next((paths for paths in alternatives if all(path.is_file() for path in paths)), None)

    def available(self, root: Path | None) -> bool:
        return all(self.find(root, split, next(iter(self.names))) for split in ("train", "test"))

    def load(self, split: str, *, root: Path | None, option: str = "") -> ImageSet:
        first = next(iter(self.names))
        option = option or first
        if option not in self.names:
            raise unknown(self.option, option, self.names)
        paths = self.find(root, split, option)
        if root is None or paths is None:
            raise self.absent("" if option == first else option)
        with self.guarded(root):
            key = f"{self.NAME}-{cache.fingerprint((self.NAME, self.REVISION, split, option), paths)}"
            stored = cache.arrays(key, partial(self._checked, paths, split, option))
        return ImageSet(
            name=self.named("" if option == first else option),
            split=split,
            images_NHWC=stored["images"],
            labels_N=stored["labels"],
            class_names=tuple(self.names[option]),
            kind=self.KIND,
            source=self.source if isinstance(self.source, str) else self.source(paths),
        )

    def _checked(self, paths: Sequence[Path], split: str, option: str) -> Arrays:
        stored, count = self.read(paths, split, option), len(self.names[option])
        labels_N = np.asarray(stored["labels"], dtype=np.int64)
        wrong = labels_N[(labels_N < 0) | (labels_N >= count)]
        if len(wrong):
            what = f"{paths[0].parent} holds label {wrong[0]} ({split}); classes are 0 to {count - 1}."
            raise UserError(what, "Get the files again.")
        return {"images": stored["images"], "labels": labels_N}


@dataclass(frozen=True, kw_only=True)
class HubFiles(PublicSet):
    """Files of the Hugging Face hub in a format that `folder` reads, the whole image resized to a square.

    Attributes:
        SIDE: at which size they are stored where nobody says another.
        bins: (values of the label in the files, classes that they are grouped into evenly).
    """

    SIDE: int = 224
    bins: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        words = f"{self.NAME}[:64px][:rgb|:grey]; the whole image is resized to a square of so many pixels"
        object.__setattr__(self, "OPTIONS", f"{words} (default {self.SIDE}px)")

    def place(self, root: Path | None) -> Path | None:
        """The folder with the files; of a set without a known commit, whichever one is here."""
        if root is None or self.hub is None:
            return None
        if self.hub.revision:
            return self.hub.find(root)
        commits = self.hub.commits(root)
        if len(commits) > 1:
            what = f"Data set {self.NAME!r}: {len(commits)} commits are below {self.hub.place(root)}."
            raise UserError(what, "Keep one of them.")
        return replace(self.hub, revision=commits[0]).find(root) if commits else None

    def available(self, root: Path | None) -> bool:
        return self.place(root) is not None

    def look(self, option: str, *, root: Path | None) -> tuple[int, int]:
        """(pixels per side, channels); see `bench.data.load.look`."""
        return storage_of(self, option, side=self.SIDE)

    def load(self, split: str, *, root: Path | None, option: str = "") -> ImageSet:
        from bench.data.decode import Storage  # brings Pillow
        from bench.data.sets import folder

        side, channels = storage_of(self, option, side=self.SIDE)
        place = self.place(root)
        if place is None:
            raise self.absent()
        storage = Storage(size=side, channels=channels, whole=True, as_published=True)
        images = folder.read(place, split, storage=storage, streamed=None, name=self.named(option))
        images = replace(images, kind=self.KIND, source=f"{images.source}; {place.relative_to(root or place)}")
        values, classes = self.bins or (self.classes, self.classes)
        if images.num_classes != values or values is None or classes is None:
            what = f"{place} has {images.num_classes} classes; {self.NAME} has {values}."
            raise UserError(what, "Remove it and download it again.")
        if self.bins is None:
            return images
        return replace(
            images, labels_N=images.labels_N * classes // values, class_names=tuple(map(str, range(classes)))
        )


@dataclass(frozen=True, kw_only=True)
class OwnCopy(PublicSet):
    """A folder of the set's name in any format that `folder` reads, streamed as RGB."""

    vast: bool = True

    def available(self, root: Path | None) -> bool:
        return root is not None and (root / self.NAME).is_dir()

    def look(self, option: str, *, root: Path | None) -> tuple[int, int]:
        """(pixels per side, channels); see `bench.data.load.look`."""
        return int((option or "224px").removesuffix("px")), 3

    def some_encoded(self, option: str, *, root: Path | None) -> list[bytes]:
        """A few of the encoded images."""
        from bench.data.sets import folder

        return folder.some_encoded(self.NAME, root=root) if self.available(root) else []

    def indexed(self, root: Path | None) -> dict[str, int] | None:
        """Images and classes of the copy that is here, once it is indexed."""
        from bench.data import index  # brings Pillow

        if root is None or not self.available(root):
            return None
        train, test = (index.indexed(root / self.NAME, split, as_published=True) for split in ("train", "test"))
        if train is None or test is None:
            return None
        return {"train": len(train), "test": len(test), "classes": len(train.class_names)}

    def load(self, split: str, *, root: Path | None, option: str = "") -> ImageSet:
        from bench.data.sets import folder

        if not self.available(root):
            raise self.absent()
        images = folder.load(split, root=root, option=f"{self.NAME}:{option or '224px'}:rgb:stream", as_published=True)
        return replace(images, name=self.named(option), kind=self.KIND)


@dataclass(frozen=True, kw_only=True)
class Tiles(PublicSet):
    """Tiles of pictures that scikit-image carries: which picture is a tile from? (`bench.data.generated.tiles`)

    Attributes:
        files: class name -> file. level: give all tiles one mean and contrast, so that only their texture tells.
    """

    files: Mapping[str, str]
    level: bool = False

    def available(self, root: Path | None) -> bool:
        from bench.data.generated import tiles  # brings Pillow

        return tiles.folder_with(tuple(self.files.values()), root) is not None

    def look(self, option: str, *, root: Path | None) -> tuple[int, int]:
        """(pixels per side, channels); see `bench.data.load.look`."""
        return int((option or "28px").removesuffix("px")), 1

    def load(self, split: str, *, root: Path | None, option: str = "") -> ImageSet:
        from bench.data.generated import tiles

        match = re.fullmatch(r"(\d{1,3})px", option or f"{tiles.STEP}px")
        if match is None or not 8 <= (side := int(match.group(1))) <= 128:
            raise UserError(f"Data set {self.NAME!r} has no option {option!r}.", f"{self.OPTIONS}.")
        folder = tiles.folder_with(tuple(self.files.values()), root)
        if folder is None:
            raise self.absent()
        paths = [folder / file for file in self.files.values()]
        rule = (self.REVISION, split, self.level, side, tiles.STEP, tiles.TRAIN_SHARE, tiles.PLAIN)
        build = partial(tiles.cut, paths, split, side=side, level=self.level)
        stored = cache.arrays(f"{self.NAME}-{split}-{cache.fingerprint(rule, paths)}", build)
        return ImageSet(
            name=self.named(option),
            split=split,
            images_NHWC=stored["images"],
            labels_N=stored["labels"],
            class_names=tuple(self.files),
            kind=self.KIND,
            source="scikit-image",
        )
