"""ReaL labels: ImageNet's validation images, relabelled with every class that is in each (Beyer et al., 2020).

`real.json` (https://github.com/google-research/reassessed-imagenet, Apache-2.0) is a list of 50,000 lists of classes,
in the order of the images' numbers, ILSVRC2012_val_00000001 first; a list is empty if the annotators agreed on nothing.
If the file lies beside ImageNet's folders, it is read with them: `folder:imagenet` is <data root>/imagenet.

A prediction is correct if it is one of the image's classes. Images without a class are not counted (arXiv:2006.07159).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.core.errors import UserError
from bench.data.source import Source

FILE = "real.json"
MAX_BYTES = 64 << 20  # the published file has 1.3 MB
NUMBER = re.compile(r"_val_(\d{8})(?:\D|$)")  # matches the number in the name of an image

MultiLabels = tuple[tuple[int, ...], ...]  # all classes of each image, in the order of the images


def read_real(path: Path, *, num_classes: int) -> MultiLabels:
    """Read `real.json`; return the classes of every image, in the order of the images' numbers.

    Raises:
        UserError: the file is not a list of lists of classes, numbers from 0 to `num_classes` - 1.
    """
    expected = "Expected a list with a list of classes per image, as real.json of reassessed-imagenet has."
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path} is larger than {MAX_BYTES:,} bytes.", expected)
        rows = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as JSON: {error}.", expected) from error
    if not isinstance(rows, list) or not rows:
        raise UserError(f"{path} holds no list of images.", expected)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, list) or any(type(label) is not int for label in row):
            raise UserError(f"{path}, image {number}: {str(row)[:60]} is no list of whole numbers.", expected)
        if any(not 0 <= label < num_classes for label in row):
            raise UserError(f"{path}, image {number}: classes {row}; there are 0 to {num_classes - 1}.", expected)
    return tuple(tuple(sorted(set(row))) for row in rows)


def beside(folder: Path, source: Source, *, num_classes: int) -> MultiLabels | None:
    """Return all classes of each test image in `source`, from `real.json` in the folder; None without that file.

    Raises:
        UserError: the file is not a list of lists of classes below `num_classes`, or lacks an image.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    labels = read_real(path, num_classes=num_classes)
    return by_name(labels, [source.name(number) for number in range(len(source))], path=path)


def by_name(labels: MultiLabels, names: Sequence[str], *, path: Path) -> MultiLabels:
    """Return the classes of the images with these file names. The number in a name is its place in `labels`, from 1.
    `path`: the file of labels, for messages.

    Raises:
        UserError: a name has no number, or one for which the file has no entry.
    """
    ordered = []
    for name in names:
        match = NUMBER.search(name)
        if match is None or not 1 <= int(match.group(1)) <= len(labels):
            raise UserError(
                f"{name} is none of the {len(labels):,} images of {path}.",
                f"Images keep their published names, ILSVRC2012_val_00000001.JPEG; take {FILE} away if they do not.",
            )
        ordered.append(labels[int(match.group(1)) - 1])
    return tuple(ordered)


def real_right(predictions_N: np.ndarray, labels: MultiLabels) -> np.ndarray:
    """Return whether each prediction is one of its image's classes, bool (R,), for the R images that have at least one
    class, in their order. Images without a class are left out."""
    if len(predictions_N) != len(labels):
        raise ValueError(f"{len(predictions_N)} predictions for {len(labels)} images")
    right = (int(guess) in row for guess, row in zip(predictions_N, labels, strict=True) if row)
    return np.fromiter(right, dtype=bool)


def real_hash(content_hash: str, labels: MultiLabels) -> str:
    """Return a sha256 that identifies images, given by their `ImageSet.content_hash`, together with all their
    classes."""
    return hashlib.sha256(repr((content_hash, labels)).encode()).hexdigest()


def to_arrays(labels: MultiLabels, name: str = "real") -> dict[str, np.ndarray]:
    """Return the classes as two flat int64 arrays by name, for the cache: the classes of all images one after the
    other, and the position at which those of each image begin. `name`: prefix of the arrays' names."""
    counts = [len(row) for row in labels]
    flat = [label for row in labels for label in row]
    return {
        f"{name}_classes": np.array(flat, dtype=np.int64),
        f"{name}_starts": np.cumsum([0, *counts], dtype=np.int64),
    }


def from_arrays(stored: dict[str, np.ndarray], name: str = "real") -> MultiLabels:
    """Return the classes of each image, from the arrays that `to_arrays` made under the prefix `name`."""
    flat, starts = stored[f"{name}_classes"].tolist(), stored[f"{name}_starts"].tolist()
    return tuple(tuple(flat[start:stop]) for start, stop in itertools.pairwise(starts))
