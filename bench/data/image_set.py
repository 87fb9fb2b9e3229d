"""The one shape in which images travel: uint8 arrays with labels and where they came from."""

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
RESIDENT_SHARE = 0.4  # of a device's free memory that training images may take; the model needs the rest
AHEAD_BYTES = 512 << 20  # of pixels under way, where they are not resident
INDEX_BYTES = 46  # per image, of the index of encoded images: a row of `bench.data.index.IMAGE`
IN_MEMORY = 256 << 20  # bytes; parts of a memory-mapped array that are larger stay on the disk
BLOCK = 1_024  # images that are looked at together


class LazyImages(ABC):
    """Images that are read when they are indexed: like an array of uint8 (N, H, W, C), never whole in memory."""

    dtype, ndim = np.dtype(np.uint8), 4
    shape: tuple[int, int, int, int]

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, rows: Any) -> np.ndarray:
        """The pixels of a slice or of positions (M,)."""

    @abstractmethod
    def take(self, indices_M: np.ndarray) -> LazyImages:
        """The images at these positions, still unread."""


class MappedImages(LazyImages):
    """Some rows of a memory-mapped array, in any order."""

    def __init__(self, images_NHWC: np.ndarray, rows_N: np.ndarray) -> None:
        self.images_NHWC, self.rows_N = images_NHWC, rows_N
        self.shape = (len(rows_N), *images_NHWC.shape[1:])  # type: ignore[assignment]

    def __getitem__(self, rows: Any) -> np.ndarray:
        return self.images_NHWC[self.rows_N[rows]]

    def take(self, indices_M: np.ndarray) -> MappedImages:
        return MappedImages(self.images_NHWC, self.rows_N[indices_M])


FileOrPixels = bytes | np.ndarray  # a JPEG, or pixels uint8 (H, W, C)


class EncodedImages(LazyImages):
    """Images that are decoded when they are indexed (`bench.data.stream`).

    Attributes:
        keys_N: uint64 per image, from its file's bytes.
        identity: what else the pixels follow from.
        encoded_bytes: of all files together.
    """

    keys_N: np.ndarray
    identity: str
    encoded_bytes: int

    @abstractmethod
    def at(self, size: int) -> EncodedImages:
        """The set's images, decoded at another size."""

    @abstractmethod
    def sizes(self, rows_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(heights_B, widths_B) of the full images."""

    @abstractmethod
    def read(
        self,
        rows_B: np.ndarray,
        boxes_4B: np.ndarray | None = None,
        *,
        out_BHWC: np.ndarray,
        resize: Callable[[np.ndarray, np.ndarray], None] | None = None,
    ) -> None:
        """Read images for training, into uint8 (B, H, W, C): of each full image a part (top, left, height, width),
        which `resize` brings to this size; or as indexing gives it. In one thread."""

    @abstractmethod
    def files(self, rows_B: np.ndarray) -> list[FileOrPixels]:
        """Upright baseline JPEGs as they are; of other files the pixels, in full size. In one thread."""


Images = np.ndarray | LazyImages  # uint8 (N, H, W, C), read by slices


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Labelled images: in memory, memory-mapped, or decoded when they are read.

    Attributes:
        name, split: where they come from, e.g. "fashion-mnist", "train" | "test".
        images_NHWC: uint8, all of one size; C is 1 (grey) or 3 (RGB). Read it by slices: it may not fit in memory.
        labels_N: int64 in [0, num_classes).
        class_names: one per class, in label order.
        kind: "photographs", "handwriting" (scanned), "rendered" or "own images"; every figure with the set says it.
        source: which copy was read, where there are several ("embedded part", "IDX files", …); for people, not hashed.
        multi_labels: all classes that are in each image, where they are annotated (`bench.data.real`), else None.
        several: whether `multi_labels` are what is to be learned: an image may have several classes or none, and its
            label is the rarest of them, by which images are drawn (`bench.data.labels`).
        groups_N: uint64, equal for images that belong together (`bench.data.groups`); None where nobody says.
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
        """bool, which classes each image has."""
        targets_NK = np.zeros((len(self), self.num_classes), dtype=bool)
        for row_K, classes in zip(targets_NK, self.multi_labels or (), strict=True):
            row_K[list(classes)] = True
        return targets_NK

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels)"""
        height, width, channels = self.images_NHWC.shape[1:]
        return height, width, channels

    @property
    def decoded_bytes(self) -> int:
        """Bytes of all pixels, in memory or mapped."""
        height, width, channels = self.image_shape
        return len(self) * height * width * channels

    @property
    def encoded_bytes(self) -> int | None:
        """Bytes on the disk of the files of images that are decoded when they are read; None for others."""
        return self.images_NHWC.encoded_bytes if isinstance(self.images_NHWC, EncodedImages) else None

    def tier(self, free_bytes: int) -> Tier:
        """The tier that `tier_of` finds."""
        return tier_of(self.decoded_bytes, free_bytes, encoded=isinstance(self.images_NHWC, EncodedImages))

    def blocks(self) -> Iterator[np.ndarray]:
        """All pixels, some images at a time."""
        for start in range(0, len(self), BLOCK):
            yield np.ascontiguousarray(self.images_NHWC[start : start + BLOCK])

    @cached_property
    def content_hash(self) -> str:
        """sha256 over shape, pixels and labels: the same images give the same hash, whatever file carried them. For
        encoded images it is over what their files hold and how they are decoded."""
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
        """uint64 per image, from its content alone: draws that follow it do not depend on the order in a file."""
        if isinstance(self.images_NHWC, EncodedImages):
            return self.images_NHWC.keys_N
        keys = (content_key(pixels) for block in self.blocks() for pixels in block)
        return np.fromiter(keys, dtype=np.uint64, count=len(self))

    def take(self, indices_M: np.ndarray) -> ImageSet:
        """The images at `indices_M`, in that order."""
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


_hashes: dict[tuple[Any, ...], str] = {}  # of mapped images, which may be many gigabytes that every cell reads


def _place(images: Images) -> tuple[Any, ...]:
    """Which rows of which file, as it is now, mapped images are; () for others."""
    mapped = images.images_NHWC if isinstance(images, MappedImages) else images
    if not isinstance(mapped, np.memmap) or mapped.mode != "r" or mapped.filename is None:
        return ()
    file, rows = os.stat(mapped.filename), getattr(images, "rows_N", np.arange(0))
    start = np.frombuffer(mapped._mmap, dtype=np.uint8).__array_interface__["data"][0]  # type: ignore[attr-defined]
    where = mapped.__array_interface__["data"][0] - start, mapped.strides, images.shape
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, where, hashlib.sha256(rows.tobytes()).digest()


def tier_of(decoded_bytes: int, free_bytes: int, *, encoded: bool) -> Tier:
    """The tier that training reads images from, on a device with so much free memory: whole in its memory; stored
    pixels, mapped from the disk; or encoded files. The first two give the same batches."""
    if encoded:
        return "streamed"
    return "resident" if decoded_bytes <= RESIDENT_SHARE * free_bytes else "mapped"


def content_key(pixels: np.ndarray) -> int:
    """64-bit hash of one image's pixels: the same for equal images of one size."""
    return int.from_bytes(hashlib.blake2b(np.ascontiguousarray(pixels).data, digest_size=8).digest(), "little")
