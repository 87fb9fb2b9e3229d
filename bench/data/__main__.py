"""Data sets: which there are, which are on this machine, what their licences are, and how to get the others."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.core import registry
from bench.core.cli import parser
from bench.core.errors import EXIT_OK, UserError, command
from bench.core.formatting import data_size
from bench.data import cache, fetch
from bench.data.load import SPLITS, load, parse, resizes
from bench.data.public import SIZES
from bench.data.source import allow_unreadable

EXAMPLES = """\
examples:
  python -m bench.data                                                all data sets, and whether they are here
  python -m bench.data fashion-mnist glyphs@1000                      images, classes, content hash
  python -m bench.data folder:mine:224px:stream --data-root data --max-unreadable 5%    index it, and leave those out
  python -m bench.data kmnist --download --data-root data             get it from its authors' server
  python -m bench.data hf:owner/name --download --data-root data      get it from the Hugging Face hub
  python -m bench.data --json
"""


def about(name: str, root: Path | None) -> dict[str, Any]:
    """The description in a set's file, and whether the set is here. Opens no image."""
    module = registry.load("data set", name)
    return {
        "name": name,
        "available": module.available(root),
        "kind": module.KIND,
        "description": module.DESCRIPTION,
        "options": getattr(module, "OPTIONS", None),
        "licence": module.LICENCE,
        "source": module.SOURCE,
        "how_to_get": module.HOW_TO_GET,
        "split": getattr(module, "SPLIT", "as published or as drawn"),
        "published": published(name, module),
        "pinned": getattr(module, "PINNED", "comes with the project or a package"),
        "download": bool(getattr(module, "DOWNLOADS", ()) or getattr(module, "hub", None)),
        "revision": module.REVISION,
    }


def published(name: str, module: Any) -> dict[str, int] | None:
    """Numbers of images and classes that a set states; None where a name decides."""
    if hasattr(module, "size"):
        return dict(module.size(""))
    if name not in SIZES and isinstance(getattr(module, "SIZE", None), dict):
        return dict(module.SIZE)
    stated = SIZES.get(name) or getattr(module, "IMAGES", None)
    return dict(zip(("train", "test", "classes"), stated, strict=True)) if stated else None


def counted(name: str, root: Path | None) -> dict[str, Any]:
    """The same with the content of both splits: loads the set; of "name@N" N training images."""
    full, size = parse(name)
    facts = about(full.partition(":")[0], root) | {"name": name}
    for split in SPLITS:
        images = load(full, split, root=root, num_images=size if split == "train" else None)
        facts[split] = {
            "images": len(images),
            "shape": list(images.images_NHWC.shape[1:]),
            "classes": images.num_classes,
            "read_from": images.source,
            "content_hash": images.content_hash,
        }
    return facts


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("python -m bench.data", __doc__ or "", EXAMPLES, plugins=True)
    p.add_argument("names", nargs="*", metavar="NAME", help="a data set, to look into (default: list all)")
    p.add_argument("--data-root", type=Path, help="folder with data sets that are not installed")
    p.add_argument(
        "--max-unreadable", metavar="SHARE", help="prepare a set of which up to such a share (5%%) cannot be read"
    )
    p.add_argument("--download", action="store_true", help="get the named sets into the data root first")
    p.add_argument("--json", action="store_true", help="machine-readable output")
    arguments = p.parse_args(argv)
    if arguments.max_unreadable:
        allow_unreadable(arguments.max_unreadable)
    if arguments.download:
        download(arguments)
    if not arguments.names:
        rows = [about(name, arguments.data_root) for name in registry.names("data set")]
        print(json.dumps(rows, indent=1)) if arguments.json else _show_list(rows)
        return EXIT_OK
    found = [counted(name, arguments.data_root) for name in arguments.names]
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        for facts in found:
            _show(facts)
    return EXIT_OK


def download(arguments: argparse.Namespace) -> None:
    """Fetch the files of every set named on the command line; a set without a revision is named with the one fetched.

    Raises:
        UserError: no set, no data root, a set that has to be fetched by hand, or no room for all of them.
    """
    root = arguments.data_root
    if not arguments.names or root is None:
        raise UserError("--download needs the names of data sets, and --data-root.", "See --help for an example.")
    wanted = [_download_of(name) for name in arguments.names]
    for one in wanted:
        size, needed = fetch.missing(one.files, root), fetch.disk(one.files, root)
        print(
            f"{one.name}: {data_size(size)} to fetch, {data_size(needed)} of disk in {root}; licence {one.licence}; "
            f"from {one.source}",
            file=sys.stderr,
        )
        if any(file.name.endswith(".parquet") for file in one.files):
            print(
                f"  streamed, its images are copied out of Parquet once: as much again in {cache.directory()}",
                file=sys.stderr,
            )
    fetch.check_room(sum(fetch.disk(one.files, root) for one in wanted), root)
    for one in wanted:
        for file in one.files:
            new = fetch.fetch(file, root)
            print(f"  {file.name}: {'fetched, checksum right' if new else 'there already'}", file=sys.stderr)
        one.finish(root)
    arguments.names = [_indexed(one.name) for one in wanted]


def _indexed(name: str) -> str:
    """A name under which a set of the hub can be looked into, whatever sizes its images are of."""
    full, size = parse(name)
    if not hasattr(registry.load("data set", full), "pinned") or not resizes(full):
        return name
    return f"{full}:224px:stream" + (f"@{size}" if size else "")


def _download_of(name: str) -> fetch.Download:
    """What has to be fetched of a set.

    Raises:
        UserError: it has to be fetched by hand.
    """
    full, size = parse(name)
    module = registry.load("data set", full)
    if hasattr(module, "pinned"):
        found: fetch.Download = module.pinned(full.partition(":")[2])
        return replace(found, name=f"{found.name}@{size}") if size else found
    if hasattr(module, "download"):
        return replace(module.download(), name=name)
    if not getattr(module, "DOWNLOADS", ()):
        what = f"Data set {name!r} cannot be downloaded."
        raise UserError(what, module.HOW_TO_GET)
    return fetch.Download(name=name, files=tuple(module.DOWNLOADS), licence=module.LICENCE, source=module.SOURCE)


def _show_list(rows: list[dict[str, Any]]) -> None:
    width = max(len(row["name"]) for row in rows)
    columns = max(width + 34, shutil.get_terminal_size(fallback=(100_000, 24)).columns)  # a log is not folded
    print(f"{'data set':{width}}  {'here':10}  what it holds (licence)")
    for row in rows:
        here = "yes" if row["available"] else "--download" if row["download"] else "no"
        line = f"{row['name']:{width}}  {here:10}  {row['description']} ({row['licence']})"
        print(textwrap.fill(line, columns, subsequent_indent=" " * (width + 14)))
    print("How to get one: python -m bench.data NAME")


def _show(facts: dict[str, Any]) -> None:
    print(f"{facts['name']}: {facts['description']}\n  {facts['kind']}; licence: {facts['licence']}; {facts['source']}")
    print(f"  split: {facts['split']}; which copy: {facts['pinned']}")
    if facts["options"]:
        print(f"  options: {facts['options']}")
    for split in SPLITS:
        one = facts[split]
        shape = " x ".join(map(str, one["shape"]))
        print(f"  {split:5} {one['images']:>9,} images, {shape}, {one['classes']} classes, {one['content_hash'][:16]}")
        print(f"        {one['read_from']}") if one["read_from"] else None


if __name__ == "__main__":
    sys.exit(main())
