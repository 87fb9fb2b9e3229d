"""Groups of images that belong together, such as those of one patient, camera or site: each group is either trained on
or tested on as a whole.

A file lists the groups in columns `file` (path below the set's folder) and `group`. An image that it does not name is a
group of its own. `groups.csv` in the folder is used without being asked for; another file is named with `--groups`.
Which groups are held out depends on hashes of their names and on numbers of images, but neither on pixels nor on the
order of rows. A set's name ends in a hash of its groups ("folder:photos:groups-0a1b2c3d4e"), so that with other groups
it is another set.
"""

from __future__ import annotations

import hashlib
import math
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from bench.core.data_settings import GROUPS
from bench.core.errors import UserError
from bench.core.formatting import plural
from bench.data.readable import printable
from bench.data.source import FolderContents, image_files
from bench.data.subset import HELD_OUT, mix

FILE, COLUMNS = "groups.csv", ["file", "group"]
WORD = re.compile(r"groups-[0-9a-f]{10}")
MAX_NAMED = 3  # files or groups that an error message names


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The contents of a file of groups (images that belong together, such as those of one patient).

    Attributes:
        path: path of the file.
        of: path of an image below the set's folder -> name of its group.
        word: the part of the set's name that identifies the groups, "groups-" and a hash.
    """

    path: Path
    of: Mapping[str, str]
    word: str


def read(path: Path) -> Groups:
    """Return the groups that a CSV file lists.

    Raises:
        UserError: the file cannot be read, lacks a column, or puts an image into two groups.
    """
    try:
        table = pd.read_csv(path, usecols=COLUMNS, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        fix = f"Write CSV with a header, the columns {' and '.join(COLUMNS)}, and files as they lie below the folder."
        raise UserError(f"The groups {printable(path)} cannot be read: {error}.", fix) from error
    table = table.apply(lambda column: column.str.strip())
    table["file"] = table["file"].map(posixpath.normpath)
    table = table[table["group"] != ""].drop_duplicates().sort_values(COLUMNS)
    if twice := table.loc[table["file"].duplicated(), "file"].tolist():
        what = f"{printable(path)} puts {plural(len(twice), 'image')} into several groups: {_some(twice)}."
        raise UserError(what, "An image is in one group: join groups that share images.")
    of = dict(zip(table["file"], table["group"], strict=True))
    return Groups(path=path, of=of, word=f"groups-{hashlib.sha256(repr(of).encode()).hexdigest()[:10]}")


def of_folder(folder: Path, word: str) -> Groups | None:
    """Return the groups of the images in a folder.

    Args:
        word: the part of the set's name that identifies its groups, such as "groups-0a1b2c3d4e": the file with this
            hash is used, the folder's `groups.csv` or the one that was named with `--groups`. With "", `groups.csv` is
            used, and None is returned without such a file.

    Raises:
        UserError: a file cannot be read (see `read`), or none has the groups that the name asks for.
    """
    if not word:
        return read(folder / FILE) if (folder / FILE).is_file() else None
    paths = [path for path in (folder / FILE, Path(os.environ.get(GROUPS, "."))) if path.is_file()]
    chosen = next((groups for groups in map(read, paths) if groups.word == word), None)
    if chosen is None:
        what = (
            f"{folder} has other groups than {word}: {' and '.join(map(printable, paths)) or 'the file'} has changed."
        )
        fix = f"Put the file back, or name it with --groups. Without :{word} in its name the set has today's groups."
        raise UserError(what, fix)
    return chosen


def divide(contents: FolderContents, folder: Path, groups: Groups) -> FolderContents:
    """Return a folder's images with the group of each. If the folder is not divided into training and test images, some
    groups become the test images (`hold_out`).

    Raises:
        UserError: the images are not separate files; the groups name files that are missing; a group has images in both
            of the folder's own splits; or no division leaves every class images on both sides.
    """
    source = contents.sources.get("all")
    parts = [np.full(len(each), part) for part, each in contents.sources.items()]
    part_N, labels_N = (np.concatenate(x) for x in (parts, [each.labels_N for each in contents.sources.values()]))
    files = [file for each in contents.sources.values() for file in each.files]
    several = [row for each in contents.sources.values() for row in each.several or ()]
    names = [Path(os.path.relpath(file, folder)).as_posix() for file in files]
    if len(files) != len(part_N):
        what = f"{groups.path}: groups are of image files, and {folder} holds {contents.format}."
        raise UserError(what, "Keep a folder of image files per class.")
    listed = set(names)
    # a file that is not an image of the set may be listed; a path out of the folder, even to one of its images, may not
    if unknown := [
        name
        for name in groups.of
        if name not in listed and (name.startswith(("/", "..")) or not (folder / name).is_file())
    ]:
        what = f"{groups.path} names {plural(len(unknown), 'file')} that {folder} does not have: {_some(unknown)}."
        raise UserError(what, f"Write each as it lies below {folder}, such as {names[0]}, or leave it out.")
    own = [name for name in names if name not in groups.of]
    of_N = np.array([f"group {groups.of[name]}" if name in groups.of else f"image {name}" for name in names])
    groups_N = np.array([_hash(text) for text in of_N.tolist()], dtype=np.uint64)
    where = f"{folder}, by {groups.path}"
    if source is not None:
        test_N = hold_out(labels_N, groups_N, classes=contents.class_names, where=where)
        part_N = np.where(test_N, "test", "train")
    tested_N = part_N == "test"
    if crossing := sorted({*of_N[tested_N].tolist()} & {*of_N[~tested_N].tolist()}):
        what = f"{where}: {plural(len(crossing), 'group')} in both splits of the folder: {_some(crossing)}."
        if contents.words:  # a column of a table of labels has divided the images into splits
            what = f"{where}: {plural(len(crossing), 'group')} in both splits of the table: {_some(crossing)}."
            fix = "Give the rows of each one split; or take the column of splits away, to have the groups divided."
            raise UserError(what, fix)
        raise UserError(what, "Move each to one side; or give the images without train/ and test/, to be divided.")
    sources = {}
    for part in ("train", "test"):
        rows_M = np.flatnonzero(part_N == part)
        made = image_files([files[i] for i in rows_M.tolist()], labels_N[rows_M])
        mine = tuple(several[i] for i in rows_M.tolist()) if several else None
        sources[part] = replace(made, groups_N=groups_N[rows_M], several=mine)
    tested = (
        f"{len(np.unique(groups_N[tested_N])):,} of {plural(len(np.unique(groups_N)), 'group')} held out for testing"
    )
    tested += f" ({tested_N.sum():,} of {plural(len(files), 'image')})"
    tested += f", {plural(len(own), 'image')} without a group among them" if own else ""
    return replace(
        contents,
        sources=sources,
        format=f"{contents.format}; {tested}",
        words=f"{contents.words} {groups.word}".strip(),
    )


def hold_out(labels_N: np.ndarray, groups_N: np.ndarray, *, classes: Sequence[str], where: str) -> np.ndarray:
    """Choose whole groups of images for testing, about the fraction HELD_OUT of each class; return bool (N,), True for
    test images.

    Args:
        classes: names of the classes, in label order.
        where: name of the images in messages.

    Raises:
        UserError: no division leaves every class images on both sides, for example if all of a class are in one group.
    """
    total_K = np.bincount(labels_N, minlength=len(classes))
    test_N = nearest(labels_N, groups_N, np.maximum(1, np.round(HELD_OUT * total_K)))
    held_K = np.bincount(labels_N[test_N], minlength=len(classes))
    if not held_K.all():
        label = int(np.argmin(held_K))
        of = plural(len(np.unique(groups_N[labels_N == label])), "group")
        what = f"{where}: the {total_K[label]} images of class {classes[label]} are of {of}; no division of the groups"
        raise UserError(
            f"{what} was found that leaves every class images to learn and to test.", "Add images of others."
        )
    return test_N


def nearest(labels_N: np.ndarray, groups_N: np.ndarray, wanted_K: np.ndarray) -> np.ndarray:
    """Choose whole groups of images to hold out, with about `wanted_K` images of each class in them. Return bool (N,),
    True for held-out images.

    Groups are visited in the order of a hash, and one is held out if that brings the numbers of held-out images per
    class nearer to `wanted_K`. Then, for each class without any held-out image, one more group is held out: the one
    that takes these numbers least far from `wanted_K`. Some images of every class are always left.
    """
    keys_G, group_N = np.unique(groups_N, return_inverse=True)
    total_K, number = np.bincount(labels_N, minlength=len(wanted_K)), len(wanted_K)
    scale_K, held_K, test_G = np.maximum(1, wanted_K), 0 * total_K, np.zeros(len(keys_G), bool)
    members = np.split(labels_N[np.argsort(group_N, kind="stable")], np.cumsum(np.bincount(group_N))[:-1])

    def gain(group: int) -> float:
        after_K = held_K + np.bincount(members[group], minlength=number)
        if ((after_K >= total_K) & (after_K > held_K)).any():
            return -math.inf  # a class would have no training images left
        return float(((np.abs(held_K - wanted_K) - np.abs(after_K - wanted_K)) / scale_K).sum())

    in_order = np.argsort(mix(keys_G, "held-out"), kind="stable").tolist()
    for label in (None, *np.flatnonzero(wanted_K).tolist()):
        able = in_order if label is None else [] if held_K[label] else [g for g in in_order if label in members[g]]
        for group in able if label is None else sorted(able, key=gain, reverse=True)[:1]:
            if (nearer := gain(group)) > 0 or (label is not None and nearer > -math.inf):
                test_G[group] = True
                held_K += np.bincount(members[group], minlength=number)
    return test_G[group_N]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest(), "little")


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(printable, names[:MAX_NAMED])) + (", …" if len(names) > MAX_NAMED else "")
