"""`DataSet`, the description of a data set. A file in bench/data/sets/, a plug-in and a row of the table of published
sets each give one; nothing else of them is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

from bench.core.errors import UserError
from bench.data.image_set import ImageSet

Kind = Literal["photographs", "handwriting", "rendered", "own images"]


class Numbers(TypedDict):
    """Numbers of training images, test images and classes."""

    train: int
    test: int
    classes: int


@dataclass(frozen=True, kw_only=True)
class Download:
    """How `vit-bench data NAME --download` gets a data set.

    Attributes:
        name: name of the set, with the revision that is fetched if the set has several.
        licence: licence of the images, for people.
        source: where the files come from, for people.
        bytes_missing: (data root) -> approximate bytes still to be fetched; None if their number is not stated.
        fetch: (data root) -> lines of text for the user about the files; it fetches those that are missing.
        opened_as: name under which the set is loaded; "" if that is `name`.
        is_archive: whether an archive is unpacked beside itself, so that twice the room is needed.
        is_parquet: whether images have to be copied out of Parquet before they can be streamed.
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
        """Return the approximate bytes of disk that are still needed; 0 if the size of the files is not stated."""
        return (2 if self.is_archive else 1) * (self.bytes_missing(root) or 0)


def everywhere(root: Path | None) -> bool:
    """Return True. This is `DataSet.available` of a set that needs no files."""
    return True


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A data set: its facts, and how it is loaded. In the functions below, `option` is the text after the first colon
    of the set's name, "" without one; `root` is the data root (folder with data sets that are not installed), or None.

    Attributes:
        name: public name: the name of its file, with "-" for "_".
        kind: what the images show; "own images" if that is not known.
        description: description in one line.
        licence: licence of the images.
        source: where the images come from.
        how_to_get: what to do if the set is not on this machine.
        load: ("train" or "test", root=…) -> images; also takes option=… if `options` is set and the name has any. A
            UserError says how to get missing data.
        available: (root) -> whether both splits are on this machine. Opens no file.
        revision: incremented by hand when a change gives other images or labels. It is part of a result's identity; the
            contents of files are not.
        options: what may follow the name after a colon, for people; "" if nothing may.
        split: how training and test images are divided, for people.
        pinned: what guarantees that a copy is the right one, for people.
        images: numbers of training and test images, as published or as rendered; None if they depend on the option.
        classes: number of classes; None if it depends on the option.
        carried_in_part: whether the installation holds fewer images than are published.
        unopened: whether studies are planned with `images` and `classes` without opening the set, because it is too
            large or not public.
        side: pixels per side at which images are stored if the name states none; None where that does not apply.
        takes_side: whether the name may state another side: "pets:64px".
        takes_colour: whether the name may state ":rgb" or ":grey".
        look: (option, root=…) -> (pixels per side, None for many sizes; channels), decoding as little as possible; it
            returns None if the set is not here. If the field is None, the test split is loaded to find out.
        size: (option) -> numbers of images and classes, for a set that renders as many as its name asks for; else None.
        listed_images: (option, root=…) -> number of training images, from lists of files without decoding any; or None.
        some_encoded: (option, root=…) -> a few encoded images, to measure how fast they are decoded; or None.
        indexed: (root) -> numbers of images and classes of the copy that is here; it returns None until the files have
            been indexed (`bench.data.index`).
        grouped: (option, root=…, file=…, table=…, columns=…) -> (the option, to which hashes are added that identify
            the images' labels and groups; sentences for the user). Labels and groups (images that belong together) are
            read from the tables that are given, or from the set's own; see `bench.data.sets.folder.grouped`. None if
            the images can have no such tables.
        places: (option, root=…) -> folders that the images may lie in, or None if the set is not here. The field is
            None if name and revision determine the images; otherwise `bench.data.identity` examines these folders.
        download: (option) -> what `--download` fetches; None if the set has to be fetched by hand.
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
        """The numbers of images and classes that the set states; None if it states none. For a set that renders as many
        as its name asks for, they are those without an option."""
        if self.size is not None:
            return self.size("")
        if self.images is None or self.classes is None:
            return None
        return {"train": self.images[0], "test": self.images[1], "classes": self.classes}

    def absent(self, option: str = "") -> UserError:
        """Return the error for a set that is not on this machine. `option`: the text after the colon of its name."""
        name = f"{self.name}:{option}" if option else self.name
        return UserError(f"Data set {name!r} is not on this machine.", self.how_to_get)

    def too_few(self, name: str, *, asked: int, there: int) -> UserError:
        """Return the error for asking for `asked` training images of the set `name`, of which only `there` are on this
        machine. If the installation holds only a part of the set, the error says how to get the rest."""
        fix = self.how_to_get if self.carried_in_part and ":" not in name else f"Ask for at most {name}@{there}."
        return UserError(f"{name}@{asked}: {name} has only {there} training images here.", fix)
