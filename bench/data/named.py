"""What the published sets of photographs share: images of many sizes, listed first, decoded once to one storage size.

After a colon comes the size at which a set is kept, as for folders: `flowers102:64px`, `dtd:224px:grey`. The whole
image is resized to a square, whatever its shape, as VTAB and the few-shot protocol do (task_adaptation, big_vision): of
a scene whose objects are counted nothing may be cut off.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from bench.core.errors import UserError
from bench.data import cache as _cache
from bench.data.decode import SUFFIXES, Item, Storage, decode_all
from bench.data.formats._source import Source, read_bytes
from bench.data.formats.images import ascii_name
from bench.data.image_set import ImageSet

WORDS = "{name}[:64px][:rgb|:grey]; the whole image is resized to a square of so many pixels (default {size}px)"
MAX_SIDE = 1024

List = Callable[[str, Path], tuple[Source, Sequence[str]]]


def image_set(about: ModuleType | Any, split: str, *, root: Path | None, option: str, listed: List) -> ImageSet:
    """One split of a published set, decoded to the storage size that `option` asks for, and memory-mapped.

    Args:
        about: the set's module: NAME, REVISION, KIND, SIDE (pixels per side where the option says nothing), CHANNELS,
            HOW_TO_GET.
        listed: (split, data root) -> (its images, not yet decoded; the names of its classes).

    Raises:
        UserError: it is not there, a package that reads it is missing, the option is not understood.
    """
    storage = parse_option(about.NAME, option, size=about.SIDE, channels=about.CHANNELS)
    if root is None or not about.available(root):
        raise absent(about)
    source, names = _listed(about, split, root, listed)
    if not len(source.labels_N):
        raise UserError(f"Data set {about.NAME!r} holds no images of the {split} split below {root}.", about.HOW_TO_GET)
    settings = (about.NAME, about.REVISION, split, storage, tuple(names), source.labels_N.tobytes())
    build = partial(_build, source, storage=storage, where=f"{about.NAME}, {split}")
    stored = _cache.arrays(f"{about.NAME}-{_cache.fingerprint(settings, source.files)}", build)
    unreadable = json.loads(stored["facts"].tobytes())["unreadable"]
    return ImageSet(
        name=f"{about.NAME}:{option}" if option else about.NAME,
        split=split,
        images_NHWC=stored["images"],
        labels_N=stored["labels"],
        class_names=tuple(names),
        kind=about.KIND,
        source=f"published files; {unreadable} unreadable left out" if unreadable else "published files",
    )


def options(name: str, size: int) -> str:
    """What may follow the set's name: its file's OPTIONS."""
    return WORDS.format(name=name, size=size)


def absent(about: ModuleType | Any) -> UserError:
    """The error for a set that is not on this machine."""
    return UserError(f"Data set {about.NAME!r} is not on this machine.", about.HOW_TO_GET)


def parse_option(name: str, option: str, *, size: int, channels: int) -> Storage:
    """ "64px:grey" -> Storage(size=64, channels=1, whole=True).

    Raises:
        UserError: a word that is not known.
    """
    for word in option.split(":") if option else ():
        if match := re.fullmatch(r"(\d{1,4})px", word):
            size = int(match.group(1))
        elif word in ("rgb", "grey"):
            channels = 3 if word == "rgb" else 1
        else:
            raise UserError(f"{name}:{option}: {word!r} is not understood.", options(name, size) + ".")
    if not 8 <= size <= MAX_SIDE:
        raise UserError(f"{name}:{option}: a side of {size} pixels.", f"From 8 to {MAX_SIDE}.")
    return Storage(size=size, channels=channels, whole=True)


def _listed(about: Any, split: str, root: Path, listed: List) -> tuple[Source, Sequence[str]]:
    try:
        return listed(split, root)
    except UserError:
        raise
    except ImportError as error:
        needed = error.name or "a package"
        raise UserError(f"Reading data set {about.NAME!r} needs {needed}.", f"Run: pip install {needed}") from error
    except RuntimeError as error:  # torchvision's word for absent and for missing packages
        raise UserError(f"Data set {about.NAME!r} cannot be read: {error}.", about.HOW_TO_GET) from error
    except Exception as error:  # a damaged list of images can fail in any way
        what = f"Data set {about.NAME!r} below {root} cannot be read: {type(error).__name__}: {error}."
        raise UserError(what, "Get its files again. " + about.HOW_TO_GET) from error


def _build(source: Source, *, storage: Storage, where: str) -> dict[str, np.ndarray | _cache.Chunks]:
    decoded = decode_all(source.items(), count=len(source.labels_N), storage=storage, where=where)
    facts = json.dumps({"unreadable": len(decoded.unreadable), "named": decoded.unreadable[:100]})
    return {
        "images": _cache.rows(decoded.images_NHWC, np.arange(len(decoded.labels_N))),
        "labels": decoded.labels_N,
        "facts": np.frombuffer(facts.encode(), dtype=np.uint8),
    }


def files(paths: Sequence[Path], labels: Sequence[int]) -> Source:
    """Image files and their labels, in this order."""
    labels_N = np.array(labels, dtype=np.int64)

    def items() -> Iterator[Item]:
        for path, label in zip(paths, labels_N.tolist(), strict=True):
            yield Item(name=ascii_name(path), label=label, read=partial(read_bytes, path))

    return Source(items=items, labels_N=labels_N, files=tuple(paths))


def joined(*parts: Source) -> Source:
    """One source after another."""

    def items() -> Iterator[Item]:
        for part in parts:
            yield from part.items()

    labels_N = np.concatenate([part.labels_N for part in parts])
    return Source(items=items, labels_N=labels_N, files=tuple(path for part in parts for path in part.files))


def torchvision(name: str, root: Path, *splits: str) -> tuple[Source, tuple[str, ...]]:
    """What a class of torchvision lists, its splits one after another; without any, of a class that has none.

    A loader that opens nothing makes it give paths. Their order is that of their names within a split: some classes
    list a folder as the file system gives it.
    """
    from torchvision import datasets

    parts: list[Source] = []
    names: tuple[str, ...] = ()
    for split in splits or (None,):
        data = getattr(datasets, name)(root, **({"split": split} if split else {}), loader=Path)
        pairs = sorted((data[i] for i in range(len(data))), key=lambda pair: pair[0].as_posix())
        parts.append(files([path for path, _ in pairs], [label for _, label in pairs]))
        names = tuple(map(str, data.classes))
    return joined(*parts), names


def class_folders(folder: Path) -> tuple[list[Path], list[int], tuple[str, ...]]:
    """(images, labels, class names) of a folder of images per class, in the order of their names."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    paths = {
        name: sorted(p for p in (folder / name).iterdir() if p.name.lower().endswith(SUFFIXES) and p.name[0] != ".")
        for name in names
    }
    labels = [label for label, name in enumerate(names) for _ in paths[name]]
    return [path for name in names for path in paths[name]], labels, tuple(names)


def part_of(paths: Sequence[Path], labels: Sequence[int], *, keep: Callable[[int, int], bool]) -> Source:
    """The images that a split keeps, where none is published: `keep(rank, count)` within each class.

    Ranks follow a hash of the file's name, so the split is the same on every machine.
    """
    labels_N = np.array(labels, dtype=np.int64)
    place = [hashlib.sha256("/".join(path.parts[-2:]).encode(errors="surrogateescape")).digest() for path in paths]
    order = sorted(range(len(paths)), key=lambda i: (int(labels_N[i]), place[i]))
    counts = np.bincount(labels_N)
    rank_N = np.empty(len(paths), dtype=np.int64)
    rank_N[order] = np.concatenate([np.arange(count) for count in counts]) if len(paths) else 0
    kept = [i for i in range(len(paths)) if keep(int(rank_N[i]), int(counts[labels_N[i]]))]
    return files([paths[i] for i in kept], labels_N[kept].tolist())


def last_fifth(split: str) -> Callable[[int, int], bool]:
    """Of every class four fifths for training, one for testing: VTAB's 60/20/20 with its validation part in "train"."""
    return lambda rank, count: (rank >= count - round(0.2 * count)) == (split == "test")


def all_below(root: Path | None, *paths: str) -> bool:
    """Whether all of these are there."""
    return root is not None and all((root / path).exists() for path in paths)
