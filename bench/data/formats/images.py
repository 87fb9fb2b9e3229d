"""Image files in one folder per class (ImageNet's layout), with or without folders for the splits above them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from bench.core.errors import UserError
from bench.data.decode import SUFFIXES, Item
from bench.data.formats._source import SPLIT_WORDS, Found, Source, checked_names, read_bytes

NAME = "image folder"


def recognises(names: set[str]) -> bool:
    """Whatever else a folder holds, this format is tried last."""
    return True


def find(folder: Path) -> Found:
    """Class folders below `folder`, or below its folders "train" and "test" (or "val", "valid", "validation").

    Files whose name starts with "." or does not end like an image's are passed over.

    Raises:
        UserError: no class folders, a class without images, a test class that is not a training class, hostile names.
    """
    splits = {
        split: next((folder / word for word in words if _folders(folder / word)), None)
        for split, words in SPLIT_WORDS.items()
    }
    train, test = splits["train"], splits["test"]
    roots = {"train": train, "test": test} if train and test else {"all": train or folder}
    classes = {split: _folders(root) for split, root in roots.items() if root}
    first = next(iter(classes.values()))
    if not first:
        raise UserError(
            f"{folder} holds no images.", "Expected a folder of images per class, .parquet, .tar, .npz or IDX files."
        )
    for name in classes.get("test", ()):
        if name not in first:
            raise UserError(f"{roots['test']} has a class {name!r} that {train} has not.", "Both splits share classes.")
    names = checked_names(first, where=folder)
    return Found(
        sources={split: _source(root, classes[split], names) for split, root in roots.items() if root},
        class_names=names,
        format=NAME,
    )


def _folders(root: Path) -> list[str]:
    """Names of the class folders: numbers in their order, anything else by character."""
    if not root.is_dir():
        return []
    names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
    return sorted(names, key=int) if all(name.isascii() and name.isdigit() for name in names) else names


def _source(root: Path, classes: list[str], names: tuple[str, ...]) -> Source:
    paths: list[Path] = []
    labels: list[int] = []
    for name in classes:
        found = sorted(_images(root / name))
        if not found:
            raise UserError(f"{root / name} holds no images.", f"Looked for {', '.join(SUFFIXES)}.")
        paths += found
        labels += [names.index(name)] * len(found)

    def items() -> Iterator[Item]:
        for path, label in zip(paths, labels, strict=True):
            yield Item(name=ascii_name(path), label=label, read=partial(read_bytes, path))

    return Source(items=items, labels_N=np.array(labels, dtype=np.int64), files=tuple(paths))


def _images(folder: Path) -> Iterator[Path]:
    for where, _, files in os.walk(folder):
        for name in files:
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                yield Path(where) / name


def ascii_name(path: Path | str) -> str:
    """A file name as it may be printed: nothing in it moves a terminal's cursor."""
    text = str(path)
    return text if text.isprintable() else ascii(text)
