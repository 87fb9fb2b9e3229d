"""What every format gives: labelled images by split, listed but not yet decoded; and the checks that all share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.core.errors import UserError
from bench.data.decode import MAX_FILE_BYTES, Item

# Words for the two splits, best first. Public sets often keep the labels of "test" to themselves and are judged on
# "val"; where both are there, "test" is used, and a format that finds it without labels says what to do.
SPLIT_WORDS = {"train": ("train", "training"), "test": ("test", "testing", "val", "valid", "validation")}
MAX_CLASSES = 1_000_000
MAX_BYTES = 64 << 30  # of an array that a header promises


@dataclass(frozen=True, kw_only=True)
class Source:
    """The images of one split.

    Attributes:
        items: a new iterator over the images, in the order of `labels_N`.
        labels_N: int64 class of each.
        files: everything that the content depends on, in a fixed order.
    """

    items: Callable[[], Iterator[Item]]
    labels_N: np.ndarray
    files: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What lies in a folder.

    Attributes:
        sources: "train" and "test"; or "all", of which a part is held out for testing.
        class_names: one per class, in label order.
        format: for people, for example "image folder".
    """

    sources: dict[str, Source]
    class_names: tuple[str, ...]
    format: str


def by_split(paths: Iterable[Path], *, below: Path) -> dict[str, list[Path]]:
    """Files by split, from a folder or a word in the name ("val/…", "x-train-00001.tar"); "all" where none is told.

    Raises:
        UserError: a test split without a training split.
    """
    groups: dict[str, list[Path]] = {}
    for path in sorted(paths):
        words = re.split(r"[^a-z]+", path.relative_to(below).as_posix().rsplit(".", 1)[0].lower())
        word = next((word for word in words if word in {*SPLIT_WORDS["train"], *SPLIT_WORDS["test"]}), "all")
        groups.setdefault(word, []).append(path)
    return split_words(groups, below=below) if set(groups) != {"all"} else groups


def split_words(groups: dict[str, list[Path]], *, below: Path) -> dict[str, list[Path]]:
    """From groups under any word to {"train", "test"}, or {"all"} where there is no test split.

    Raises:
        UserError: no training split.
    """
    found = {
        split: groups[next(word for word in words if word in groups)]
        for split, words in SPLIT_WORDS.items()
        if any(word in groups for word in words)
    }
    if "train" not in found:
        raise UserError(f"{below} has no training split.", "Name its files or folders after their split: train, test.")
    return found if "test" in found else {"all": found["train"]}


def class_names_of(labels: dict[str, np.ndarray], names: Sequence[str] | None, *, where: Path) -> tuple[str, ...]:
    """The names of the classes, after checking every label against them.

    Without names the labels themselves are the names: they must run from 0 upwards without a gap.

    Raises:
        UserError: no images, labels that are no classes, a class without training images.
    """
    first = labels.get("train", labels.get("all", np.empty(0)))
    for split, labels_N in labels.items():
        if not len(labels_N):
            raise UserError(f"{where} holds no images ({split}).", "Is it the right folder, and was the copy finished?")
        if int(labels_N.max()) >= MAX_CLASSES:
            raise UserError(f"{where} holds label {int(labels_N.max())} ({split}).", "Labels count from 0 upwards.")
    count = len(names) if names is not None else int(first.max()) + 1
    for split, labels_N in labels.items():
        wrong = labels_N[(labels_N < 0) | (labels_N >= count)]
        if len(wrong):
            hint = (
                "A split without labels is marked so: take its files away, so that the validation split is used."
                if (labels_N == -1).all()
                else "Labels count from 0 upwards; both splits share them."
            )
            raise UserError(f"{where} holds label {wrong[0]} ({split}); its classes are 0 to {count - 1}.", hint)
    absent = np.flatnonzero(np.bincount(first.astype(np.int64), minlength=count) == 0)
    if len(absent):
        raise UserError(
            f"{where} has no training image of class {absent[0]}, though labels go up to {count - 1}.",
            "Number the classes from 0 upwards without gaps.",
        )
    return checked_names(names, where=where) if names is not None else tuple(str(label) for label in range(count))


def checked_names(names: Iterable[str], *, where: Path) -> tuple[str, ...]:
    """Class names that can be printed anywhere.

    Raises:
        UserError: control characters, undecodable bytes, or a name that is there twice.
    """
    result = tuple(names)
    for name in result:
        if not name or not name.isprintable() or len(name) > 200:
            raise UserError(f"{where}: {name!r} cannot be the name of a class.", "Use up to 200 printable characters.")
    if len(set(result)) < len(result):
        raise UserError(f"{where} names a class twice.", "Every class needs a name of its own.")
    return result


def names_beside(folder: Path) -> list[str] | None:
    """Class names from `classes.txt`, one a line in label order, for formats that carry numbers only; None without."""
    path = folder / "classes.txt"
    if not path.is_file():
        return None
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}.", "Write one class name a line, in UTF-8.") from error


def read_bytes(path: Path, offset: int = 0, size: int = MAX_FILE_BYTES + 1) -> bytes:
    """Part of a file."""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)
