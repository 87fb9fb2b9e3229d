"""Encoded images that behave like an array of pixels: an image is read from its file and decoded when it is indexed.

Indexing gives the pixels that the set would have if it were decoded and stored (`bench.data.decode.pixels_of`): an
image's central square, or all of it, at one size. `bench.data.jpeg` defines the parts that training cuts out of the
full image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from bench.core.environment import cores
from bench.core.errors import UserError
from bench.data import jpeg
from bench.data.decode import Storage, Unreadable, pixels_of
from bench.data.image_set import EncodedImages, FileOrPixels
from bench.data.index import ImageIndex

SMALLEST_TASK = 8  # least number of images that a thread decodes in one task


class StreamedImages(EncodedImages):
    """Images of an index that are decoded when they are read: all images of the index, or a selection in any order.

    Args:
        index: where the encoded images lie.
        storage: size and form in which they are decoded; its size and channels must be set.
        rows_N: positions of the selected images in the index; None for all.
    """

    def __init__(self, index: ImageIndex, storage: Storage, rows_N: np.ndarray | None = None) -> None:
        assert storage.size is not None and storage.channels is not None
        self.index, self.storage, self._rows_N = index, storage, rows_N
        self.size, self.channels = storage.size, storage.channels
        number = len(index) if rows_N is None else len(rows_N)
        self.shape = (number, self.size, self.size, self.channels)
        self.identity = repr(storage)
        self._ahead: tuple[tuple[int, int], Future[np.ndarray]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamedImages, (self.index, self.storage, self._rows_N)

    def rows(self, chosen: Any = slice(None)) -> np.ndarray:
        """Return the positions in the index of chosen images. `chosen`: a slice, positions or a mask among the images
        of this selection; all of them by default."""
        if self._rows_N is not None:
            return self._rows_N[chosen]
        if isinstance(chosen, slice):
            return np.arange(*chosen.indices(len(self)))
        return np.arange(len(self))[chosen] if getattr(chosen, "dtype", None) == np.bool_ else np.asarray(chosen)

    def take(self, indices_M: np.ndarray) -> StreamedImages:
        return StreamedImages(self.index, self.storage, self.rows(np.asarray(indices_M)))

    def at(self, size: int) -> StreamedImages:
        return StreamedImages(self.index, replace(self.storage, size=size), self._rows_N)

    @cached_property
    def keys_N(self) -> np.ndarray:  # type: ignore[override]
        return self.index.key if self._rows_N is None else self.index.key[self._rows_N]

    @property
    def encoded_bytes(self) -> int:  # type: ignore[override]
        """Approximate bytes of the selected encoded images: the mean over the whole index times their number."""
        return round(self.index.encoded_bytes * len(self) / max(1, len(self.index)))

    def sizes(self, rows_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen = self.rows(rows_B)
        return self.index.height[chosen].astype(np.int64), self.index.width[chosen].astype(np.int64)

    def __getitem__(self, chosen: Any) -> np.ndarray:
        """Return the chosen images (a position, positions or a slice), decoded by threads: uint8 (M, size, size, C).
        After a slice, the next slice of the same length is decoded in the background, because reads are mostly
        sequential."""
        if isinstance(chosen, int | np.integer):
            return self[np.array([chosen])][0]
        if not isinstance(chosen, slice):
            return self._decode(self.rows(chosen))
        start, stop, step = chosen.indices(len(self))
        if step != 1 or stop - start < SMALLEST_TASK:
            return self._decode(self.rows(chosen))
        place, ahead = self._ahead or ((-1, -1), None)
        pixels = ahead.result() if ahead is not None and place == (start, stop) else None
        self._ahead = None
        if pixels is None:
            pixels = self._decode(self.rows(chosen))
        following = (stop, min(2 * stop - start, len(self)))
        if following[0] < following[1]:
            self._ahead = following, _SINGLE.submit(self._decode, self.rows(slice(*following)))
        return pixels

    def _decode(self, rows_M: np.ndarray) -> np.ndarray:
        out_MSSC = np.empty((len(rows_M), *self.shape[1:]), dtype=np.uint8)
        self._fill(rows_M, None, out_MSSC=out_MSSC, threads=cores())
        return out_MSSC

    def read(
        self,
        rows_B: np.ndarray,
        boxes_4B: np.ndarray | None = None,
        *,
        out_BHWC: np.ndarray,
        resize: jpeg.Resize | None = None,
    ) -> None:
        self._fill(self.rows(rows_B), boxes_4B, out_MSSC=out_BHWC, threads=1, resize=resize)

    def files(self, rows_B: np.ndarray) -> list[FileOrPixels]:
        found: list[FileOrPixels] = []
        for row in self.rows(rows_B).tolist():
            data, orientation = self.index.read(row), int(self.index.orientation[row])
            with self._decodable(row):
                as_it_is = orientation == 1 and jpeg.is_baseline(data)
                found.append(data if as_it_is else jpeg.opened(data, channels=self.channels, orientation=orientation))
        return found

    def _fill(
        self,
        rows_M: np.ndarray,
        boxes_4M: np.ndarray | None,
        *,
        out_MSSC: np.ndarray,
        threads: int,
        resize: jpeg.Resize | None = None,
    ) -> None:
        """Decode the images at rows `rows_M` of the index into `out_MSSC`, with this number of threads.

        Args:
            boxes_4M: the part (top, left, height, width) of each image to decode; None for the image as `storage`
                describes.
            resize: see `jpeg.read_part`; needed with `boxes_4M`.

        Raises:
            UserError: an image can no longer be read.
        """
        boxes = [None] * len(rows_M) if boxes_4M is None else boxes_4M.T.tolist()

        def some(part: slice) -> None:
            for row, box, out_SSC in zip(rows_M[part].tolist(), boxes[part], out_MSSC[part], strict=True):
                with self._decodable(row):
                    put(
                        self.index.read(row),
                        box,
                        name=self.index.name(row),
                        out_SSC=out_SSC,
                        storage=self.storage,
                        resize=resize,
                        orientation=int(self.index.orientation[row]),
                    )

        each = max(SMALLEST_TASK, -(-len(rows_M) // (4 * threads)))
        parts = [slice(start, start + each) for start in range(0, len(rows_M), each)]
        if threads == 1 or len(parts) == 1:
            some(slice(None))
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(some, parts))

    @contextmanager
    def _decodable(self, row: int) -> Iterator[None]:
        try:
            yield
        except (Unreadable, OSError, ValueError) as error:
            what = f"{self.index.name(row)} could be decoded when it was indexed, and no longer: {error}."
            fix = "Get the file again; or delete it, and what is left is another set."
            raise UserError(what, fix) from error


def put(
    data: bytes,
    box: Sequence[int] | None,
    *,
    name: str,
    out_SSC: np.ndarray,
    storage: Storage,
    resize: jpeg.Resize | None,
    orientation: int,
) -> None:
    """Decode an image into `out_SSC`: if `box` and `resize` are given, the part `box` of the full image, resized (see
    `jpeg.read_part`); otherwise the image as `storage` describes. `name`: the image's name in messages.

    Raises:
        Unreadable, OSError, ValueError: the image cannot be decoded.
    """
    if box is None or resize is None:
        out_SSC[:] = pixels_of(data, name=name, storage=storage)
    else:
        jpeg.read_part(data, box, out_SSC=out_SSC, resize=resize, orientation=orientation)


_SINGLE = ThreadPoolExecutor(1)
