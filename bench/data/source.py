"""The interface that all readers of image formats implement: labelled images that are listed but not yet decoded, each
of which can be read by its index."""

from __future__ import annotations

import os
import re
import stat
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np

from bench.core.by_key import by_key
from bench.core.errors import UserError
from bench.data.readable import not_regular, printable

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".pgm", ".gif", ".tif", ".tiff")
MAX_FILE_BYTES = 256 << 20  # largest encoded image that is read
MAX_BYTES = 64 << 30  # largest array that is read, by the size that its header states
MAX_CLASSES = 1_000_000
# Words for the two splits, preferred ones first. Public sets often withhold the labels of "test" and are evaluated on
# "val". If both are there, "test" is used; if that has no labels, the error says what to do.
SPLIT_WORDS = {"train": ("train", "training"), "test": ("test", "testing", "val", "valid", "validation")}


ELSEWHERE = b"\0"  # marks the name of a file that is not in the common folder; no path contains this byte


class PathList(Sequence[Path]):
    """A list of paths stored as bytes; a `Path` object is made only when one is accessed, because it takes half a
    kilobyte and a set may have millions.

    Args:
        below: a common folder, whose name is stored only once for all files in it; None without one.
    """

    def __init__(self, paths: Iterable[str | Path] = (), *, below: Path | None = None) -> None:
        self._names, self._ends = bytearray(), array("q")
        self._below = os.path.join(os.fsencode(below), b"") if below is not None else ELSEWHERE
        self.extend(paths)

    def extend(self, paths: Iterable[str | Path]) -> None:
        """Append paths."""
        for path in paths:
            name = os.fsencode(path)
            self._names += name[len(self._below) :] if name.startswith(self._below) else ELSEWHERE + name
            self._ends.append(len(self._names))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, number: int) -> Path: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[Path]: ...

    def __getitem__(self, number: int | slice) -> Path | Sequence[Path]:
        if isinstance(number, slice):
            return [self[at] for at in range(*number.indices(len(self)))]
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise IndexError(number)
        return Path(os.fsdecode(self.encoded(number)))

    def join(self, other: PathList) -> None:
        """Append the paths of another list."""
        if self._below != other._below:
            self.extend(other)
            return
        before = len(self._names)
        self._names += other._names
        self._ends.extend(before + end for end in other._ends)

    def relative_to(self, folder: Path) -> tuple[bytearray, array[int]] | None:
        """Return (all names in one byte string, position at which each ends), not copied, if all names are stored
        relative to `folder`; else None."""
        if self._below != os.path.join(os.fsencode(folder), b"") or ELSEWHERE in self._names:
            return None
        return self._names, self._ends

    def encoded(self, number: int) -> bytes:
        """Return the path at position `number` as bytes, as the operating system encodes it."""
        name = bytes(self._names[self._ends[number - 1] if number else 0 : self._ends[number]])
        return name[len(ELSEWHERE) :] if name.startswith(ELSEWHERE) else self._below + name


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where encoded images lie.

    Attributes:
        file_N: index of each image's file in `Source.files`.
        offset_N: offset of each image's first byte in its file.
    """

    file_N: np.ndarray
    offset_N: np.ndarray


class ImageName:
    """The name of an image in messages. Its text is made only when it is printed, because millions of images are never
    named."""

    __slots__ = ("number", "source")

    def __init__(self, source: Source, number: int) -> None:
        self.source, self.number = source, number

    def __str__(self) -> str:
        return self.source.name(self.number)


@dataclass(frozen=True, kw_only=True)
class Source:
    """The images of one split, listed but not yet decoded. The index of an image is its position here.

    Attributes:
        labels_N: class of each image, int64.
        files: all files that the content depends on, in a fixed order.
        name: (index) -> name of the image in messages, for example "train/cat/1.jpg".
        read: (index) -> encoded image, or pixels (H, W, C) that need no decoding. It may be called in any order and
            from any thread; it raises OSError if the image is missing.
        in_order: () -> iterator over what `read` returns for 0, 1, 2, …, for one thread; None unless it is faster than
            `read`.
        places: () -> where the images lie in `files`; None if they have to be unpacked.
        is_pixels: whether `read` returns pixels.
        several: all classes of each image, if an image may have several or none (`bench.data.labels`); else None.
        groups_N: uint64 per image, equal for images that belong together (`bench.data.groups`); None if not known.
    """

    labels_N: np.ndarray
    files: Sequence[Path]
    name: Callable[[int], str]
    read: Callable[[int], bytes | np.ndarray]
    in_order: Callable[[], Iterator[bytes | np.ndarray]] | None = None
    places: Callable[[], Places] | None = None
    is_pixels: bool = False
    several: tuple[tuple[int, ...], ...] | None = None
    groups_N: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels_N)


@dataclass(frozen=True, kw_only=True)
class FolderContents:
    """The images of a folder.

    Attributes:
        sources: the images of "train" and of "test"; or those of "all", a part of which is held out for testing.
        class_names: one name per class, in label order.
        format: the format for people, for example "image folder".
        words: the parts of the set's name that identify its labels and groups, separated by blanks; "" without.
    """

    sources: dict[str, Source]
    class_names: tuple[str, ...]
    format: str
    words: str = ""


def image_files(paths: Sequence[Path], labels: Sequence[int] | np.ndarray) -> Source:
    """Return a source of image files, one image in each, with their labels, in this order."""
    files = paths if isinstance(paths, PathList) else PathList(paths)
    return Source(
        labels_N=np.asarray(labels, dtype=np.int64),
        files=files,
        name=lambda number: printable(files[number]),
        read=lambda number: read_bytes(files.encoded(number)),
        places=lambda: Places(
            file_N=np.arange(len(files), dtype=np.int32), offset_N=np.broadcast_to(np.int64(0), len(files))
        ),
    )


def pixels(images_NHWC: np.ndarray, labels_N: np.ndarray, *, files: tuple[Path, ...]) -> Source:
    """Return decoded images and their labels as a source, after checking dtype and shape. `files`: the files that they
    were read from; messages name the first.

    Raises:
        UserError: images are not uint8 of shape (N, H, W) or (N, H, W, 1 or 3), or labels are not N integers.
    """
    where = files[0]
    if images_NHWC.ndim == 3:
        images_NHWC = images_NHWC[..., None]
    shape = images_NHWC.shape
    if images_NHWC.dtype != np.uint8 or len(shape) != 4 or shape[3] not in (1, 3) or 0 in shape[1:]:
        raise UserError(
            f"{where}: the images are {images_NHWC.dtype} of shape {shape}.",
            "They must be uint8 of shape (N, height, width) or (N, height, width, 1 or 3).",
        )
    if labels_N.ndim == 2 and labels_N.shape[1] == 1:
        labels_N = labels_N[:, 0]
    if labels_N.ndim != 1 or labels_N.dtype.kind not in "iu":
        raise UserError(f"{where}: labels are {labels_N.dtype} of shape {labels_N.shape}.", "One whole number each.")
    if len(labels_N) != len(images_NHWC):
        raise UserError(f"{where} has {len(images_NHWC):,} images but {len(labels_N):,} labels.")
    return Source(
        labels_N=labels_N.astype(np.int64),
        files=files,
        name=lambda number: f"{where.name}, image {number}",
        read=images_NHWC.__getitem__,
        is_pixels=True,
    )


def is_image(name: str) -> bool:
    """Whether a file name has the suffix of an image that can be read."""
    return name.lower().endswith(SUFFIXES)


def read_bytes(path: Path | bytes, offset: int = 0, size: int = MAX_FILE_BYTES + 1) -> bytes:
    """Return up to `size` bytes of a regular file, starting at `offset`.

    Raises:
        OSError: there is no such file, or it is not a regular one; reading a pipe or a device might never end.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise OSError("no such file") from None
    if not stat.S_ISREG(status.st_mode):
        raise OSError("no regular file")
    if offset == 0 and status.st_size < size:  # the most frequent case: a whole file
        with open(path, "rb", buffering=0) as whole:
            return whole.readall()
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def regular(paths: Iterable[Path]) -> list[Path]:
    """Return the paths after checking that all are regular files or links to such.

    Raises:
        UserError: a path is a folder, a pipe, a device, or a broken link.
    """
    checked = list(paths)
    for path in checked:
        if not path.is_file():
            raise not_regular(path)
    return checked


def split_word(path: str) -> str:
    """Return the first word in a relative path that names a split ("train", "val", …, one of SPLIT_WORDS); "all" if
    there is none."""
    words = re.split(r"[^a-z]+", path.rsplit(".", 1)[0].lower())
    return next((word for word in words if word in {*SPLIT_WORDS["train"], *SPLIT_WORDS["test"]}), "all")


def by_split(paths: Iterable[Path], *, below: Path) -> dict[str, list[Path]]:
    """Return the files of each split, "train" and "test". A split is a folder or a word in the name ("val/…",
    "x-train-00001.tar"). If no name states a split, or if there is no test split, the files are those of "all".
    `below`: folder of the set, relative to which names are read.

    Raises:
        UserError: there is a test split but no training split, or a path is not a regular file.
    """
    groups = by_key((split_word(path.relative_to(below).as_posix()), path) for path in sorted(regular(paths)))
    if set(groups) == {"all"}:
        return groups
    splits = {
        split: groups[next(word for word in words if word in groups)]
        for split, words in SPLIT_WORDS.items()
        if any(word in groups for word in words)
    }
    if "train" not in splits:
        raise UserError(f"{below} has no training split.", "Name its files or folders after their split: train, test.")
    return splits if "test" in splits else {"all": splits["train"]}


def found(
    sources: dict[str, Source], folder: Path, *, names: Sequence[str] | None = None, format: str
) -> FolderContents:
    """Return the contents of a folder, after checking all labels against the names of the classes.

    Args:
        sources: images by split.
        names: names of the classes. If None, they are read from `classes.txt`; without that file, labels must run from
            0 upwards without gaps, and names are read from `classnames.txt` or are the labels themselves.
        format: the format for people.

    Raises:
        UserError: there are no images, a label is out of range, or a class has no training images.
    """
    names = names or _names_beside(folder / "classes.txt")
    labels = {split: source.labels_N for split, source in sources.items()}
    first = labels.get("train", labels.get("all", np.empty(0)))
    for split, labels_N in labels.items():
        if not len(labels_N):
            raise UserError(f"{folder} holds no images ({split}).", "Is it the right folder? Was the copy finished?")
        if int(labels_N.max()) >= MAX_CLASSES:
            raise UserError(f"{folder} holds label {int(labels_N.max())} ({split}).", "Labels count from 0 upwards.")
    count = len(names) if names is not None else int(first.max()) + 1
    if names is None and (stated := _names_beside(folder / "classnames.txt")) and len({*stated} - {""}) == count:
        names = stated  # CLIP-benchmark's file, used only if it is complete: some leave names out
    for split, labels_N in labels.items():
        wrong = labels_N[(labels_N < 0) | (labels_N >= count)]
        if len(wrong):
            hint = (
                "A split without labels is marked so: take its files away, so that the validation split is used."
                if (labels_N == -1).all()
                else "Labels count from 0 upwards; both splits share them."
            )
            raise UserError(f"{folder} holds label {wrong[0]} ({split}); its classes are 0 to {count - 1}.", hint)
    absent = np.flatnonzero(np.bincount(first.astype(np.int64), minlength=count) == 0)
    if len(absent):
        raise UserError(
            f"{folder} has no training image of class {absent[0]}, though labels go up to {count - 1}.",
            "Number the classes from 0 upwards without gaps.",
        )
    names = checked_names(names, where=folder) if names is not None else tuple(str(label) for label in range(count))
    return FolderContents(sources=sources, class_names=names, format=format)


def checked_names(names: Iterable[str], *, where: Path) -> tuple[str, ...]:
    """Return class names after checking that they are different and printable. `where`: their file or folder, for
    messages.

    Raises:
        UserError: a name is empty, longer than 200 characters, occurs twice, or has control characters or undecodable
            bytes.
    """
    result = tuple(names)
    for name in result:
        if not name or not name.isprintable() or len(name) > 200:
            raise UserError(f"{where}: {name!r} cannot be the name of a class.", "Use up to 200 printable characters.")
    if len(set(result)) < len(result):
        raise UserError(f"{where} names a class twice.", "Every class needs a name of its own.")
    return result


def _names_beside(path: Path) -> list[str] | None:
    """Return class names from a file with one name per line, in label order, for formats whose labels are numbers; None
    without such a file."""
    if not path.is_file():
        return None
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}.", "Write one class name a line, in UTF-8.") from error
