"""Reader of WebDataset tar shards: members whose names agree up to the first dot are one example, "x.jpg" + "x.cls".

Shards are read in place, never unpacked. Labels come from `.cls` (a number) or `.json` (`{"label": 3}`). In shards that
`bench.data.pack` has written, images that belong together (a group) have the same number under the key GROUP of their
`.json` files.
"""

from __future__ import annotations

import contextlib
import json
import tarfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from bench.core.errors import UserError
from bench.core.files import read_sealed
from bench.data.readable import printable
from bench.data.source import MAX_FILE_BYTES, SUFFIXES, FolderContents, Places, Source, by_split, found, read_bytes

NAME = "tar shards"
PACKED = "packed.json"  # file beside shards that `bench.data.pack` has written: states their source and settings
GROUP = "vit-bench-group"
MAX_LABEL_BYTES = 1 << 20
BLOCK, MAX_PADDING = 512, 1 << 20  # a tar ends in at least one block of zeros


class Place(NamedTuple):
    """Where the encoded bytes of an image lie: the path of its shard, the offset of the first byte in it, the number of
    bytes, and the member's name."""

    shard: Path
    offset: int
    size: int
    name: str


@dataclass
class _Example:
    place: Place | None = None
    labels: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)


def recognises(names: set[str]) -> bool:
    return any(name.endswith((".tar", ".tar.gz", ".tgz")) for name in names)


def find(folder: Path) -> FolderContents:
    """Return the images of all shards in `folder` and one level below, by split.

    Raises:
        UserError: a shard is compressed or damaged, or has a member that points out of it; an example lacks an image or
            a label.
    """
    packed = next((path for path in folder.rglob("*") if path.name.endswith((".tar.gz", ".tgz"))), None)
    if packed:
        raise UserError(f"{packed} is compressed; its images cannot be read in place.", f"Run: gunzip {packed.name}")
    groups = by_split([*folder.glob("*.tar"), *folder.glob("*/*.tar")], below=folder)
    return found({split: _source(paths) for split, paths in groups.items()}, folder, format=f"{NAME}{_origin(folder)}")


def _origin(folder: Path) -> str:
    """Return the source, size and quality of the shards in a folder, in words, if `bench.data.pack` has written them;
    else ""."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        facts = read_sealed(folder / PACKED)
        kind = f"JPEG quality {facts['quality']}" if facts["quality"] else "as pixels"
        return f"; packed from {facts['source']['train']} at {facts['side']} px, {kind}"
    return ""


def _source(shards: list[Path]) -> Source:
    places: list[Place] = []
    labels: list[int] = []
    groups: list[int] = []
    for shard in shards:
        for key, example in _examples(shard).items():
            if example.place is None:
                raise UserError(f"{shard}: {key!r} has no image.", f"Images end in {', '.join(SUFFIXES)}.")
            if len(example.labels) != 1:
                raise UserError(f"{shard}: {key!r} has {len(example.labels)} labels.", "One .cls or .json is needed.")
            places.append(example.place)
            labels += example.labels
            groups += example.groups
    return Source(
        labels_N=np.array(labels, dtype=np.int64),
        files=tuple(shards),
        name=lambda number: f"{places[number].shard.name}:{places[number].name}",
        read=lambda number: read_bytes(*places[number][:3]),
        places=lambda: _columns(places, shards),
        groups_N=np.array(groups, dtype=np.uint64) if groups and len(groups) == len(labels) else None,
    )


def _columns(places: list[Place], shards: list[Path]) -> Places:
    number = {shard: at for at, shard in enumerate(shards)}
    file, offset = zip(*((number[place.shard], place.offset) for place in places), strict=True)
    return Places(file_N=np.array(file), offset_N=np.array(offset, dtype=np.int64))


def _examples(shard: Path) -> dict[str, _Example]:
    """Return all examples in a shard, by the name that their members share.

    Raises:
        UserError: the shard is damaged or holds no images; a member points out of it, is too large or is no plain file;
            an example has two images, or a label that is not a whole number.
    """
    examples: dict[str, _Example] = {}
    try:
        size = shard.stat().st_size
        with tarfile.open(shard, "r:") as tar:
            for member in tar:
                _check(member, shard=shard, shard_size=size)
                if member.isfile():
                    _add(examples, member, shard=shard)
            end = read_bytes(shard, tar.offset, MAX_PADDING)  # check the end, because tarfile mistakes damage for it
        if len(end) < BLOCK or len(end) == MAX_PADDING or any(end):
            raise UserError(f"{shard} is cut short or damaged after byte {size - len(end):,}.", "Get the file again.")
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise UserError(f"{shard} cannot be read as tar: {error}.", "Get the file again.") from error
    if not examples:
        raise UserError(f"{shard} holds no images.", "Get the file again.")
    return examples


def _check(member: tarfile.TarInfo, *, shard: Path, shard_size: int) -> None:
    name = printable(member.name)
    path = PurePosixPath(member.name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise UserError(f"{shard} has a member {name!r} that points out of it.", "Do not use this file.")
    if not (member.isfile() or member.isdir()):
        raise UserError(f"{shard}: {name!r} is a link or a device.", "Only plain files are read.")
    if member.issparse():
        raise UserError(f"{shard}: {name!r} is stored sparsely.", "Pack the shard again without --sparse.")
    if member.size > MAX_FILE_BYTES:
        raise UserError(f"{shard}: {name!r} is {member.size:,} bytes long.", f"It may be {MAX_FILE_BYTES:,}.")
    if member.offset_data + member.size > shard_size:
        raise UserError(f"{shard} ends inside {name!r}.", "Get the file again.")


def _add(examples: dict[str, _Example], member: tarfile.TarInfo, *, shard: Path) -> None:
    folder, _, file = member.name.rpartition("/")
    if file.startswith("."):
        return
    stem, _, ending = file.partition(".")
    example = examples.setdefault(f"{folder}/{stem}", _Example())
    ending, name = f".{ending.lower()}", printable(member.name)
    if ending.endswith(SUFFIXES):
        if example.place is not None:
            raise UserError(f"{shard}: {name} is a second image of one example.")
        example.place = Place(shard, member.offset_data, member.size, name)
    elif ending in (".cls", ".json"):
        text = read_bytes(shard, member.offset_data, min(member.size, MAX_LABEL_BYTES))
        name = f"{shard}:{name}"
        value = _value(text, name=name)
        if ending == ".json":
            facts = value if isinstance(value, dict) else {}
            group = facts.get(GROUP)
            example.groups += [group] if type(group) is int and 0 <= group < 1 << 64 else []
            if "label" not in facts:
                return  # the .json holds other facts about the image, but no label
            value = facts["label"]
        if type(value) is not int or abs(value) >= 2**31:
            raise UserError(f"{name} is not a label: {text[:40]!r}.", "A label is a whole number, counted from 0.")
        example.labels.append(value)


def _value(text: bytes, *, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} is not a label: {text[:40]!r}.", "A .cls holds a whole number.") from error
