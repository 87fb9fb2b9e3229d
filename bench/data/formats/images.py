"""Reader of image files in one folder per class (ImageNet's layout), with or without a folder per split above them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.core.errors import UserError
from bench.core.formatting import plural
from bench.data.readable import printable
from bench.data.source import SPLIT_WORDS, SUFFIXES, FolderContents, PathList, Source, checked_names, image_files

NAME = "image folder"
NO_CLASSES = ("__MACOSX", "@eaDir")  # folders that macOS archives and Synology disks add beside the images
NOT_READ = (".heic", ".heif", ".avif", ".jp2", ".jxl", ".svg", ".psd", ".dng", ".cr2", ".nef")


def recognises(names: set[str]) -> bool:
    """Return True for any names in a folder: this format is tried last, after the others have not recognised the
    folder."""
    return True


def find(folder: Path) -> FolderContents:
    """Return the images of class folders below `folder`, or below its folders "train" and "test" (or "val", "valid",
    "validation").

    Files whose name starts with "." or has no suffix of an image are ignored. The result's `format` counts images of
    kinds that are not read, and names folders without images, which are left out.

    Raises:
        UserError: there are no class folders; all images of a class are of kinds that are not read; a test class is not
            a training class; the name of a class is not allowed.
    """
    splits = {
        split: next((folder / word for word in words if _folders(folder / word)), None)
        for split, words in SPLIT_WORDS.items()
    }
    train, test = splits["train"], splits["test"]
    roots = {"train": train, "test": test} if train and test else {"all": train or folder}
    passed_over: Counter[str] = Counter()
    classes = {split: _classes(root, passed_over, below=folder) for split, root in roots.items() if root}
    first = [name for name, paths in next(iter(classes.values())).items() if paths]
    if not first:
        if loose := sum(1 for entry in os.scandir(folder) if entry.is_file() and _is_image(entry.name)):
            what = f"{folder} holds {plural(loose, 'image')}, but none in a class folder."
            raise UserError(what, "Put them in folders named by their class, or name a table of labels: --labels.")
        raise UserError(
            f"{folder} holds no images.", "Expected a folder of images per class, .parquet, .tar, .npz or IDX files."
        )
    for name, paths in classes.get("test", {}).items():
        if paths and name not in first:
            raise UserError(f"{roots['test']} has a class {name!r} that {train} has not.", "Both splits share classes.")
    names = checked_names(first, where=folder)
    sources = {split: _source(paths, names) for split, paths in classes.items()}
    kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in sorted(passed_over.items()))
    empty = sorted({name for paths in classes.values() for name in paths if not paths[name]})
    said = {"not read": kinds, "left out, without images": ", ".join(map(printable, empty))}
    return FolderContents(
        sources=sources,
        class_names=names,
        format="; ".join([NAME, *(f"{what}: {which}" for what, which in said.items() if which)]),
    )


def _folders(root: Path) -> list[str]:
    """Return the names of the class folders directly below `root`, sorted as numbers if all are numbers, else as text;
    an empty list if `root` is not a folder."""
    if not root.is_dir():
        return []
    names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
    return sorted(names, key=int) if all(name.isascii() and name.isdigit() for name in names) else names


def _classes(root: Path, passed_over: Counter[str], *, below: Path) -> dict[str, PathList]:
    """Return the image files of each class folder below `root`, by name of the folder; a folder may have none.

    Args:
        passed_over: suffix -> number of images that are not read; those found here are added.
        below: folder relative to which the paths are stored, to save memory.

    Raises:
        UserError: a folder has images, but only of kinds that are not read.
    """
    found: dict[str, PathList] = {}
    for name in _folders(root):
        here: Counter[str] = Counter()
        found[name] = PathList(_in_order(_images(root / name, here)), below=below)
        if here and not found[name]:
            kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in sorted(here.items()))
            what = f"{printable(root / name)} holds no image that is read, only {kinds}."
            raise UserError(what, f"Save them as one of {', '.join(SUFFIXES)}, or move the folder away.")
        passed_over.update(here)
    return found


def _source(images: dict[str, PathList], names: tuple[str, ...]) -> Source:
    number = {name: label for label, name in enumerate(names)}
    labels_N = np.repeat([number.get(name, -1) for name in images], [len(paths) for paths in images.values()])
    every, *others = images.values()
    for paths in others:
        every.join(paths)
    return image_files(every, labels_N)


def _in_order(paths: Iterator[str]) -> list[str]:
    """Sort paths as `pathlib.Path`s are sorted: by their parts, one after the other."""
    return sorted(paths, key=lambda path: path.split(os.sep))


def _images(folder: Path, passed_over: Counter[str]) -> Iterator[str]:
    if folder.name in NO_CLASSES:
        return
    for where, below, files in os.walk(folder):
        below[:] = [name for name in below if name not in NO_CLASSES and not name.startswith(".")]
        for name in files:
            suffix = os.path.splitext(name)[1].lower()
            if _is_image(name):
                yield os.path.join(where, name)
            elif suffix in NOT_READ and not name.startswith("."):
                passed_over[suffix] += 1


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")
