"""Image files in one folder per class (ImageNet's layout), with or without folders for the splits above them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.core.errors import UserError
from bench.core.formatting import plural
from bench.data.source import SPLIT_WORDS, SUFFIXES, FolderContents, Source, checked_names, image_files

NAME = "image folder"
NOT_READ = (".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2", ".jxl", ".svg", ".psd", ".dng", ".cr2", ".nef")


def recognises(names: set[str]) -> bool:
    """This format is tried last, whatever else a folder holds."""
    return True


def find(folder: Path) -> FolderContents:
    """Class folders below `folder`, or below its folders "train" and "test" (or "val", "valid", "validation").

    Files whose name starts with "." or does not end like an image's are passed over; images of kinds that are not read
    are counted in the answer's `format`.

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
        if loose := sum(1 for entry in os.scandir(folder) if entry.is_file() and _is_image(entry.name)):
            what = f"{folder} holds {plural(loose, 'image')}, but none in a class folder."
            raise UserError(what, "Put them in folders named by their class.")
        raise UserError(
            f"{folder} holds no images.", "Expected a folder of images per class, .parquet, .tar, .npz or IDX files."
        )
    for name in classes.get("test", ()):
        if name not in first:
            raise UserError(f"{roots['test']} has a class {name!r} that {train} has not.", "Both splits share classes.")
    names = checked_names(first, where=folder)
    passed_over: Counter[str] = Counter()
    sources = {split: _source(root, classes[split], names, passed_over) for split, root in roots.items() if root}
    kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in sorted(passed_over.items()))
    return FolderContents(sources=sources, class_names=names, format=f"{NAME}; not read: {kinds}" if kinds else NAME)


def _folders(root: Path) -> list[str]:
    """Names of the class folders: numbers in their order, anything else by character."""
    if not root.is_dir():
        return []
    names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
    return sorted(names, key=int) if all(name.isascii() and name.isdigit() for name in names) else names


def _source(root: Path, classes: list[str], names: tuple[str, ...], passed_over: Counter[str]) -> Source:
    paths: list[Path] = []
    labels: list[int] = []
    for name in classes:
        found = sorted(_images(root / name, passed_over))
        if not found:
            raise UserError(f"{root / name} holds no images.", f"Looked for {', '.join(SUFFIXES)}.")
        paths += found
        labels += [names.index(name)] * len(found)
    return image_files(paths, labels)


def _images(folder: Path, passed_over: Counter[str]) -> Iterator[Path]:
    for where, _, files in os.walk(folder):
        for name in files:
            suffix = os.path.splitext(name)[1].lower()
            if _is_image(name):
                yield Path(where) / name
            elif suffix in NOT_READ and not name.startswith("."):
                passed_over[suffix] += 1


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")
