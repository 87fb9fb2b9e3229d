"""The facts of a data set: the one object that a file in bench/data/sets/, a plug-in or a row of the table of
published sets exports. Nothing else is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

from bench.core.errors import UserError
from bench.data.image_set import ImageSet

Kind = Literal["photographs", "handwriting", "rendered", "own images"]


class Numbers(TypedDict):
    """Images to train and to test with, and classes."""

    train: int
    test: int
    classes: int


@dataclass(frozen=True, kw_only=True)
class Download:
    """The part of a set that `--download` fetches.

    Attributes:
        name: the set's, with the revision that is fetched.
        licence: for people.
        source: for people.
        bytes_missing: (data root) -> bytes still to be fetched, about; None where nobody states them.
        fetch: has everything below the data root; returns the names of what is there now.
        opened_as: a name under which the set can be looked into; "" for `name`.
        is_archive: whether it needs twice the room: an archive lies beside what it unpacks to.
        is_parquet: whether images have to be copied out of Parquet before they are streamed.
    """

    name: str
    licence: str
    source: str
    bytes_missing: Callable[[Path], int | None]
    fetch: Callable[[Path], list[str]]
    opened_as: str = ""
    is_archive: bool = False
    is_parquet: bool = False

    def disk_bytes(self, root: Path) -> int:
        """Bytes of disk that are still needed, about; 0 where nobody states them."""
        return (2 if self.is_archive else 1) * (self.bytes_missing(root) or 0)


def everywhere(root: Path | None) -> bool:
    """`available` of a set that needs nothing."""
    return True


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A data set: its facts, and how it is loaded.

    Attributes:
        name: public name, that of its file with "-" for "_".
        kind: what the images show; "own images" where nobody knows.
        description: one line.
        licence: of the images.
        source: where they come from.
        how_to_get: what to do where the set is not on this machine.
        load: ("train" or "test", root=data root or None) -> images. With `options`, the words after the name's colon
            come as option="…" where there are any. UserError says how to get missing data.
        available: whether both splits are on this machine, by the data root. Opens nothing.
        revision: raised by hand when a change gives other images or labels. It is part of a result's identity;
            what lies on the disk is not.
        options: what may follow the name after a colon, for people; "" where nothing may.
        split: how training and test images are told apart.
        pinned: what says that a copy is the one that is meant.
        images: images to train and to test with, as published or as drawn; None where a name decides.
        classes: number of classes; None where a name decides.
        carried_in_part: whether the installation holds fewer images than are published.
        unopened: plan with `images` and `classes` as stated, without opening the set: it is too large, or not public.
        side: pixels per side at which it is stored where its name says no other; None where that does not apply.
        takes_side: whether the name may say another side: "pets:64px".
        takes_colour: whether the name may say ":rgb" or ":grey".
        look: (option, root=…) -> pixels per side (None for many sizes) and channels, decoding as little as possible;
            None for a set that is not here. Without it the test split is loaded.
        size: (option) -> numbers of images and classes, for a set that draws as many as its name asks for.
        listed_images: (option, root=…) -> training images by the lists in its files.
        some_encoded: (option, root=…) -> a few encoded images, to measure how fast they are decoded.
        indexed: (root) -> numbers of the copy that is here, once its files are indexed; None before.
        grouped: (option, root=…, file=…, table=…, columns=…) -> the option with the identity of its images' labels and
            groups (`bench.data.labels`, `bench.data.groups`), from tables that are named or its own, and sentences on
            them; None where images can have none.
        places: (option, root=…) -> the folders that its images may lie in, where neither its name nor its revision says
            which they are (`bench.data.identity`), or None where it is not here; None where these do.
        download: (option) -> what `--download` fetches; None where it has to be got by hand.
    """

    name: str
    kind: Kind
    description: str
    licence: str
    source: str
    how_to_get: str
    load: Callable[..., ImageSet]
    available: Callable[[Path | None], bool] = everywhere
    revision: int = 1
    options: str = ""
    split: str = "as published or as drawn"
    pinned: str = "comes with the project or a package"
    images: tuple[int, int] | None = None
    classes: int | None = None
    carried_in_part: bool = False
    unopened: bool = False
    side: int | None = None
    takes_side: bool = False
    takes_colour: bool = False
    look: Callable[..., tuple[int | None, int] | None] | None = None
    size: Callable[[str], Numbers] | None = None
    listed_images: Callable[..., int] | None = None
    some_encoded: Callable[..., list[bytes]] | None = None
    indexed: Callable[[Path | None], Numbers | None] | None = None
    grouped: Callable[..., tuple[str, tuple[str, ...]]] | None = None
    places: Callable[..., Sequence[Path] | None] | None = None
    download: Callable[[str], Download] | None = None

    @property
    def stated(self) -> Numbers | None:
        """Numbers of images and classes that it states; None where a name decides."""
        if self.size is not None:
            return self.size("")
        if self.images is None or self.classes is None:
            return None
        return {"train": self.images[0], "test": self.images[1], "classes": self.classes}

    def absent(self, option: str = "") -> UserError:
        """The error for a set that is not on this machine."""
        name = f"{self.name}:{option}" if option else self.name
        return UserError(f"Data set {name!r} is not on this machine.", self.how_to_get)

    def too_few(self, name: str, *, asked: int, there: int) -> UserError:
        """The error of more training images than there are: how to get them, where only a part of the set is here."""
        fix = self.how_to_get if self.carried_in_part and ":" not in name else f"Ask for at most {name}@{there}."
        return UserError(f"{name}@{asked}: {name} has only {there} training images here.", fix)
