"""The one shape in which images travel: uint8 arrays with labels and where they came from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Labelled images in memory (or memory-mapped).

    Attributes:
        name, split: where they come from, e.g. "fashion-mnist", "train" | "test".
        images_NHWC: uint8, all of one size; C is 1 (grey) or 3 (RGB).
        labels_N: int64 in [0, num_classes).
        class_names: one per class, in label order.
        kind: "photographs", "handwriting" (scanned), "rendered" or "own images"; every figure with the set says it.
        source: which copy was read, where there are several ("embedded part", "IDX files", …); for people, not hashed.
        multi_labels: all classes that are in each image, where they are annotated (`bench.data.real`), else None.
    """

    name: str
    split: str
    images_NHWC: np.ndarray
    labels_N: np.ndarray
    class_names: tuple[str, ...]
    kind: str
    source: str = ""
    multi_labels: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        if self.images_NHWC.dtype != np.uint8 or self.images_NHWC.ndim != 4:
            found = f"{self.images_NHWC.dtype} {self.images_NHWC.shape}"
            raise ValueError(f"{self.name}: images must be uint8 NHWC, not {found}")
        if len(self.images_NHWC) != len(self.labels_N):
            raise ValueError(f"{self.name}: {len(self.images_NHWC)} images but {len(self.labels_N)} labels")
        if len(self.labels_N) and not 0 <= int(self.labels_N.min()) <= int(self.labels_N.max()) < self.num_classes:
            raise ValueError(f"{self.name}: labels outside 0..{self.num_classes - 1}")
        if self.multi_labels is not None and len(self.multi_labels) != len(self.labels_N):
            raise ValueError(f"{self.name}: {len(self.multi_labels)} lists of classes for {len(self.labels_N)} images")

    def __len__(self) -> int:
        return len(self.labels_N)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @cached_property
    def content_hash(self) -> str:
        """sha256 over shape, pixels and labels: the same images give the same hash, whatever file carried them."""
        digest = hashlib.sha256(repr(self.images_NHWC.shape).encode())
        digest.update(np.ascontiguousarray(self.images_NHWC).data)
        digest.update(np.ascontiguousarray(self.labels_N, dtype="<i8").data)
        return digest.hexdigest()

    @cached_property
    def content_keys_N(self) -> np.ndarray:
        """uint64 per image, from its pixels alone: draws that follow it do not depend on the order in a file."""
        rows_N = np.ascontiguousarray(self.images_NHWC).reshape(len(self), -1)
        return np.fromiter((content_key(row) for row in rows_N), dtype=np.uint64, count=len(self))

    def take(self, indices_M: np.ndarray) -> ImageSet:
        """The images at `indices_M`, in that order."""
        several = self.multi_labels
        return replace(
            self,
            images_NHWC=self.images_NHWC[indices_M],
            labels_N=self.labels_N[indices_M],
            multi_labels=None if several is None else tuple(several[i] for i in np.asarray(indices_M).tolist()),
        )


def content_key(pixels: np.ndarray) -> int:
    """64-bit hash of one image's pixels: the same for equal images of one size."""
    return int.from_bytes(hashlib.blake2b(np.ascontiguousarray(pixels).data, digest_size=8).digest(), "little")
