"""Match the classes of an image set to the classes that a checkpoint's classifier knows: by a table, WordNet id, name
or number."""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from baselines._own_heads import plain
from bench.core.errors import UserError
from bench.data.readable import printable

if TYPE_CHECKING:
    from vit.model_family import Classifier

NUM_NAMED = 3  # unknown classes that an error names at most
BETWEEN = "|"  # separates the classes of the checkpoint that one class of the set stands for
SEPARATORS = ",;\t"  # one of these separates the columns of a table
WRITE = (
    "Write a row per class of the images: its name, then the checkpoint's WordNet id, name or number: cat,n02123045."
)


@dataclass(frozen=True, kw_only=True)
class KnownClasses:
    """The classes of an image set, as classes of a checkpoint's classifier.

    Attributes:
        classes: for each class of the set, the numbers of the checkpoint's classes that it stands for; more than one
            only where a table joins them ("cat" for several breeds).
        said: how the classes were matched, in words.
    """

    classes: tuple[tuple[int, ...], ...]
    said: str

    @property
    def numbers(self) -> np.ndarray:
        """The numbers of all classes of the checkpoint that a class of the set stands for, (C,), in the order of the
        set's classes."""
        return np.array([number for each in self.classes for number in each])

    def of_checkpoint(self, num_classes: int) -> np.ndarray:
        """Return for each class of the checkpoint the class of the set that stands for it: (num_classes,), -1 for none.

        Args:
            num_classes: number of the checkpoint's classes.
        """
        own_K = np.full(num_classes, -1)
        for number, each in enumerate(self.classes):
            own_K[list(each)] = number
        return own_K


def match(names: Sequence[str], classifier: Classifier, *, where: str, table: Path | None = None) -> KnownClasses:
    """Match the classes of a set to those of a checkpoint's classifier.

    Args:
        names: names of the set's classes.
        classifier: the checkpoint.
        where: name of the set, for error messages.
        table: a CSV file whose rows have a class of the set and classes of the checkpoint; classes that it does not
            name are matched by their own names. None: no table.

    Raises:
        UserError: the checkpoint lacks a class, or has two of its name; two classes of the set are one of the
            checkpoint's; or the table cannot be read.
    """
    said = {} if table is None else read(table, names, classifier, where=where)
    rest = [name for name in names if name not in said]
    found, how = _by_name(rest, classifier, where=where) if rest else ({}, "")
    classes = tuple(said[name] if name in said else (found[name],) for name in names)
    owner: dict[int, str] = {}
    for name, each in zip(names, classes, strict=True):
        for number in each:
            if (other := owner.setdefault(number, name)) != name:
                what = f"Two classes of {where} are one of the checkpoint's: {other!r} and {name!r} are {number}."
                raise UserError(what, "Put their images into one folder.")
    by_table = f"by {printable(table)}" if table is not None and said else ""
    return KnownClasses(classes=classes, said=" and ".join(filter(None, [by_table, how])))


def _by_name(names: Sequence[str], classifier: Classifier, *, where: str) -> tuple[Mapping[str, int], str]:
    """Return (name -> number of the checkpoint's class, how the names were matched, in words).

    Args:
        names: names of classes of the set: all numbers, or WordNet ids, or names that the checkpoint knows.
        where: name of the set, for error messages.

    Raises:
        UserError: the checkpoint lacks a class, has two of its name, or does not say what its classes are called.
    """
    numbers = [int(name) for name in names if name.isascii() and name.isdigit()]
    if len(numbers) == len(names) and max(numbers) < classifier.num_classes:
        return dict(zip(names, numbers, strict=True)), "by number: the folders are numbers"
    if not classifier.classes:
        raise UserError(
            f"The checkpoint does not say what its {classifier.num_classes:,} classes are called.",
            "Name the folders of the images by the numbers of its classes, from 0; or give --classes, a CSV file with "
            "rows such as cat,281.",
        )
    places = _places(classifier)
    if unknown := [name for name in names if plain(name) not in places]:
        shown = ", ".join(repr(name) for name in unknown[:NUM_NAMED]) + (", …" if len(unknown) > NUM_NAMED else "")
        how_many = "A class" if len(unknown) == 1 else f"{len(unknown):,} classes"
        raise UserError(
            f"{how_many} of {where} {'is' if len(unknown) == 1 else 'are'} none of the checkpoint's: {shown}.",
            f"{_near(unknown[0], places)}Name the folders by WordNet ids, by the checkpoint's names or by the numbers "
            "of its classes, or say which is which in a table (--classes: rows such as cat,n02123045); classes that it "
            "has not learned are judged by vit-bench probe.",
        )
    if twice := [name for name in names if len(places[plain(name)]) > 1]:
        what = f"{twice[0]!r} is the name of classes {', '.join(map(str, places[plain(twice[0])]))} of the checkpoint."
        raise UserError(what, "Name that folder by its WordNet id, or say which it is in a table (--classes).")
    found = {name: places[plain(name)][0] for name in names}
    by_id = all(name == classifier.classes[number][0] for name, number in found.items()) and names[0].startswith("n")
    return found, "by WordNet id" if by_id else "by name"


def read(table: Path, names: Sequence[str], classifier: Classifier, *, where: str) -> Mapping[str, tuple[int, ...]]:
    """Read a table of classes, and return name of the set's class -> numbers of the checkpoint's classes. A first row
    that names no class of the set is taken as a header.

    Args:
        table: a CSV file.
        names: names of the set's classes.
        where: name of the set, for error messages.

    Raises:
        UserError: the table cannot be read, or names a class that the set or the checkpoint does not have.
    """
    places = _places(classifier)
    own = {plain(name): name for name in names}
    found: dict[str, tuple[int, ...]] = {}
    for at, row in enumerate(_rows(table)):
        if len(row) < 2 or not all(row[:2]):
            raise UserError(f"Row {at + 1} of {printable(table)} does not have two fields.", WRITE)
        name = own.get(plain(row[0]))
        if name is None and at == 0:
            continue
        if name is None:
            what = f"{printable(table)} names a class that {where} does not have: {row[0]!r}."
            raise UserError(what, f"{_near(row[0], own)}Take the row out, or correct it.")
        numbers = [_number(text.strip(), places, classifier, table=table, name=name) for text in row[1].split(BETWEEN)]
        found[name] = tuple(sorted({*found.get(name, ()), *numbers}))
    if not found:
        raise UserError(f"{printable(table)} names no class of {where}, such as {names[0]!r}.", WRITE)
    return found


def _rows(table: Path) -> list[list[str]]:
    """Return the rows of a CSV file as lists of texts, with blanks around fields removed.

    Raises:
        UserError: the file does not exist or cannot be read.
    """
    try:
        text = table.read_text(encoding="utf-8-sig")
        separator = max(SEPARATORS, key=text.partition("\n")[0].count)
        return [
            [cell.strip() for cell in row] for row in csv.reader(io.StringIO(text), delimiter=separator) if any(row)
        ]
    except FileNotFoundError as error:
        raise UserError(f"There is no table {printable(table)}.", WRITE) from error
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"{printable(table)} cannot be read as CSV in UTF-8: {error}.", WRITE) from error


def _number(text: str, places: Mapping[str, Sequence[int]], classifier: Classifier, *, table: Path, name: str) -> int:
    """Return the number of the checkpoint's class that a field of the table names.

    Args:
        text: the field: a WordNet id, a name or a number.
        places: name or WordNet id -> numbers of the checkpoint's classes with that name.
        name: name of the set's class in this row, for error messages.

    Raises:
        UserError: there is no such class, or more than one.
    """
    known = places.get(plain(text), ())
    if not known and text.isascii() and text.isdigit() and int(text) < classifier.num_classes:
        return int(text)
    if len(known) > 1:
        what = f"{printable(table)}: {text!r} is the name of classes {', '.join(map(str, known))} of the checkpoint."
        raise UserError(what, "Give its WordNet id or its number.")
    if not known:
        what = f"{printable(table)} says that {name!r} is {text!r}, which is no class of the checkpoint."
        raise UserError(
            what,
            f"{_near(text, places)}Give a WordNet id, a name, or a number from 0 to {classifier.num_classes - 1}.",
        )
    return known[0]


def _places(classifier: Classifier) -> dict[str, list[int]]:
    """Return each name and each WordNet id of the checkpoint's classes -> the numbers of the classes that have it."""
    places: dict[str, list[int]] = {}
    for number, known in enumerate(classifier.classes):
        for name in {plain(one) for one in known}:
            places.setdefault(name, []).append(number)
    return places


def _near(name: str, known: Mapping[str, object]) -> str:
    """Return a sentence with the up to two known names that are most like `name`, to begin a piece of advice with; ""
    if none is like it."""
    close = difflib.get_close_matches(plain(name), known, n=2)
    return f"Near: {', '.join(close)}. " if close else ""
