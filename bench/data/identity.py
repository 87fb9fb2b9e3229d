"""Digests of the images that a data set holds on this machine now, for sets whose name and revision do not determine
them.

A digest covers the content of every image (`ImageSet.content_keys_N`) with its class and split; names, order, format
and times of files make no difference. As long as the name, size and times of every file are unchanged, no file is
opened, because the cache holds the digest for them. Two other caches, of decoded files of more than 1 GB together
(`cache.fingerprint`) and of streamed files, notice a change only by size and modification time, which programs can set.
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

DIGITS = 16  # hexadecimal digits of a digest


def digest(name: str, *, root: Path | None) -> str | None:
    """Return the digest of a set's images, 16 hex digits; None if its name and revision determine the images, or if it
    is a published set that is not on this machine. `root`: folder with data sets that are not installed.

    Raises:
        UserError: the images are not on this machine, or cannot be read.
    """
    one = data_set(name)
    folders = one.places(DataName.parse(name).option, root=root) if one.places is not None else None
    if folders is None:
        return None
    listed = hashlib.sha256(repr((name, one.revision)).encode())
    for file in _files(folders):  # ImageNet has more than a million
        listed.update(repr(file).encode(errors="surrogateescape"))
    key = f"listing-{listed.hexdigest()[:DIGITS]}"
    stored = cache.arrays(key, lambda: {"digest": np.frombuffer(_read(name, root).encode(), dtype=np.uint8)})
    return stored["digest"].tobytes().decode()


def of_cells(*, root: Path | None) -> Callable[[Cell], dict[str, str]]:
    """Return a function: cell (a training run with its evaluations) -> {data set: digest} for the sets that the cell
    reads, except those that cannot be read or have no digest. Each digest is computed once, when it is first asked
    for."""

    @functools.cache
    def known(name: str) -> str | None:
        with contextlib.suppress(UserError):  # code that loads the set will report the error
            return digest(name, root=root)
        return None

    def of_cell(cell: Cell) -> dict[str, str]:
        names = (cell.data, *(task.data for task in cell.tasks))
        return {name: made for name in names if (made := known(name)) is not None}

    return of_cell


def difference(then: str, now: str) -> str:
    """Return in words how many images were added, removed or moved between two digests, `then` and `now`; without
    numbers if the cache no longer holds the hashes of images that the digests were made of."""
    known = (cache.stored(f"images-{one}") or {"rows_N2": np.empty((0, 2))} for one in (then, now))
    before, after = (Counter(map(tuple, stored["rows_N2"].tolist())) for stored in known)
    if not (before and after):
        return "other images, or in other classes"
    gone, new = before - after, after - before
    moved = (Counter(key for key, _ in gone.elements()) & Counter(key for key, _ in new.elements())).total()
    counts = {"added": new.total() - moved, "removed": gone.total() - moved, "in another class or split": moved}
    return join([f"{plural(number, 'image')} {what}" for what, number in counts.items() if number])


def _files(folders: Iterable[Path]) -> Iterator[tuple[str, int, int, int]]:
    """Yield (path below its folder, bytes, mtime in ns, ctime in ns) of every file in the folders; symbolic links are
    followed. Programs can set mtime, but not ctime, which also changes when mtime is set."""
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
    """Compute a set's digest from its images. The hashes of images that it is made of are kept in the cache, for
    `difference`."""
    rows_N2 = np.concatenate([_rows(load(name, split, root=root)) for split in SPLITS])
    rows_N2 = rows_N2[np.lexsort(rows_N2.T)]
    made = hashlib.sha256(rows_N2.tobytes()).hexdigest()[:DIGITS]
    cache.arrays(f"images-{made}", lambda: {"rows_N2": rows_N2})
    return made


def _rows(images: ImageSet) -> np.ndarray:
    """Return for every image a hash of its content, and a hash of its class and split: uint64 (N, 2)."""
    places = (f"{images.split}/{label}".encode() for label in images.class_names)
    places_K = np.array([int(hashlib.sha256(place).hexdigest()[:DIGITS], 16) for place in places], dtype="<u8")
    return np.stack([images.content_keys_N.astype("<u8"), places_K[images.labels_N]], axis=1)
