"""Tables that give the labels of images, instead of a folder per class.

A row names an image file and its class; other columns may name its split, and the group of images that it belongs to
(`bench.data.groups`). Tables are CSV (with or without a header), JSON Lines or Parquet. `labels.csv` in the folder of
the images is used without being asked for, and so is `metadata.csv`, in the form of `imagefolder` in Hugging Face's
package `datasets`; another table is named with `--labels`.

Columns are recognised by their names and by the files that exist; the user is told which were recognised, and
`--label-columns` chooses others. The user is told of every row and image that is left out. A set's name ends in a hash
of the table's contents ("folder:photos:labels-0a1b2c3d4e"), so that with other labels it is another set.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.core.data_settings import LABELS
from bench.core.errors import UserError, unknown
from bench.core.formatting import join, plural
from bench.data.formats.images import NO_CLASSES
from bench.data.readable import printable
from bench.data.source import SPLIT_WORDS, FolderContents, checked_names, image_files, is_image

WORD = re.compile(r"labels-[0-9a-f]{10}")
ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet")
OWN, METADATA = "labels", "metadata"  # names, without suffix, of tables that are used without being asked for
FILES = ("file_name", "filename", "file", "path", "filepath", "image", "image_path", "img", "image_id", "id")
LABEL_NAMES = ("label", "class", "category", "target", "species", "class_name", "label_name", "diagnosis", "dx", "y")
SEVERAL_NAMES = ("labels", "classes", "categories", "tags", "finding_labels")
SPLITS = ("split", "set", "subset", "partition", "phase")
GROUPS = ("group", "group_id", "patient", "patient_id", "subject", "subject_id", "lesion_id", "camera", "camera_id")
SEPARATORS = "|;,"  # possible separators of labels of one image; the first of them that occurs is used
FEW = 10  # the user is told of classes with fewer images than this, because at most one of them is tested
MAX_BYTES = 2 << 30  # largest table that is read
MAX_NAMED = 3  # files or labels that an error message names
LOOKED_AT = 200  # rows that are examined to find the column of files
COLUMN = "column {}"  # the name given to a column without a header
WRITE = "Write a table with a header, a row per image, and files as they lie below the folder: file,label."

Asked = Mapping[str, Sequence[str]]
"""One of `bench.core.data_settings.ROLES` -> the columns that the user has named for it."""


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The labels of a folder's images.

    Attributes:
        path: path of the table, for messages.
        files: paths, relative to the folder, of the images that have a label; in alphabetical order.
        labels: labels of each file: any number if `several` is set, one otherwise.
        splits: "train" or "test" for each file; "all" for every file if the table does not divide them.
        groups: file -> its group, for files that have one.
        several: whether an image may have several labels, or none.
        word: the part of the set's name that identifies the labels, "labels-" and a hash.
        said: phrases for the user on how the table was read and what was left out.
    """

    path: Path
    files: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    splits: tuple[str, ...]
    groups: Mapping[str, str] = field(default_factory=dict)
    several: bool = False
    word: str
    said: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Phrases for the user on how the table was read, what was left out, and which classes have few images."""
        counts = Counter(label for row in self.labels for label in row)
        word = ("label", "labels") if self.several else ("class", "classes")
        held = f"{plural(len(self.files), 'image')} of {plural(len(counts), *word)}"
        if bare := sum(not row for row in self.labels):
            held += f", {bare:,} of them without any"
        few = sorted((number, name) for name, number in counts.items() if number < FEW)
        if not few:
            return *self.said, held
        named = ", ".join(f"{printable(name)} {number}" for number, name in few[:MAX_NAMED])
        more = ", …" if len(few) > MAX_NAMED else ""
        return *self.said, held, f"{plural(len(few), *word)} of fewer than {FEW} images: {named}{more}"


# -- which table -------------------------------------------------------------------------------------------------------


def _remembered() -> tuple[Path | None, Asked]:
    said = json.loads(os.environ.get(LABELS) or "{}")
    return (Path(said["path"]) if said.get("path") else None), said.get("columns", {})


def own_tables(folder: Path) -> list[Path]:
    """Return the paths of the tables of labels that are used without being asked for: `labels.csv`, or else
    `metadata.csv` in the folder or in the folders directly below it. If there are tables of several formats, those of
    the first in ENDINGS are used. An empty list if there are none."""
    for ending in ENDINGS:
        if (path := folder / f"{OWN}{ending}").is_file():
            return [path]
    for ending in ENDINGS:
        places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))]
        if found := [path for place in places if (path := place / f"{METADATA}{ending}").is_file()]:
            return found
    return []


def of_folder(folder: Path, word: str) -> Labels | None:
    """Return the labels of the images in a folder. `word`: the part of the set's name that identifies its labels, such
    as "labels-0a1b2c3d4e", or "" for the labels of a table in the folder; None if there is no such table.

    Raises:
        UserError: a table cannot be read (see `read`), or none has the labels that the name asks for.
    """
    named, asked = _remembered()
    own = own_tables(folder)
    if not word:
        return read(own, folder, asked) if own else None
    candidates = [paths for paths in (own, [named] if named else []) if paths]
    found = [labels for paths in candidates if (labels := read(paths, folder, asked)) is not None]
    chosen = next((labels for labels in found if labels.word == word), None)
    if chosen is None:
        changed = " and ".join(printable(labels.path) for labels in found) or "the table"
        what = f"{folder} has other labels than {word}: {changed} has changed, or is not there."
        fix = f"Put the table back, or name it with --labels. Without :{word} in its name the set has today's labels."
        raise UserError(what, fix)
    return chosen


# -- the table ---------------------------------------------------------------------------------------------------------


def read(paths: Sequence[Path], folder: Path, asked: Asked | None = None) -> Labels | None:
    """Read the labels in one table, or in several that each belong to the folder of a split.

    Args:
        paths: the tables.
        folder: the folder of the images.
        asked: columns that the user has named; None for those given to `remember_labels`.

    Returns:
        The labels. None for a `metadata.csv` without a column that is known to hold labels, since it may hold captions;
        and for a folder's own table if the folder holds no image files.

    Raises:
        UserError: a table cannot be read; it names a file that does not exist; it spells a label in two ways; ….
    """
    asked = _remembered()[1] if asked is None else asked
    images = _images(folder)
    if not images.paths and paths == own_tables(folder):  # for example a table beside shards
        return None
    if not images.paths:
        raise UserError(f"{folder} holds no images.", "Name the folder that the files of the table lie in.")
    tables = [_table(path, images) for path in paths]
    path, table = paths[0], pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
    if table.empty:
        raise UserError(f"{printable(path)} has no rows.", WRITE)
    chosen = _columns(table, path, asked, folder, images)
    if chosen is None:
        return None
    labels = _labels_of(table, chosen.labels, several=chosen.several, path=path)
    named_N = np.array([bool(one) for one in labels]) | chosen.several
    if (rows := int((~named_N).sum())) == len(table):
        raise UserError(f"{printable(path)} holds no label in column {chosen.labels[0]!r}.", WRITE)
    left_out = [f"{plural(rows, 'row')} without a label left out"] if rows else []
    kept = np.flatnonzero(named_N).tolist()
    table, labels, files = table.iloc[kept], [labels[i] for i in kept], [chosen.files[i] for i in kept]
    _check_rows(files, labels, path, several=chosen.several)
    splits, unused = _splits_of(table, chosen.split, path)
    left_out += unused
    of_file = {file: (label, split) for file, label, split in zip(files, labels, splits, strict=True) if split}
    if spare := len(images.paths) - len(set(chosen.files)):
        left_out.append(f"{plural(spare, 'image')} without a row left out")
    groups = dict(zip(files, table[chosen.group].str.strip(), strict=True)) if chosen.group else {}
    groups = {file: group for file, group in sorted(groups.items()) if group and file in of_file}
    ordered = sorted(of_file)
    made = [(file, of_file[file], groups.get(file, "")) for file in ordered]
    digest = hashlib.sha256(repr((chosen.several, made)).encode(errors="surrogateescape")).hexdigest()[:10]
    labelled = Labels(
        path=path,
        files=tuple(ordered),
        labels=tuple(of_file[file][0] for file in ordered),
        splits=tuple(of_file[file][1] for file in ordered),
        groups=groups,
        several=chosen.several,
        word=f"labels-{digest}",
        said=(chosen.said(path), *left_out),
    )
    _check_classes(labelled)
    return labelled


@dataclass(frozen=True, kw_only=True)
class _Images:
    """The images of a folder.

    Attributes:
        folder: path of the folder.
        paths: paths of all images, relative to the folder.
        by_name: file name -> paths of the images with this name.
        without_ending: path without its suffix -> paths of the images with this path.
        by_stem: file name without its suffix -> paths of the images with this name.
    """

    folder: Path
    paths: frozenset[str]
    by_name: Mapping[str, list[str]]
    without_ending: Mapping[str, list[str]]
    by_stem: Mapping[str, list[str]]


def _images(folder: Path) -> _Images:
    paths = list[str]()
    for where, below, names in os.walk(folder, followlinks=True):
        below[:] = sorted(name for name in below if name not in NO_CLASSES and not name.startswith("."))
        inside = Path(os.path.relpath(where, folder)).as_posix()
        paths += [posixpath.normpath(f"{inside}/{n}") for n in names if is_image(n) and not n.startswith(".")]

    def by(key: Callable[[str], str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in paths:
            found.setdefault(key(path), []).append(path)
        return found

    return _Images(
        folder=folder,
        paths=frozenset(paths),
        by_name=by(posixpath.basename),
        without_ending=by(lambda path: posixpath.splitext(path)[0]),
        by_stem=by(lambda path: posixpath.splitext(posixpath.basename(path))[0]),
    )


Rule = Callable[[str, _Images, Path], Sequence[str]]
"""(text in a row, the images, the folder of the table) -> paths of the images that the text may mean."""
RULES: dict[str, Rule] = {  # way to write paths, for people -> rule that finds the image; one rule is used for all rows
    "": lambda text, images, _: [path for path in [posixpath.normpath(text)] if path in images.paths],
    "as it lies beside the table": lambda text, images, beside: [
        path for path in [Path(os.path.relpath(beside / text, images.folder)).as_posix()] if path in images.paths
    ],
    "without an ending": lambda text, images, _: images.without_ending.get(posixpath.normpath(text), ()),
    "by name alone": lambda text, images, _: images.by_name.get(posixpath.basename(text), ()),
    "by name alone, without an ending": lambda text, images, _: images.by_stem.get(posixpath.basename(text), ()),
}


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """The columns of a table that are used.

    Attributes:
        file: column that names the image.
        how: a key of RULES, the way in which the column names images.
        files: path of the image of each row, relative to the folder.
        labels: columns of labels: one, or one column of 0 and 1 per label.
        several: whether an image may have several labels, or none.
        split, group: columns of splits and groups; "" without.
    """

    file: str
    how: str
    files: list[str]
    labels: tuple[str, ...]
    several: bool
    split: str = ""
    group: str = ""

    def said(self, path: Path) -> str:
        """Return a phrase that tells the user how the table at `path` was read."""
        labels = join(self.labels) if len(self.labels) <= MAX_NAMED else f"{len(self.labels)} columns of 0 and 1"
        taken = {"file": self.file, "labels" if self.several else "label": labels}
        taken |= {"split": self.split, "group": self.group}
        read_as = ", ".join(f"{role} = {column}" for role, column in taken.items() if column)
        return f"labels from {printable(path.name)} ({read_as})" + (f", files {self.how}" if self.how else "")


def _table(path: Path, images: _Images) -> pd.DataFrame:
    """Read a table of labels of `images`. All cells are text, "" for missing values, except lists of labels, which are
    tuples. In `metadata.csv` in the folder of a split, files are prefixed with that folder, and a column with the split
    is added.

    Raises:
        UserError: the file is not a table, or too large.
    """
    try:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise UserError(f"{printable(path)} has {size:,} bytes.", f"A table of labels may have {MAX_BYTES:,}.")
        if path.suffix == ".parquet":
            table = _parquet(path)
        elif path.suffix in (".jsonl", ".ndjson", ".json"):
            text = path.read_text(encoding="utf-8-sig")
            rows = (
                json.loads(text)
                if text.lstrip().startswith("[")
                else map(json.loads, filter(str.strip, text.splitlines()))
            )
            table = pd.DataFrame(list(rows), dtype=object)
        else:
            table = _csv(path, images)
    except FileNotFoundError as error:
        raise UserError(f"There is no table {printable(path)}.", "Name a table of labels that is there.") from error
    except UnicodeDecodeError as error:
        what = f"{printable(path)} is not text in UTF-8."
        raise UserError(what, "Save it as CSV in UTF-8 (in spreadsheets: CSV UTF-8), or as Parquet.") from error
    except (OSError, ValueError, TypeError, csv.Error, RecursionError) as error:
        raise UserError(f"The labels {printable(path)} cannot be read: {error}.", WRITE) from error
    table = table.rename(columns=lambda name: str(name).strip())
    if repeated := sorted({name for name in table.columns if (table.columns == name).sum() > 1}):
        raise UserError(f"{printable(path)} has several columns named {repeated[0]!r}.", "Give each a name of its own.")
    for name in table.columns:
        table[name] = table[name].map(_cell)
    below = Path(os.path.relpath(path.parent, images.folder)).as_posix()
    if path.stem == METADATA and below != "." and not below.startswith(".."):
        column = next((name for name in table.columns if _plain(name) in _plains(FILES)), "")
        if column:
            table[column] = [posixpath.join(below, text) for text in table[column]]
        words = {*SPLIT_WORDS["train"], *SPLIT_WORDS["test"]}
        if below in words and not any(_plain(name) in _plains(SPLITS) for name in table.columns):
            table["split"] = below
    return table


def _csv(path: Path, images: _Images) -> pd.DataFrame:
    """Read a table whose fields are separated by commas, semicolons, tabs, vertical bars or blanks. The first line is
    taken for a row instead of a header if it names an image.

    Raises:
        UserError: a row has more fields than the first.
    """
    text = path.read_text(encoding="utf-8-sig")
    first = text.partition("\n")[0]
    separator = max(",;\t|", key=first.count)
    if separator not in first:
        separator = " " if " " in first.strip() else ","
    rows = [row for row in csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True) if any(row)]
    if not rows:
        return pd.DataFrame()
    width = len(rows[0])
    for number, row in enumerate(rows, start=1):
        if len(row) > width and any(map(str.strip, row[width:])):
            raise UserError(
                f"Row {number} of {printable(path)} has {len(row)} fields, the first has {width}.",
                "Quote fields that hold the separator.",
            )
    rows = [[*row[:width], *[""] * (width - len(row))] for row in rows]
    usual = {_plain(name) for names in (FILES, LABEL_NAMES, SEVERAL_NAMES, SPLITS, GROUPS) for name in names}
    headless = any(is_image(cell) for cell in rows[0]) or (
        not usual & {_plain(cell) for cell in rows[0]}
        and any(rule(cell, images, path.parent) for cell in rows[0] if cell for rule in RULES.values())
    )
    names = [COLUMN.format(i) for i in range(1, width + 1)] if headless else rows.pop(0)
    names = [name.strip() or COLUMN.format(i) for i, name in enumerate(names, start=1)]
    return pd.DataFrame(rows, columns=names, dtype=object)


def _parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow.parquet
    except ImportError as error:
        what = f"{printable(path)}: Parquet is read by pyarrow, which is not installed."
        raise UserError(what, "pip install pyarrow, or save the table as CSV.") from error
    table = pyarrow.parquet.read_table(path)
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    return pd.DataFrame(columns, dtype=object)


def _cell(value: Any) -> Any:
    """Return the value of a cell as text without surrounding blanks: 3.0 becomes "3", a list becomes a tuple of
    texts."""
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(str(_cell(one)) for one in value)
    if value is None or (isinstance(value, float) and value != value) or value is pd.NA or value is pd.NaT:
        return ""
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _plain(name: Any) -> str:
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def _plains(names: Iterable[str]) -> list[str]:
    return [_plain(name) for name in names]


# -- columns -----------------------------------------------------------------------------------------------------------


def _columns(table: pd.DataFrame, path: Path, asked: Asked, folder: Path, images: _Images) -> _Columns | None:
    """Choose the column for each role: the one that the user named, or else the likeliest. Return None for a
    `metadata.csv` without a column that is known to hold labels.

    Raises:
        UserError: a named column does not exist; no column names images; no column, or several, may hold labels.
    """
    for names in asked.values():
        for name in names:
            if name not in table.columns:
                raise unknown(f"column of {printable(path)}", name, map(str, table.columns))
    text = [str(name) for name in table.columns if not table[name].map(lambda cell: isinstance(cell, tuple)).any()]
    file, how = _file_column(table, path, asked.get("file", text)[:None], folder, images)
    taken = [file, *(name for role in ("split", "group") for name in asked.get(role, ()))]

    def likely(names: Sequence[str], fits: Callable[[str], bool] = lambda column: True) -> str:
        known = _plains(names)
        rest = [str(name) for name in table.columns if name not in taken and _plain(name) in known]
        return next((name for name in sorted(rest, key=lambda name: known.index(_plain(name))) if fits(name)), "")

    words = {"", *SPLIT_WORDS["train"], *SPLIT_WORDS["test"]}
    split = asked["split"][0] if "split" in asked else likely(SPLITS, lambda c: {*table[c].map(str.lower)} <= words)
    group = asked["group"][0] if "group" in asked else likely(GROUPS, lambda c: c in text)
    taken += [split, group]
    labels, several = tuple(asked.get("label", ())), False
    if asked.get("labels"):
        labels, several = tuple(asked["labels"]), True
    elif not labels:
        labels = tuple(name for name in [likely(LABEL_NAMES) or likely(SEVERAL_NAMES)] if name)
        rest = [str(name) for name in table.columns if name not in taken]
        if not labels and path.stem == METADATA:
            return None
        if not labels and len(rest) > 1 and all({*table[name]} <= {"", "0", "1"} for name in rest):
            labels = tuple(rest)
            several = bool((table[rest] == "1").sum(axis=1).ne(1).any())
        elif not labels:
            if len(rest) != 1:
                held = f"besides {file!r} it has {', '.join(map(repr, rest))}" if rest else f"it has {file!r} alone"
                what = f"Which column of {printable(path)} is the label? {held[:1].upper()}{held[1:]}."
                raise UserError(what, "Name it: --label-columns label=COLUMN (labels=COLUMN for several an image).")
            labels, several = (rest[0],), _holds_several(table[rest[0]], plural_name=False)
        elif len(labels) == 1:
            several = _holds_several(table[labels[0]], plural_name=_plain(labels[0]) in _plains(SEVERAL_NAMES))
    files = [rule_of(how, text, images, path.parent) for text in table[file]]
    return _Columns(
        file=file,
        how=how,
        files=_all_there(files, table[file], path, images),
        labels=labels,
        several=several,
        split=split,
        group=group,
    )


def rule_of(how: str, text: str, images: _Images, beside: Path) -> Sequence[str]:
    """Return the images that the `text` of a row may mean by the rule RULES[how]. Backslashes in a text that means no
    image are read as Windows' separators of folders. `beside`: the folder of the table."""
    if not text:
        return ()
    found = RULES[how](text, images, beside)
    return found if found or "\\" not in text else RULES[how](text.replace("\\", "/"), images, beside)


def _file_column(
    table: pd.DataFrame, path: Path, columns: Sequence[str], folder: Path, images: _Images
) -> tuple[str, str]:
    """Return (column, key of RULES) by which most rows name an image of the folder; of equally good columns, the one
    with the likelier name.

    Raises:
        UserError: no column names any image.
    """
    some = table.iloc[np.unique(np.linspace(0, len(table) - 1, LOOKED_AT).astype(int))]
    known = _plains(FILES)
    found = [
        (sum(len(rule_of(how, text, images, path.parent)) == 1 for text in some[name]), -at, name, how)
        for name in sorted(columns, key=lambda name: known.index(_plain(name)) if _plain(name) in known else len(known))
        for at, how in enumerate(RULES)
    ]
    hits, _, name, how = max(found, key=lambda one: one[:2], default=(0, 0, "", ""))
    if not hits:
        first = next((name for name in columns if _plain(name) in known), columns[0] if columns else "")
        example = f" (the first {first!r} is {some[first].iloc[0]!r})" if first else ""
        what = f"No column of {printable(path)} names an image of {folder}{example}."
        raise UserError(what, f"Write files as they lie below it, such as {min(images.paths)}; or name another folder.")
    return name, how


def _all_there(files: Sequence[Sequence[str]], texts: Iterable[str], path: Path, images: _Images) -> list[str]:
    """Return the image of every row. `files`: the images that each row may mean; `texts`: what the rows say.

    Raises:
        UserError: a row means no image, or may mean several.
    """
    missing = [text for text, found in zip(texts, files, strict=True) if not found]
    twice = [text for text, found in zip(texts, files, strict=True) if len(found) > 1]
    if twice:
        what = f"{printable(path)} names {plural(len(twice), 'file')} that several folders have: {_some(twice)}."
        raise UserError(what, f"Write each as it lies below {images.folder}.")
    if missing:
        unread = [text for text in missing if text and (images.folder / text).is_file()]
        if unread:
            what = (
                f"{printable(path)} names {plural(len(unread), 'file')} that cannot be read as images: {_some(unread)}."
            )
            raise UserError(what, "Save them as JPEG or PNG, or take their rows out.")
        named = [text or "an empty cell" for text in missing]
        what = (
            f"{printable(path)} names {plural(len(named), 'file')} that {images.folder} does not have: {_some(named)}."
        )
        raise UserError(what, "Put the files there, or take their rows out.")
    return [found[0] for found in files]


def _holds_several(column: pd.Series, *, plural_name: bool) -> bool:
    """Whether a column holds several labels per image: as lists, or, if its name is a plural (`plural_name`), as text
    with separators."""
    if column.map(lambda cell: isinstance(cell, tuple)).any():
        return True
    return plural_name and bool(_separator(column))


def _separator(column: pd.Series) -> str:
    """Return the separator between the labels of an image; "" without one. A blank counts as separator if words recur:
    in "haze primary", "clear primary", but not in "great dane", "basset hound"."""
    for separator in SEPARATORS:
        if column.str.contains(separator, regex=False).any():
            return separator
    values = {text for text in column if text}
    words = {word for text in values for word in text.split()}
    return " " if any(" " in text for text in values) and len(words) < len(values) else ""


# -- rows --------------------------------------------------------------------------------------------------------------


def _labels_of(table: pd.DataFrame, columns: Sequence[str], *, several: bool, path: Path) -> list[tuple[str, ...]]:
    """Return the labels of every row, () for a row without any. `columns`: the column of labels, or one of 0 and 1 per
    label.

    Raises:
        UserError: a cell holds something other than expected, or a label is spelt in two ways.
    """
    if len(columns) > 1:
        if wrong := next((c for c in columns if not {*table[c]} <= {"", "0", "1"}), ""):
            raise UserError(f"Column {wrong!r} of {printable(path)} holds more than 0 and 1.", "Name a single column.")
        at = [(table[name] == "1").to_numpy() for name in columns]
        rows = [tuple(name for name, has_N in zip(columns, at, strict=True) if has_N[row]) for row in range(len(table))]
        return _one_spelling(rows, path)
    column = table[columns[0]]
    if not several:
        if column.map(lambda cell: isinstance(cell, tuple) and len(cell) != 1).any():
            what = f"{printable(path)} has rows with several labels in column {columns[0]!r}."
            raise UserError(what, f"Read it as such: --label-columns labels={columns[0]}.")
        texts = [cell[0] if isinstance(cell, tuple) else cell for cell in column]
        return _one_spelling([(text,) if text else () for text in texts], path)
    texts = column[~column.map(lambda cell: isinstance(cell, tuple))]
    separator = _separator(texts) if len(texts) else ""
    rows = []
    for cell in column:
        parts = cell if isinstance(cell, tuple) else cell.split(separator) if separator else [cell]
        rows.append(tuple(sorted({part.strip() for part in parts} - {""})))
    return _one_spelling(rows, path)


def _one_spelling(rows: list[tuple[str, ...]], path: Path) -> list[tuple[str, ...]]:
    """Return the rows after checking that no label is spelt in two ways. Single letters, and classes that `classes.txt`
    beside the table lists, are exempt: they may differ in case only.

    Raises:
        UserError: a label is spelt in two ways.
    """
    counts = Counter(label for row in rows for label in row)
    listed_in = path.parent / "classes.txt"
    listed = {*listed_in.read_text(encoding="utf-8").splitlines()} if listed_in.is_file() else set[str]()
    spelt: dict[str, str] = {}
    for label in sorted(counts, key=lambda label: -counts[label]):
        if (len(label) == 1 and label.isalpha()) or label in listed:
            continue
        other = spelt.setdefault(_spelling(label), label)
        if other != label:
            what = (
                f"{printable(path)} spells a label in two ways: {other!r} ({counts[other]:,}) and {label!r} "
                f"({plural(counts[label], 'image')})."
            )
            fix = f"Write one of them; if they are two classes, list both in {listed_in.name} beside the table."
            raise UserError(what, fix)
    return rows


def _spelling(label: str) -> str:
    """Return a normalised spelling: the same for "Red fox", "red_fox" and "red  fox", and for "1", "01" and "1.0"."""
    try:
        return repr(float(label))
    except ValueError:
        return re.sub(r"[\s_-]+", " ", unicodedata.normalize("NFKC", label).casefold()).strip()


def _check_rows(files: Sequence[str], labels: list[tuple[str, ...]], path: Path, *, several: bool) -> None:
    """Check that all rows of the same image have the same labels. `files`, `labels`: the image and the labels of each
    row.

    Raises:
        UserError: an image has different labels in different rows.
    """
    of: dict[str, tuple[str, ...]] = {}
    twice = [file for file, label in zip(files, labels, strict=True) if of.setdefault(file, label) != label]
    if twice:
        what = f"{printable(path)} gives {plural(len({*twice}), 'image')} different labels in different rows: "
        fix = "Keep one row per image" + ("." if several else "; several labels of one go into one cell, as cat|dog.")
        raise UserError(f"{what}{_some(sorted({*twice}))}.", fix)


def _splits_of(table: pd.DataFrame, column: str, path: Path) -> tuple[list[str], list[str]]:
    """Return (split of every row, phrases for the user on rows that are left out). A split is "train" or "test", "" for
    rows that are left out; it is "all" for every row if the table names no test rows, or if `column` is "".

    Raises:
        UserError: a word is not the name of a split, a row has no split, or no row is for training.
    """
    if not column:
        return ["all"] * len(table), []
    words = table[column].map(str.lower)
    known = {word: split for split, words in SPLIT_WORDS.items() for word in words}
    if strange := sorted({*words} - {*known, ""}):
        what = f"Column {column!r} of {printable(path)} names splits that are not known: {_some(strange)}."
        raise UserError(what, f"Write {' or '.join([*SPLIT_WORDS['train'][:1], *SPLIT_WORDS['test']])}.")
    if blank := int((words == "").sum()):
        raise UserError(f"{plural(blank, 'row')} of {printable(path)} are of no split ({column!r}).", "Fill them in.")
    here = {*words}
    used = {split: next((word for word in words if word in here), "") for split, words in SPLIT_WORDS.items()}
    if not used["train"]:
        raise UserError(
            f"{printable(path)} has no row of the split train ({column!r}).", "Name the rows to learn from."
        )
    if not used["test"]:
        return ["all"] * len(table), []
    made = [next((split for split, word in used.items() if word == text), "") for text in words]
    unused = sorted(here - {*used.values()})
    counted = join([f"{plural(int((words == word).sum()), 'image')} of {word}" for word in unused])
    return made, [f"{counted} left out, as {used['test']} is there"] if unused else []


def _check_classes(labels: Labels) -> None:
    """Check that there are classes to tell apart, and training images for every class that is tested.

    Raises:
        UserError: all images have the same label, or a label of test images has no training image.
    """
    counts: dict[str, Counter[str]] = {"train": Counter(), "test": Counter(), "all": Counter()}
    for row, split in zip(labels.labels, labels.splits, strict=True):
        counts[split].update(row)
    learned = counts["train"] + counts["all"]
    if len(learned) < (1 if labels.several else 2):
        what = f"{printable(labels.path)} has images of one label only: {_some(list(learned))}."
        raise UserError(what, "There is nothing to tell apart: give images of two labels or more.")
    if strange := sorted(counts["test"].keys() - learned.keys()):
        what = f"{printable(labels.path)} tests {plural(len(strange), 'label')} that no training image has: "
        raise UserError(f"{what}{_some(strange)}.", "Move images of each to the split train, or take them out.")


# -- the images --------------------------------------------------------------------------------------------------------


def contents(folder: Path, labels: Labels) -> FolderContents:
    """Return the images of a folder with the labels of a table. Samples are balanced by one class per image: its only
    label; where images may have several labels, its rarest one, and for an image without any, the set's most frequent
    label."""
    counts = Counter(label for row in labels.labels for label in row)
    names = sorted(counts)
    names = sorted(names, key=int) if all(name.isascii() and name.isdigit() for name in names) else names
    number = {name: at for at, name in enumerate(checked_names(names, where=labels.path))}
    most = max(names, key=lambda name: counts[name])
    sources = {}
    for part in ("train", "test", "all"):
        rows = [row for row, split in enumerate(labels.splits) if split == part]
        if rows:
            own = [min(labels.labels[row], key=lambda name: (counts[name], name), default=most) for row in rows]
            paths = [folder / labels.files[row] for row in rows]
            several = tuple(tuple(sorted(number[name] for name in labels.labels[row])) for row in rows)
            made = image_files(paths, [number[name] for name in own])
            sources[part] = replace(made, several=several if labels.several else None)
    return FolderContents(
        sources=sources,
        class_names=tuple(names),
        format="; ".join(["image files", *labels.notes]),
        words=labels.word,
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(printable, names[:MAX_NAMED])) + (", …" if len(names) > MAX_NAMED else "")
