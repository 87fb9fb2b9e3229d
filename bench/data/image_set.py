"""`ImageSet`, the form in which all code passes labelled images: uint8 arrays with labels and their origin."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

Tier = Literal["resident", "mapped", "streamed"]
RESIDENT_SHARE = 0.4  # fraction of a device's free memory that training images may take; the model needs the rest
AHEAD_BYTES = 512 << 20  # bytes of pixels that are read ahead, if images are not resident
INDEX_BYTES = 46  # bytes per image of the index of encoded images: a row of `bench.data.index.IMAGE`
IN_MEMORY = 256 << 20  # bytes; larger selections from a memory-mapped array stay on the disk
BLOCK = 1_024  # images that are processed at a time


class LazyImages(ABC):
    """Images that are read only when they are indexed: like a uint8 array (N, H, W, C), but never in memory as a
    whole."""

    dtype, ndim = np.dtype(np.uint8), 4
    shape: tuple[int, int, int, int]

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, rows: Any) -> np.ndarray:
        """Return the pixels of the images in a slice or at positions (M,), uint8 (M, H, W, C)."""

    @abstractmethod
    def take(self, indices_M: np.ndarray) -> LazyImages:
        """Return the images at these positions, without reading them."""


class MappedImages(LazyImages):
    """A selection of images, `rows_N`, from a memory-mapped array, in any order."""

    def __init__(self, images_NHWC: np.ndarray, rows_N: np.ndarray) -> None:
        self.images_NHWC, self.rows_N = images_NHWC, rows_N
        self.shape = (len(rows_N), *images_NHWC.shape[1:])  # type: ignore[assignment]

    def __getitem__(self, rows: Any) -> np.ndarray:
        return self.images_NHWC[self.rows_N[rows]]

    def take(self, indices_M: np.ndarray) -> MappedImages:
        return MappedImages(self.images_NHWC, self.rows_N[indices_M])


FileOrPixels = bytes | np.ndarray  # an encoded JPEG, or uint8 pixels (H, W, C)


class EncodedImages(LazyImages):
    """Images that are decoded when they are indexed (`bench.data.stream`).

    Attributes:
        keys_N: uint64 hash of the bytes of each image's file.
        identity: text on what else the pixels depend on (size, channels, …); part of the set's content hash.
        encoded_bytes: bytes of all files together.
    """

    keys_N: np.ndarray
    identity: str
    encoded_bytes: int

    @abstractmethod
    def at(self, size: int) -> EncodedImages:
        """Return the same images, to be decoded at another size (pixels per side)."""

    @abstractmethod
    def sizes(self, rows_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (heights_B, widths_B) in pixels of the full images at positions `rows_B`."""

    @abstractmethod
    def read(
        self,
        rows_B: np.ndarray,
        boxes_4B: np.ndarray | None = None,
        *,
        out_BHWC: np.ndarray,
        resize: Callable[[np.ndarray, np.ndarray], None] | None = None,
    ) -> None:
        """Decode the images at positions `rows_B` into `out_BHWC`, uint8, for training. Runs in one thread.

        Args:
            boxes_4B: the part (top, left, height, width) of each full image to read; None for the pixels that indexing
                gives.
            resize: (pixels of a part, output) -> None; writes the part at the size of the output. Needed with
                `boxes_4B`.
        """

    @abstractmethod
    def files(self, rows_B: np.ndarray) -> list[FileOrPixels]:
        """Return the images at positions `rows_B`: each one's file, not decoded, if it is an upright baseline JPEG,
        else its pixels in full size. Runs in one thread."""


Images = np.ndarray | LazyImages  # uint8 (N, H, W, C); read it by slices


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Labelled images: in memory, memory-mapped, or decoded when they are read.

    Attributes:
        name, split: name of the data set, such as "fashion-mnist", and "train" or "test".
        images_NHWC: uint8, all of one size; C is 1 (grey) or 3 (RGB). Read it by slices: it may not fit in memory.
        labels_N: int64 in [0, num_classes).
        class_names: one name per class, in label order.
        kind: "photographs", "handwriting" (scanned), "rendered" or "own images"; every figure with the set states it.
        source: which copy was read, if there are several ("embedded part", "IDX files", …); for people, not hashed.
        multi_labels: all classes that are in each image, if they are annotated (`bench.data.real`), else None.
        several: whether `multi_labels` are what is to be learned: an image may have several classes or none. `labels_N`
            then holds one class per image, by which samples are balanced (`bench.data.labels.contents`).
        groups_N: uint64, equal for images that belong together (`bench.data.groups`); None if that is not known.
    """

    name: str
    split: str
    images_NHWC: Images
    labels_N: np.ndarray
    class_names: tuple[str, ...]
    kind: str
    source: str = ""
    multi_labels: tuple[tuple[int, ...], ...] | None = None
    several: bool = False
    groups_N: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.images_NHWC.dtype != np.uint8 or self.images_NHWC.ndim != 4:
            given = f"{self.images_NHWC.dtype} {self.images_NHWC.shape}"
            raise ValueError(f"{self.name}: images must be uint8 NHWC, not {given}")
        if len(self.images_NHWC) != len(self.labels_N):
            raise ValueError(f"{self.name}: {len(self.images_NHWC)} images but {len(self.labels_N)} labels")
        if len(self.labels_N) and not 0 <= int(self.labels_N.min()) <= int(self.labels_N.max()) < self.num_classes:
            raise ValueError(f"{self.name}: labels outside 0..{self.num_classes - 1}")
        if self.multi_labels is not None and len(self.multi_labels) != len(self.labels_N):
            raise ValueError(f"{self.name}: {len(self.multi_labels)} lists of classes for {len(self.labels_N)} images")

    def __len__(self) -> int:
        return len(self.labels_N)

    @property
    def targets_NK(self) -> np.ndarray:
        """Which of the K classes each image has, bool (N, K), from `multi_labels`, which must be set."""
        targets_NK = np.zeros((len(self), self.num_classes), dtype=bool)
        for row_K, classes in zip(targets_NK, self.multi_labels or (), strict=True):
            row_K[list(classes)] = True
        return targets_NK

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of the images."""
        height, width, channels = self.images_NHWC.shape[1:]
        return height, width, channels

    @property
    def decoded_bytes(self) -> int:
        """Bytes of the pixels of all images, once decoded."""
        height, width, channels = self.image_shape
        return len(self) * height * width * channels

    @property
    def encoded_bytes(self) -> int | None:
        """Bytes of all encoded image files; None if images are not decoded when they are read."""
        return self.images_NHWC.encoded_bytes if isinstance(self.images_NHWC, EncodedImages) else None

    def tier(self, free_bytes: int) -> Tier:
        """Return where training reads these images from ("resident", "mapped" or "streamed", see `tier_of`), on a
        device with `free_bytes` of free memory."""
        return tier_of(self.decoded_bytes, free_bytes, encoded=isinstance(self.images_NHWC, EncodedImages))

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the pixels of all images, BLOCK images at a time, uint8 (B, H, W, C)."""
        for start in range(0, len(self), BLOCK):
            yield np.ascontiguousarray(self.images_NHWC[start : start + BLOCK])

    @cached_property
    def content_hash(self) -> str:
        """sha256 of shape, pixels and labels: the same images have the same hash, whatever files they are stored in.
        For encoded images it covers the bytes of their files and how they are decoded, instead of pixels."""
        images, labels = self.images_NHWC, np.ascontiguousarray(self.labels_N, dtype="<i8")
        several = repr(self.multi_labels).encode() if self.several else b""
        if (known := (*_place(images), hashlib.sha256(labels.tobytes() + several).digest())) in _hashes:
            return _hashes[known]
        digest = hashlib.sha256(repr(tuple(images.shape)).encode())
        if isinstance(images, EncodedImages):
            digest.update(images.identity.encode())
            digest.update(np.ascontiguousarray(images.keys_N, dtype="<u8").data)
        else:
            for block in self.blocks():
                digest.update(block.data)
        digest.update(labels.data)
        digest.update(several)
        if len(known) > 1:
            _hashes[known] = digest.hexdigest()
        return digest.hexdigest()

    @cached_property
    def content_keys_N(self) -> np.ndarray:
        """A hash of each image's content, uint64 (N,). Random samples that are ordered by these hashes do not depend on
        the order of images in a file."""
        if isinstance(self.images_NHWC, EncodedImages):
            return self.images_NHWC.keys_N
        keys = (content_key(pixels) for block in self.blocks() for pixels in block)
        return np.fromiter(keys, dtype=np.uint64, count=len(self))

    def take(self, indices_M: np.ndarray) -> ImageSet:
        """Return the images at `indices_M`, in that order."""
        several, images = self.multi_labels, self.images_NHWC
        if isinstance(images, np.memmap) and len(indices_M) * images[:1].nbytes > IN_MEMORY:
            images = MappedImages(images, np.arange(len(images)))
        return replace(
            self,
            images_NHWC=images.take(indices_M) if isinstance(images, LazyImages) else images[indices_M],
            labels_N=self.labels_N[indices_M],
            multi_labels=None if several is None else tuple(several[i] for i in np.asarray(indices_M).tolist()),
            groups_N=None if self.groups_N is None else self.groups_N[indices_M],
        )


_hashes: dict[tuple[Any, ...], str] = {}  # content hashes of mapped images: hashing many gigabytes takes long


def _place(images: Images) -> tuple[Any, ...]:
    """Return a key that identifies the present state of the file that memory-mapped images lie in, and which rows of it
    they are; () for images that are not memory-mapped."""
    mapped = images.images_NHWC if isinstance(images, MappedImages) else images
    if not isinstance(mapped, np.memmap) or mapped.mode != "r" or mapped.filename is None:
        return ()
    file, rows = os.stat(mapped.filename), getattr(images, "rows_N", np.arange(0))
    start = np.frombuffer(mapped._mmap, dtype=np.uint8).__array_interface__["data"][0]  # type: ignore[attr-defined]
    where = mapped.__array_interface__["data"][0] - start, mapped.strides, images.shape
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, where, hashlib.sha256(rows.tobytes()).digest()


def tier_of(decoded_bytes: int, free_bytes: int, *, encoded: bool) -> Tier:
    """Return from where training reads images: "resident", all pixels in the memory of the device; "mapped", pixels
    mapped from the disk; "streamed", encoded files. The first two give the same batches.

    Args:
        decoded_bytes: bytes of all pixels.
        free_bytes: free memory of the device.
        encoded: whether the images are decoded when they are read.
    """
    if encoded:
        return "streamed"
    return "resident" if decoded_bytes <= RESIDENT_SHARE * free_bytes else "mapped"


def content_key(pixels: np.ndarray) -> int:
    """Return a 64-bit hash of one image's pixels; images of one size with equal pixels have the same hash."""
    return int.from_bytes(hashlib.blake2b(np.ascontiguousarray(pixels).data, digest_size=8).digest(), "little")
