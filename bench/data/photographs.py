"""Finds a large set of colour photographs in the data root (folder with data sets that are not installed), without
opening an image."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bench.data.public import ROWS, TABLE
from bench.data.source import SUFFIXES

PUBLIC = ("imagenet", "imagenet-21k", "sun397", "food101")  # the most useful first
MIN_IMAGES = 50_000  # fewest images that are worth pre-training on
SHARDS = (".tar", ".parquet")
SHARD_IMAGE = 100_000  # approximate bytes of an encoded photograph


def largest(root: Path | None) -> str | None:
    """Return the name of the set in the data root `root` to pre-train on: the first of PUBLIC that is there, else the
    first other folder with at least MIN_IMAGES images; None if there is neither."""
    if root is None or not root.is_dir():
        return None
    for name in PUBLIC:
        if ROWS[name].available(root):
            return name
    taken = {path.partition("/")[0] for row in TABLE for path in (row.name, *getattr(row, "needs", ()))}
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and path.name[0].isalnum()):
        if folder.name not in taken and len(list(islice(_images(folder), MIN_IMAGES))) == MIN_IMAGES:
            return f"folder:{folder.name}"
    return None


def _images(folder: Path) -> Iterator[str]:
    """Yield one name per image below a folder. A shard, which holds many images, counts as bytes / SHARD_IMAGE of
    them."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            if name.lower().endswith(SUFFIXES):
                yield name
            elif name.endswith(SHARDS):
                yield from (name for _ in range(os.path.getsize(os.path.join(place, name)) // SHARD_IMAGE))
