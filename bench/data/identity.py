"""Which images a set holds here and now, of sets of which neither their name nor their revision says it.

A digest is over the content of every image (`ImageSet.content_keys_N`) with its class and split: names, order, format
and times of files make no difference. While no file has another name, size or time, none is opened: the cache knows the
digest of the files as they are. What it knows of more than 1 GB of decoded files (`cache.fingerprint`), and of streamed
ones, stays while they have their size and the time that programs can set.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from bench.core.errors import UserError
from bench.core.formatting import join, plural
from bench.data import cache
from bench.data.image_set import ImageSet
from bench.data.load import SPLITS, data_set, load
from bench.study.cell import Cell
from bench.study.names import DataName

DIGITS = 16  # hex, of a digest


def digest(name: str, *, root: Path | None) -> str | None:
    """The digest of a set's images; None where its name and revision say which they are, or a published set is not
    here.

    Raises:
        UserError: they are not here, or cannot be read.
    """
    one = data_set(name)
    folders = one.places(DataName.parse(name).option, root=root) if one.places is not None else None
    if folders is None:
        return None
    listed = hashlib.sha256(repr((name, one.revision)).encode())
    for file in _files(folders):  # of ImageNet more than a million
        listed.update(repr(file).encode(errors="surrogateescape"))
    key = f"listing-{listed.hexdigest()[:DIGITS]}"
    stored = cache.arrays(key, lambda: {"digest": np.frombuffer(_read(name, root).encode(), dtype=np.uint8)})
    return stored["digest"].tobytes().decode()


def of_cells(*, root: Path | None) -> Callable[[Cell], dict[str, str]]:
    """(cell) -> set -> digest, of the sets that it reads and that can be read; each as it is when first asked for."""

    @functools.cache
    def known(name: str) -> str | None:
        with contextlib.suppress(UserError):  # whoever uses them says why
            return digest(name, root=root)
        return None

    def of_cell(cell: Cell) -> dict[str, str]:
        names = (cell.data, *(task.data for task in cell.tasks))
        return {name: made for name in names if (made := known(name)) is not None}

    return of_cell


def difference(then: str, now: str) -> str:
    """How many images came and went between two digests, for people; without numbers where the cache has forgotten."""
    known = (cache.stored(f"images-{one}") or {"rows_N2": np.empty((0, 2))} for one in (then, now))
    before, after = (Counter(map(tuple, stored["rows_N2"].tolist())) for stored in known)
    if not (before and after):
        return "other images, or in other classes"
    gone, new = before - after, after - before
    moved = (Counter(key for key, _ in gone.elements()) & Counter(key for key, _ in new.elements())).total()
    counts = {"added": new.total() - moved, "removed": gone.total() - moved, "in another class or split": moved}
    return join([f"{plural(number, 'image')} {what}" for what, number in counts.items() if number])


def _files(folders: Iterable[Path]) -> Iterator[tuple[str, int, int, int]]:
    """(path below its folder, bytes, time of change, which programs can set, and of any change to the file or to that,
    which they cannot) of every file, also of folders that are linked to."""
    for folder in folders:
        seen = set[str]()
        for where, inside, names in os.walk(folder, followlinks=True):
            seen.add(os.path.realpath(where))
            inside[:] = sorted(name for name in inside if os.path.realpath(os.path.join(where, name)) not in seen)
            below = os.path.relpath(where, folder)
            for name in sorted(names):
                path = os.path.join(where, name)
                try:
                    status = os.stat(path)
                except OSError:
                    status = os.lstat(path)
                yield f"{below}/{name}", status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read(name: str, root: Path | None) -> str:
    """The digest, from the images; the cache keeps what it is of."""
    rows_N2 = np.concatenate([_rows(load(name, split, root=root)) for split in SPLITS])
    rows_N2 = rows_N2[np.lexsort(rows_N2.T)]
    made = hashlib.sha256(rows_N2.tobytes()).hexdigest()[:DIGITS]
    cache.arrays(f"images-{made}", lambda: {"rows_N2": rows_N2})
    return made


def _rows(images: ImageSet) -> np.ndarray:
    """uint64 (N, 2): the content of every image, and its class and split."""
    places = (f"{images.split}/{label}".encode() for label in images.class_names)
    places_K = np.array([int(hashlib.sha256(place).hexdigest()[:DIGITS], 16) for place in places], dtype="<u8")
    return np.stack([images.content_keys_N.astype("<u8"), places_K[images.labels_N]], axis=1)
