"""Photographs, packed once to a shorter side of some 256 pixels: tar shards of JPEGs, which are decoded in less time;
or of pixels, which are not decoded at all and take some eight times the room.

Every image is upright and keeps its class, its split, its group and all classes that are annotated in it; one that is
no larger already keeps its bytes. What is packed is another set than its source: it has a content hash of its own, and
`packed.json` in it says what it was made of, and how. Its bytes follow from the source, the side, the quality and the
encoder. A shard is complete or absent, and the folder gets its name when all of them are there: after a kill, the same
command goes on.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, __version__, features

from bench.core import files
from bench.core.cli import folder, parser, positive
from bench.core.data_settings import allow_unreadable
from bench.core.environment import cores
from bench.core.errors import EXIT_OK, UserError, command
from bench.core.formatting import data_size
from bench.core.subprocesses import end_with_starter
from bench.data import raw, real
from bench.data.decode import GREY, Unreadable, eight_bits, opened, orientation_of
from bench.data.formats.tars import GROUP, PACKED
from bench.data.image_set import ImageSet
from bench.data.index import ImageIndex
from bench.data.load import SPLITS, data_set, load, parse
from bench.data.progress import Progress
from bench.data.sets.folder import parse_option
from bench.data.stream import StreamedImages
from bench.study import registry

REVISION = 1  # increment when the same source gives other bytes
SIDE, SIDES = 256, range(32, 2049)  # pixels of the shorter side: default, allowed values
QUALITY, QUALITIES = 90, range(50, 101)  # JPEG quality on libjpeg's scale: default, allowed values
SHARDS, MIN_IMAGES = 128, 256  # most shards of a split (a reader keeps 256 files open); fewest images of a shard
ENDINGS = {
    "JPEG": "jpg",
    "PNG": "png",
    "WEBP": "webp",
    "BMP": "bmp",
    "PPM": "ppm",
}  # format, as Pillow names it -> suffix, for images whose bytes may be kept
WORDS = {"train": "train", "test": "val"}  # split -> word in image names: `bench.data.real` needs "_val_" and a number
SAMPLED = 32  # images that are packed first, to estimate the disk space of all
DISK_MARGIN, BYTES_BESIDE = 1.1, 3 << 10  # safety factor on the estimate; bytes per image of headers, label and group

EXAMPLES = """\
examples:
  vit-bench data pack folder:photos data/photos-256 --data-root data    then train on folder:photos-256
  vit-bench data pack imagenet fast/imagenet --data-root data           then give --data-root fast
  vit-bench data pack folder:photos data/photos-raw --data-root data --pixels    nothing to decode, eight times the room
  vit-bench data pack folder:scans data/scans-512 --data-root data --side 512 --quality 95
"""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """The images that one tar file will hold.

    Attributes:
        path: path of the tar file.
        index: index of the images of the source, the data set that is packed.
        rows_M: rows of the index, one per image of the shard.
        labels_M: class of each image.
        groups_M: group of each image (`ImageSet.groups_N`); None if groups are not known.
        names: name of each image in the tar file, without suffix.
    """

    path: Path
    index: ImageIndex
    rows_M: np.ndarray
    labels_M: np.ndarray
    groups_M: np.ndarray | None
    names: tuple[str, ...]


def encoded(shard: Shard, place: int, *, side: int, quality: int | None) -> tuple[bytes, str]:
    """Return (bytes, suffix of its name) of the image at position `place` of a shard: upright, its shorter side at most
    `side` pixels. With a quality, an upright image that is small enough keeps its bytes.

    Args:
        quality: JPEG quality; None for uncompressed pixels.

    Raises:
        UserError: the image can no longer be read.
    """
    row, index = int(shard.rows_M[place]), shard.index
    height, width, orientation = (int(values[row]) for values in (index.height, index.width, index.orientation))
    scale = min(1.0, side / min(height, width))
    try:
        with opened(data := index.read(row), name=index.name(row), as_published=False) as image:
            if quality and scale == 1.0 and orientation_of(image) == 1 and image.format in ENDINGS:
                return data, ENDINGS[image.format]
            image.draft(None, (2 * side, 2 * side))  # JPEG: skip detail that resizing averages away
            upright = eight_bits(ImageOps.exif_transpose(image) if orientation != 1 else image)
            upright = upright.convert("L" if upright.mode in GREY else "RGB")
            size = max(1, round(width * scale)), max(1, round(height * scale))
            small, file = upright.resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0), io.BytesIO()
            if not quality:
                return raw.as_file(np.atleast_3d(np.asarray(small))), "pgm" if small.mode == "L" else "ppm"
            small.save(file, "JPEG", quality=quality, subsampling="4:2:0", comment=b"")
            return file.getvalue(), "jpg"
    except Unreadable as error:
        what = f"{index.name(row)} could be decoded when it was indexed, and no longer: {error}."
        raise UserError(what, "Get the file again, and run the same command.") from error


def write(shard: Shard, *, side: int, quality: int | None) -> int:
    """Write a shard as a tar file, atomically. Return its number of images. `side`, `quality`: see `encoded`.

    Raises:
        UserError: an image can no longer be read, the disk is full, ….
    """
    try:
        with (
            files.replacing(shard.path) as file,
            tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar,
        ):
            for place, name in enumerate(shard.names):
                data, ending = encoded(shard, place, side=side, quality=quality)
                parts = {ending: data, "cls": str(shard.labels_M[place]).encode()}
                if shard.groups_M is not None:
                    parts["json"] = json.dumps({GROUP: int(shard.groups_M[place])}).encode()
                for suffix, content in parts.items():
                    member = tarfile.TarInfo(f"{name}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    except OSError as error:
        raise files.explain(error, shard.path) from error
    return len(shard.names)


def pack(
    source: str, target: Path, *, root: Path | None, side: int = SIDE, quality: int | None = QUALITY
) -> dict[str, Any]:
    """Pack a data set into a new folder. If it is packed there already, nothing is done.

    Args:
        source: name of the set; name@N packs N of its training images, and all test images.
        target: the folder; the packed set is called `folder:NAME` after its name.
        root: folder with data sets that are not installed.
        side: pixels of the shorter side.
        quality: JPEG quality; None for uncompressed pixels.

    Returns:
        The facts that `packed.json` in the folder states.

    Raises:
        UserError: the source is not stored as encoded images; the target holds something else, is being packed by
            another process, is on a disk without room, or has a name that no set can have.
    """
    if parse_option(target.name)[0] != target.name:
        raise UserError(f"A set cannot be read from a folder named {target.name}.", "Name another folder.")
    splits = _splits(source, root)
    facts = {
        "revision": REVISION,
        "source": {split: images.name for split, images in splits.items()},
        "content_hash": {split: images.content_hash for split, images in splits.items()},
        "images": {split: len(images) for split, images in splits.items()},
        "side": side,
        "quality": quality,
        "encoder": f"Pillow {__version__}, libjpeg-turbo {features.version('libjpeg_turbo')}",
    }
    if target.exists() and _written(target) == facts:
        return facts
    if target.exists():
        raise UserError(f"{target} is there, and is not {source} packed so.", "Name a folder that is not there yet.")
    with _unfinished(target, facts) as part:
        _fill(part, splits, source, side=side, quality=quality)
        files.move(part, target)
    return facts


def _splits(source: str, root: Path | None) -> dict[str, ImageSet]:
    name, size = parse(source)
    one = data_set(name)
    if one.takes_side and any(word.endswith("px") for word in name.split(":")):
        raise UserError(f"{name}: files are packed, whatever size they are read at.", "Leave the size out.")
    if "stream" in one.options and ":stream" not in name:
        name = f"{name}:stream"
    splits = {split: load(name, split, root=root, num_images=size if split == "train" else None) for split in SPLITS}
    if not all(isinstance(images.images_NHWC, StreamedImages) for images in splits.values()):
        raise UserError(f"{source} is kept as pixels, which nothing has to decode.", "Pack sets of encoded images.")
    return splits


def _written(place: Path) -> dict[str, Any] | None:
    """Return the facts that `packed.json` in the folder `place` states; None if there is none, or if it is damaged."""
    try:
        return files.read_sealed(place / PACKED)
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def _unfinished(target: Path, facts: dict[str, Any]) -> Iterator[Path]:
    """Yield the hidden folder beside the target in which shards are collected, locked for this process. A folder that
    was left by an interrupted run of the same packing is used again, with its finished shards. `facts`: what
    `packed.json` will state.

    Raises:
        UserError: another process is packing this target, or the folder is left from packing something else.
    """
    part = files.make_directory(target.absolute().with_name(f".{target.name}.packing"))
    handle = os.open(part, os.O_RDONLY)
    try:
        if files.lock(handle) is False:
            raise UserError(f"{target} is being packed by another process.", "Wait for it, or name another folder.")
        files.remove_leftovers(part, owned=True)
        if any(part.iterdir()) and _written(part) != facts:
            what = f"{part} is what is left of packing something else, or otherwise, into {target}."
            raise UserError(what, f"Remove it to begin anew: rm -r {part}")
        files.write_sealed(part / PACKED, facts)
        yield part
    finally:
        os.close(handle)


def _fill(part: Path, splits: dict[str, ImageSet], source: str, *, side: int, quality: int | None) -> None:
    """Write the missing shards into the folder `part` in parallel processes, one shard in each at a time. `source`:
    name of the packed set in messages; `side`, `quality`: see `encoded`.

    Raises:
        UserError: the disk has no room, an image cannot be read, or a process was killed.
    """
    left = [
        shard for split, images in splits.items() for shard in _shards(part, split, images) if not shard.path.exists()
    ]
    need, free = _bytes_of(left, side=side, quality=quality), files.free_bytes(part)
    what = f"{source} packed takes about {data_size(need)} in {part.parent}, which has {data_size(free)} free."
    if need > free:
        raise UserError(what, "Free some space, or name a folder on a larger disk.")
    if not quality:
        print(what, file=sys.stderr, flush=True)
    files.write_bytes(part / "classes.txt", "\n".join([*splits["train"].class_names, ""]).encode())
    if (several := splits["test"].multi_labels) is not None:
        files.write_bytes(part / real.FILE, json.dumps(several).encode())
    progress = Progress(f"packing {source}", sum(len(shard.names) for shard in left))
    processes, spawned = min(cores(), len(left)) or 1, get_context("spawn")
    try:
        with ProcessPoolExecutor(processes, mp_context=spawned, initializer=_begin) as pool:
            for images in pool.map(partial(write, side=side, quality=quality), left):
                progress.step(images)
    except BrokenProcessPool as error:
        what = "A process that packs images was ended from outside: perhaps memory ran out."
        raise UserError(what, "Run the same command again: finished shards stay.") from error


def _begin() -> None:
    """Set up a child process: it ends with its parent, and Ctrl-C ends it silently, because the parent reports it."""
    end_with_starter()
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _shards(part: Path, split: str, images: ImageSet) -> Iterator[Shard]:
    streamed = images.images_NHWC
    assert isinstance(streamed, StreamedImages)
    each = max(MIN_IMAGES, -(-len(images) // SHARDS))
    for number, first in enumerate(range(0, len(images), each)):
        some = slice(first, min(first + each, len(images)))
        yield Shard(
            path=part / f"{split}-{number:05}.tar",
            index=streamed.index,
            rows_M=streamed.rows(some),
            labels_M=np.array(images.labels_N[some]),
            groups_M=None if images.groups_N is None else np.array(images.groups_N[some]),
            names=tuple(f"packed_{WORDS[split]}_{at + 1:08}" for at in range(some.start, some.stop)),
        )


def _bytes_of(shards: Sequence[Shard], *, side: int, quality: int | None) -> int:
    """Estimate the bytes that shards will take on disk, from a sample of their images. `side`, `quality`: see
    `encoded`."""
    places = [(shard, place) for shard in shards for place in range(len(shard.names))]
    some = places[:: max(1, len(places) // SAMPLED)]
    sizes = [len(encoded(shard, place, side=side, quality=quality)[0]) for shard, place in some]
    return round(len(places) * (DISK_MARGIN * float(np.mean(sizes)) + BYTES_BESIDE)) if places else 0


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("vit-bench data pack", __doc__ or "", EXAMPLES, plugins=registry.add_plugins)
    p.add_argument("source", metavar="SOURCE", help="a data set of encoded images, such as folder:photos")
    p.add_argument("target", metavar="TARGET", type=folder, help="a folder that is not there yet")
    p.add_argument("--data-root", type=Path, help="folder with data sets that are not installed")
    p.add_argument("--side", type=positive, default=SIDE, help=f"pixels of the shorter side (default: {SIDE})")
    one = p.add_mutually_exclusive_group()
    one.add_argument("--quality", type=positive, default=QUALITY, help=f"of JPEG (default: {QUALITY}; 4:2:0)")
    one.add_argument("--pixels", action="store_true", help="write pixels, not JPEG: 0.26 MB an image of 256 px")
    p.add_argument("--max-unreadable", metavar="SHARE", help="leave out up to such a share (5%%) that cannot be read")
    given = p.parse_args(argv)
    for name, allowed in (("side", SIDES), ("quality", QUALITIES)):
        if getattr(given, name) not in allowed:
            raise UserError(f"--{name} {getattr(given, name)} is out of range.", f"From {allowed[0]} to {allowed[-1]}.")
    if given.max_unreadable:
        allow_unreadable(given.max_unreadable)
    quality = None if given.pixels else given.quality
    facts = pack(given.source, given.target, root=given.data_root, side=given.side, quality=quality)
    images = " and ".join(f"{number:,} {split}" for split, number in facts["images"].items())
    kind = f"quality {quality}" if quality else "as pixels"
    said = f"{given.target}: {images} images of {given.source}, {given.side} px, {kind}"
    print(json.dumps(facts, indent=1) if given.json else f"{said}\n  read as folder:{given.target.name}")
    return EXIT_OK
