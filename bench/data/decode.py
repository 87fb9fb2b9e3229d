"""Decoding of images to uint8 arrays of one size, in bounded memory. Unreadable images are counted and named;
decompression bombs (images that claim to be huge) are refused."""

from __future__ import annotations

import io
import itertools
import math
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from bench.core import files
from bench.core.data_settings import max_unreadable
from bench.core.environment import cores
from bench.core.errors import UserError
from bench.data import cache
from bench.data.image_set import content_key
from bench.data.progress import Progress
from bench.data.source import MAX_FILE_BYTES, ImageName, Source

REVISION = 1  # 1: 16-bit grey and TIFF are read, so images that were left out before are decoded again
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "PPM")  # no rarer formats: their readers tend to have security holes
OWN_FORMATS = (*FORMATS, "GIF", "TIFF")  # formats for users' own images, for which no protocol is published
MAX_PIXELS = 89_478_485  # Pillow's own limit, at which it only warns; the largest image of ImageNet has 32 million
PIXELS_PER_BYTE = 512  # most pixels per byte of a JPEG: the first coefficient of every 8 x 8 block takes at least a bit
DEEP = ("I", "I;16", "I;16B", "I;16L", "I;16N")  # Pillow's modes of 16-bit images; 32-bit TIFFs have mode "I" too
GREY = ("L", "1", "LA", *DEEP)  # Pillow's modes of grey images
DARK = 1 << 12  # levels of a 12-bit camera: stored in 16 bits (65,536 levels), its images would be black at 8 bits
MAX_NAMED_IMAGES = 5  # unreadable images that a message names; a file holds the names of all
MAX_LISTED_IMAGES = 500  # unreadable images beyond the allowed number, after which the search for others stops
BATCH, BATCH_BYTES = 64, 16 << 20  # images per task of the thread pool; encoded bytes read ahead for a task
T = TypeVar("T")
LARGE, LARGE_BATCH = 512, 4  # pixels per side from which tasks hold fewer images; images per task then


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The size and form in which decoded images are stored.

    Attributes:
        size: pixels per side, after resizing. None keeps images as they are; all must then have one size.
        channels: 1 for grey, 3 for RGB. None keeps them as they are; all must then be grey, or all in colour.
        whole: resize the whole image, whatever its shape, instead of its central square.
        as_published: decode as published protocols do: the orientation that a camera recorded (EXIF) is ignored, and
            GIF files are not read. Otherwise images are turned upright, and the first frame of a GIF is used.
    """

    size: int | None = None
    channels: int | None = None
    whole: bool = False
    as_published: bool = False


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """Decoded images in the order of their source, without those that could not be read.

    Attributes:
        images_NHWC: uint8; may be larger than memory.
        labels_N: int64.
        keys_N: uint64 hash of each image's pixels (`ImageSet.content_keys_N`).
        kept_N: int64, the index of each image in the source.
        unreadable: name and reason for each image that was left out.
    """

    images_NHWC: np.ndarray
    labels_N: np.ndarray
    keys_N: np.ndarray
    kept_N: np.ndarray
    unreadable: tuple[str, ...]


class Unreadable(Exception):
    """Raised for one image that cannot be decoded; others of the same source may be readable."""


def decode_all(source: Source, *, storage: Storage, where: str) -> Decoded:
    """Decode all images of a source on all cores, to the size and form that `storage` states. Progress is shown on
    stderr if it takes long.

    Args:
        where: name of the source in messages ("/data/flowers, train").

    Raises:
        UserError: sizes, or grey and colour, are mixed, and `storage` does not choose one; a larger fraction of the
            images than `max_unreadable()` cannot be read; an image claims more than MAX_PIXELS; the source holds no
            images.
    """
    images_NHWC: np.ndarray | None = None
    keys: list[int] = []
    kept: list[int] = []
    unreadable: list[str] = []
    count, first = len(source), ""
    progress = Progress(f"decoding {where}", count)
    for number, pixels in enumerate(_results(source, storage)):
        progress.step()
        name = ImageName(source, number)
        if isinstance(pixels, str):
            unreadable.append(f"{name} ({pixels})")
            if too_many(unreadable, count=count):
                break
            continue
        if images_NHWC is None:
            images_NHWC, first = cache.scratch((count, *pixels.shape)), str(name)
        elif pixels.shape != images_NHWC.shape[1:]:
            raise _mixed(where, first, images_NHWC.shape[1:], str(name), pixels.shape)
        images_NHWC[len(kept)] = pixels
        keys.append(content_key(pixels))
        kept.append(number)
    judge(unreadable, count=count, where=where)
    if images_NHWC is None:
        raise UserError(f"{where} holds no images.", "Is it the right folder, and was the copy finished?")
    kept_N = np.array(kept, dtype=np.int64)
    return Decoded(
        images_NHWC=images_NHWC[: len(kept)],
        labels_N=source.labels_N[kept_N],
        keys_N=np.array(keys, dtype=np.uint64),
        kept_N=kept_N,
        unreadable=tuple(unreadable),
    )


def pixels_of(data: bytes | np.ndarray, *, name: str | ImageName, storage: Storage) -> np.ndarray:
    """Return an image in the size and form that `storage` states, uint8 (H, W, C). `data`: an encoded image, which is
    decoded, or its pixels; `name`: the image's name in messages.

    Raises:
        UserError: the image claims more than MAX_PIXELS.
        Unreadable: the image cannot be decoded.
    """
    if isinstance(data, np.ndarray):
        if storage.size is None and storage.channels is None:
            return data
        return _stored(Image.fromarray(data[..., 0] if data.shape[-1] == 1 else data), storage)
    with opened(data, name=name, as_published=storage.as_published) as image:
        if storage.size is not None:
            image.draft(None, (2 * storage.size, 2 * storage.size))  # JPEG: skip detail that resizing averages away
        turned = not storage.as_published and orientation_of(image) != 1  # whether it has to be turned upright
        return _stored(ImageOps.exif_transpose(image) if turned else image, storage)


def facts_of(data: bytes, *, name: str | ImageName, as_published: bool) -> tuple[int, int, int, int]:
    """Return (height, width, channels, EXIF orientation) of an encoded image, after checking that it can be decoded.
    Height and width are those of the upright image.

    A JPEG is decoded at an eighth of its size: this is fast, but reads the whole file and so finds any damage.

    Args:
        name: the image's name in messages.
        as_published: see `Storage`.

    Raises:
        UserError: the image claims more than MAX_PIXELS, or has more than MAX_FILE_BYTES.
        Unreadable: the image cannot be decoded.
    """
    with opened(data, name=name, as_published=as_published) as image:
        width, height = image.size
        orientation = 1 if as_published else orientation_of(image)
        if orientation >= 5:  # the image lies on its side
            width, height = height, width
        channels = 1 if image.mode in GREY else 3
        image.draft(None, (max(1, image.width // 8), max(1, image.height // 8)))
        image.load()
        eight_bits(image)
        return height, width, channels, orientation


@contextmanager
def opened(data: bytes, *, name: str | ImageName, as_published: bool) -> Iterator[Image.Image]:
    """Open an encoded image, as a context manager, without decoding it. Errors that Pillow raises inside the block
    become a UserError or `Unreadable`. `name`: the image's name in messages; `as_published`: see `Storage`.

    Raises:
        UserError: the image claims more than MAX_PIXELS, or has more than MAX_FILE_BYTES.
        Unreadable: the image cannot be decoded.
    """
    if len(data) > MAX_FILE_BYTES:
        raise UserError(f"{name} is {len(data):,} bytes long.", f"An image may be {MAX_FILE_BYTES:,}.")
    formats = FORMATS if as_published else OWN_FORMATS
    try:
        with Image.open(io.BytesIO(data), formats=formats) as image:
            size = f"{image.width:,} × {image.height:,} pixels"
            if image.width * image.height > MAX_PIXELS:
                raise _bomb(name, size)
            if image.format == "JPEG" and image.width * image.height > PIXELS_PER_BYTE * len(data):
                raise Unreadable(f"{size} cannot be in {len(data):,} bytes")
            if image.mode == "F" or (image.mode.startswith("I") and not _has_16_bits(image)):
                raise Unreadable(f"pixels of kind {image.mode}, not 8 or 16 bits: scale them to 0 to 255 first")
            yield image
    except Image.DecompressionBombError as error:
        raise _bomb(name, str(error)) from error
    except UnidentifiedImageError as error:  # its own message names only an object in memory
        raise Unreadable(f"not a {', '.join(formats[:-1])} or {formats[-1]} image") from error
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError, struct.error, zlib.error) as error:
        raise Unreadable(" ".join(str(error).split()) or type(error).__name__) from error


def _has_16_bits(image: Image.Image) -> bool:
    return image.mode in DEEP and (image.mode != "I" or image.format in ("PNG", "PPM"))


def eight_bits(image: Image.Image) -> Image.Image:
    """Return a 16-bit grey image with its levels scaled from 0 to 65,535 to 0 to 255, in 8 bits; return other images
    unchanged. Pillow's own conversion does not scale levels, but cuts them off at 255.

    Raises:
        Unreadable: the image uses so few of the levels that it would be black.
    """
    if image.mode not in DEEP:
        return image
    values_HW = np.asarray(image)
    if 0 < (most := int(values_HW.max())) < DARK:
        raise Unreadable(f"16-bit grey up to {most:,} of 65,535 would be black: multiply it by {65_536 // DARK} first")
    return Image.fromarray(np.rint(values_HW / 257).clip(0, 255).astype(np.uint8))


def orientation_of(image: Image.Image) -> int:
    """Return the EXIF orientation of an image, 1 to 8, where 1 is upright; 1 if EXIF is missing or damaged."""
    try:
        noted = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # damaged EXIF raises errors of many kinds
        return 1
    return int(noted) if noted in range(2, 9) else 1


def head(data: bytes | np.ndarray) -> tuple[int, int, int] | None:
    """Return (height, width, channels) of an encoded image without decoding it, or of an array of pixels; None if the
    image cannot be read."""
    if isinstance(data, np.ndarray):
        height, width, channels = data.shape
        return height, width, channels
    try:
        with Image.open(io.BytesIO(data), formats=OWN_FORMATS) as image:
            return image.height, image.width, 1 if image.mode in GREY else 3
    except Exception:  # decoders raise any kind; unreadable images are counted when they are decoded
        return None


def _stored(image: Image.Image, storage: Storage) -> np.ndarray:
    channels = storage.channels or (1 if image.mode in GREY else 3)
    image = eight_bits(image)
    mode = "L" if channels == 1 else "RGB"
    image = image if image.mode == mode else image.convert(mode)
    if storage.size is not None and image.size != (storage.size, storage.size):
        width, height = image.size if storage.whole else (min(image.size),) * 2
        left, top = (image.width - width) / 2, (image.height - height) / 2
        side, box = (storage.size, storage.size), (left, top, left + width, top + height)
        image = image.resize(side, Image.Resampling.BICUBIC, box=box, reducing_gap=3.0)
    pixels = np.asarray(image)
    return pixels[..., None] if channels == 1 else pixels


def _results(source: Source, storage: Storage) -> Iterator[np.ndarray | str]:
    """Yield for every image, in order, its pixels in the form that `storage` states, or the reason why it cannot be
    decoded."""
    at_once = BATCH if storage.size and storage.size < LARGE else LARGE_BATCH
    return each(source, lambda data, name: pixels_of(data, name=name, storage=storage), at_once=at_once)


def each(
    source: Source, work: Callable[[bytes | np.ndarray, ImageName], T], *, at_once: int = BATCH
) -> Iterator[T | str]:
    """Yield for every image, in order, the result of `work(encoded image, name)`, or the reason why the image is
    unreadable. Threads on all cores call `work`, each for up to `at_once` images at a time, so that the number of
    images in memory is bounded."""

    def batch_of(batch: list[tuple[int, bytes | np.ndarray | None]]) -> list[T | str]:
        done: list[T | str] = []
        for number, data in batch:
            try:
                done.append(work(source.read(number) if data is None else data, ImageName(source, number)))
            except (Unreadable, OSError) as error:
                done.append(str(error))  # not the error itself: its traceback would keep the image in memory
        return done

    threads = min(16, cores())
    with ThreadPoolExecutor(threads) as pool:
        waiting: list[Future[list[T | str]]] = []
        for batch in _batches(source, at_once):
            waiting.append(pool.submit(batch_of, batch))
            if len(waiting) > 2 * threads:
                yield from waiting.pop(0).result()
        for future in waiting:
            yield from future.result()


def _batches(source: Source, most: int) -> Iterator[list[tuple[int, bytes | np.ndarray | None]]]:
    """Yield batches of up to `most` pairs (index of an image, its data). The data is None if the source has no
    `in_order`: then the thread that decodes the image reads it."""
    batch: list[tuple[int, bytes | np.ndarray | None]] = []
    size = 0
    given = source.in_order() if source.in_order else itertools.repeat(None)
    for number, data in zip(range(len(source)), given, strict=False):  # range comes first, because `given` may not end
        batch.append((number, data))
        size += len(data) if data is not None else 0
        if len(batch) == most or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    yield batch


def too_many(unreadable: Sequence[str], *, count: int) -> bool:
    """Whether so many of a set's `count` images are unreadable that the set will be refused, and the remaining images
    need not be read."""
    return len(unreadable) > max_unreadable() * count + MAX_LISTED_IMAGES


def judge(unreadable: list[str], *, count: int, where: str) -> None:
    """Warn about images that cannot be read.

    Args:
        unreadable: name and reason for each such image.
        count: number of all images, readable or not.
        where: name of the source in the message.

    Raises:
        UserError: they are a larger fraction of all images than `max_unreadable()`.
    """
    if not unreadable:
        return
    named = "; ".join(unreadable[:MAX_NAMED_IMAGES]) + _listed(unreadable, where=where)
    more = " or more" if too_many(unreadable, count=count) else ""
    what = f"{where}: {len(unreadable):,}{more} of {count:,} images cannot be read: {named}"
    if len(unreadable) > (most := max_unreadable()) * count:
        enough = f" {math.ceil(100 * len(unreadable) / count)}%" if not more else ""
        fix = f"Get them again, delete them, or leave out more than {most:.1%}: --max-unreadable{enough}."
        raise UserError(what, fix)
    warnings.warn(f"{what}. They are left out.", stacklevel=3)


def _listed(unreadable: Sequence[str], *, where: str) -> str:
    """Return the end of a message that names the first MAX_NAMED_IMAGES of the unreadable images: "" if there are no
    others; else "; …" and the path of a file to which the names of all are written. `where`: name of the source."""
    if len(unreadable) <= MAX_NAMED_IMAGES:
        return ""
    path = cache.directory() / f"unreadable-{zlib.crc32(where.encode(errors='surrogateescape')):08x}.txt"
    try:
        files.make_directory(path.parent)
        files.write_bytes(path, "".join(f"{line}\n" for line in unreadable).encode(errors="surrogateescape"))
    except UserError:  # the cache cannot be written, so the message names no file
        return "; …"
    return f"; … ({path} names all {len(unreadable):,})"


def _mixed(where: str, one: str, shape: tuple[int, ...], other: str, shape_2: tuple[int, ...]) -> UserError:
    if shape[-1] != shape_2[-1]:
        kind = {1: "grey", 3: "colour"}
        what = f"{where} mixes grey and colour: {one} is {kind[shape[-1]]}, {other} is {kind[shape_2[-1]]}."
        return UserError(what, "Add :rgb or :grey to the name of the set to have all of one kind.")
    sizes = [f"{height} × {width}" for height, width, _ in (shape, shape_2)]
    return UserError(
        f"{where} mixes sizes: {one} has {sizes[0]} pixels, {other} {sizes[1]}.",
        "Add a size to the name of the set, such as :64px, to have the central square of each resized to it.",
    )


def _bomb(name: str | ImageName, size: str) -> UserError:
    return UserError(
        f"{name} claims to be too large to be an image of a data set: {size}.",
        f"At most {MAX_PIXELS:,} pixels are decoded. Remove it or make it smaller.",
    )
