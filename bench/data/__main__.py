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

from bench.core.cli import names_list, parser
from bench.core.data_settings import allow_unreadable
from bench.core.errors import EXIT_OK, UserError, command
from bench.core.formatting import data_size
from bench.data import cache
from bench.data.data_set import Download
from bench.data.fetch import check_room
from bench.data.load import DEFAULT_SIDE, SPLITS, data_set, load, look, named_at, parse, resizes, with_tables
from bench.study import registry
from bench.study.names import DataName

EXAMPLES = """\
examples:
  vit-bench data                                                all data sets, and whether they are here
  vit-bench data fashion-mnist glyphs@1000                      images, classes, content hash
  vit-bench data folder:mine:224px:stream --data-root data --max-unreadable 5%    index it, and leave those out
  vit-bench data folder:mine --data-root data --labels labels.csv    its labels from a table
  vit-bench data kmnist --download --data-root data             get it from its authors, by torchvision
  vit-bench data hf:owner/name --download --data-root data      get it from the Hugging Face hub
  vit-bench data pack folder:photos data/photos-256 --data-root data    smaller once, decoded in less time (pack --help)
  vit-bench data --json
  vit-bench data --copies fashion-mnist fashion-mnist           which training images are test images
  vit-bench data --copies folder:mine pets:64px --data-root data --picture pairs.png
"""


def about(name: str, root: Path | None) -> dict[str, Any]:
    """Return the facts that the file of a data set states (kind, licence, source, …), and "available": whether the set
    is on this machine, installed or in the data root `root`. No image is opened."""
    one = data_set(name)
    return {
        "name": name,
        "available": one.available(root),
        "kind": one.kind,
        "description": one.description,
        "options": one.options or None,
        "licence": one.licence,
        "source": one.source,
        "how_to_get": one.how_to_get,
        "split": one.split,
        "published": one.stated,
        "pinned": one.pinned,
        "download": one.download is not None,
        "revision": one.revision,
    }


def counted(name: str, root: Path | None) -> dict[str, Any]:
    """Load both splits of a data set, and return the facts of `about` with each split's number of images, shape, number
    of classes and content hash.

    Args:
        name: name of the set; for "set@N", N training images are loaded.
        root: the data root (folder with data sets that are not installed), or None.
    """
    full, size = parse(name)
    if resizes(full) and (seen := look(full, root=root)) is not None and seen[0] is None:
        full = named_at(full, DEFAULT_SIDE, seen[1])  # the size at which a study would load it
    facts = about(DataName.parse(full).base, root) | {"name": name}
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
    if (words := sys.argv[1:] if argv is None else argv)[:1] == ["pack"]:
        from bench.data import pack

        return pack.main(words[1:])
    p = parser(
        "vit-bench data",
        __doc__ or "",
        EXAMPLES,
        plugins=registry.add_plugins,
        effects=lambda args: {
            "used": {"with --copies": args.copies and "copies picture data_root max_unreadable"},
            "idle": {
                "without --copies": not args.copies and "picture",
                "without a set": not (args.copies or args.names) and "max_unreadable labels label_columns",
            },
        },
    )
    p.add_argument("names", nargs="*", metavar="NAME", help="a data set, to look into (default: list all)")
    p.add_argument("--data-root", type=Path, help="folder with data sets that are not installed")
    p.add_argument("--labels", type=Path, metavar="TABLE", help="table of the labels of a folder's images")
    p.add_argument(
        "--label-columns",
        type=names_list,
        default=(),
        metavar="ROLE=COLUMN,…",
        help="its columns, such as label=species",
    )
    p.add_argument(
        "--max-unreadable", metavar="SHARE", help="prepare a set of which up to such a share (5%%) cannot be read"
    )
    p.add_argument("--download", action="store_true", help="get the named sets into the data root first")
    p.add_argument(
        "--copies",
        nargs=2,
        metavar=("UPSTREAM", "DOWNSTREAM"),
        help="pair test images of one set with their copies among training images of another (NAME@N: N of these)",
    )
    p.add_argument("--picture", type=Path, metavar="FILE.png", help="with --copies: draw the pairs")
    arguments = p.parse_args(argv)
    if arguments.max_unreadable:
        allow_unreadable(arguments.max_unreadable)
    tables = {"labels": arguments.labels, "columns": arguments.label_columns}
    for at, name in enumerate(arguments.names):
        arguments.data_root, arguments.names[at] = with_tables(name, root=arguments.data_root, **tables)
    if arguments.copies:
        from bench.data import copies

        where = {"root": arguments.data_root, "picture": arguments.picture}
        print(copies.compare(*arguments.copies, **where, as_json=arguments.json))
        return EXIT_OK
    if arguments.download:
        download(arguments)
    if not arguments.names:
        rows = [about(name, arguments.data_root) for name in registry.names("data set")]
        print(json.dumps(rows, indent=1)) if arguments.json else _show_list(rows)
        return EXIT_OK
    looked_into = [counted(name, arguments.data_root) for name in arguments.names]
    if arguments.json:
        print(json.dumps(looked_into, indent=1))
    else:
        for facts in looked_into:
            _show(facts)
    return EXIT_OK


def download(arguments: argparse.Namespace) -> None:
    """Fetch the files of every data set in `arguments.names` into `arguments.data_root`. Then replace `arguments.names`
    by the names under which the sets can be loaded, which state the fetched revision.

    Raises:
        UserError: no data set or no data root is given; a set has to be fetched by hand; the disk has no room for all.
    """
    root = arguments.data_root
    if not arguments.names or root is None:
        raise UserError("--download needs the names of data sets, and --data-root.", "See --help for an example.")
    wanted = [_download_of(name) for name in arguments.names]
    for one in wanted:
        size, needed = one.bytes_missing(root), one.disk_bytes(root)
        cost = "size not stated" if size is None else f"{data_size(size)} to fetch, {data_size(needed)} of disk"
        print(f"{one.name}: {cost} in {root}; licence {one.licence}; from {one.source}", file=sys.stderr)
        if one.is_parquet:
            print(
                f"  streamed, its images are copied out of Parquet once: as much again in {cache.directory()}",
                file=sys.stderr,
            )
    check_room(sum(one.disk_bytes(root) for one in wanted), root)
    for one in wanted:
        try:
            lines = one.fetch(root)
        except OSError as error:
            what = f"{one.name} cannot be written below {root}: {error}."
            raise UserError(what, "Free some space, or use another folder, and run the same command again.") from error
        print(*(f"  {line}" for line in lines), sep="\n", file=sys.stderr)
    arguments.names = [one.opened_as or one.name for one in wanted]


def _download_of(name: str) -> Download:
    """Return the download of a data set: licence, source, size, and the function that fetches it.

    Raises:
        UserError: the set has to be fetched by hand.
    """
    full, size = parse(name)
    one = data_set(full)
    if one.download is None:
        why = "its licence forbids it, or nobody serves it to programs"
        raise UserError(f"Data set {name!r} cannot be downloaded: {why}.", one.how_to_get)
    asked = one.download(DataName.parse(full).option)
    if not size:
        return asked
    return replace(asked, name=f"{asked.name}@{size}", opened_as=f"{asked.opened_as or asked.name}@{size}")


def _show_list(rows: list[dict[str, Any]]) -> None:
    width = max(len(row["name"]) for row in rows)
    columns = max(width + 34, shutil.get_terminal_size(fallback=(100_000, 24)).columns)  # a log is not wrapped
    print(f"{'data set':{width}}  {'here':10}  what it holds (licence)")
    for row in rows:
        here = "yes" if row["available"] else "--download" if row["download"] else "no"
        line = f"{row['name']:{width}}  {here:10}  {row['description']} ({row['licence']})"
        print(textwrap.fill(line, columns, subsequent_indent=" " * (width + 14)))
    print("How to get one: vit-bench data NAME")


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
