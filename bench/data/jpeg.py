"""Decoding of a part of an image at another size, the most frequent operation when training on full images.

The result is defined independently of how fast it is computed. libjpeg-turbo decodes a JPEG (accurate integer DCT,
smooth chroma) at the smallest of the scales 1, 1/2, 1/4, 1/8 at which the part is still as large as the output; the
part is rounded down to whole pixels, cut out, and resized bilinearly without a low-pass filter.
(google-research/vision_transformer resizes in the same way, with `tf.image.resize`, but at full scale.) Packed pixels
(`bench.data.raw`) are reduced to such a scale by averaging 2 x 2 pixels, up to three times; files of other formats are
not reduced before they are resized. Grey is the luma of a JPEG, and Rec. 601 luma of other files. simplejpeg, if it is
installed, and Pillow give the same bytes.

Two tricks make it fast. Rows below the part are not decoded: the height in the header of a baseline JPEG is reduced, so
that the decoder stops there. And pixels are decoded into one buffer that is reused.
"""

from __future__ import annotations

import io
import struct
import threading
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image, ImageOps

from bench.data import raw
from bench.data.decode import eight_bits

try:
    import simplejpeg
except ImportError:
    simplejpeg = None

BASELINE = (0xC0, 0xC1)  # markers of frames that are coded sequentially, from top to bottom
MARGIN, BLOCK = 8, 16  # rows below a part on which its pixels may depend; rows of a block of a JPEG
_buffers = threading.local()


Resize = Callable[[np.ndarray, np.ndarray], None]


def read_part(data: bytes, box: Sequence[int], *, out_SSC: np.ndarray, resize: Resize, orientation: int = 1) -> None:
    """Decode a part of an image and write it, resized, into `out_SSC`.

    Args:
        data: an encoded image or packed pixels.
        box: the part: top, left, height, width, in pixels of the upright image.
        out_SSC: output, uint8 (size, size, 1 or 3).
        resize: (part_HWC, out_SSC) -> None; writes the part at the size of the output (`bench.train.reading.resize`).
        orientation: EXIF orientation of the file's pixels (1: upright).

    Raises:
        OSError, ValueError: the image cannot be decoded.
    """
    top, left, height, width = map(int, box)
    size, _, channels = out_SSC.shape
    times = halvings((top, left, height, width), size=size)
    if raw.is_raw(data):
        pixels_HWC = raw.pixels(data)
        if pixels_HWC.shape[2] != channels:
            pixels_HWC = opened(data, channels=channels)
        top, left, height, width = (length >> times << times for length in (top, left, height, width))
        resize(_halved(pixels_HWC[top : top + height, left : left + width], times, resize), out_SSC)
        return
    frame = _frame(data) if orientation == 1 else None
    if frame is not None and simplejpeg is not None:
        pixels_HWC = _decoded(data, frame, bottom=top + height, times=times, channels=channels)
    else:
        pixels_HWC = opened(data, times=times, channels=channels, orientation=orientation)
        times = times if data[:2] == b"\xff\xd8" else 0
    top, left = top >> times, left >> times
    part_HWC = pixels_HWC[top : top + (height >> times), left : left + (width >> times)]
    resize(part_HWC, out_SSC)


def _halved(part_HWC: np.ndarray, times: int, resize: Resize) -> np.ndarray:
    """Return a part of an image with its sides halved `times` times by `resize`. Sides must be divisible by 2**times:
    then bilinear interpolation is the mean of 2 x 2 pixels."""
    for _ in range(times):
        height, width, channels = part_HWC.shape
        half_HWC = np.empty((height // 2, width // 2, channels), dtype=np.uint8)
        resize(part_HWC, half_HWC)
        part_HWC = half_HWC
    return part_HWC


def halvings(box: Sequence[int], *, size: int) -> int:
    """Return how many times (at most 3) a part (top, left, height, width) can be halved without its shorter side
    getting smaller than `size` pixels."""
    return min(3, max(0, (min(box[2:]) // size).bit_length() - 1))


def is_baseline(data: bytes) -> bool:
    """Whether a file is a baseline JPEG with one (grey) or three components."""
    return _frame(data) is not None


def _frame(data: bytes) -> tuple[int, int, int] | None:
    """Return (offset of the height in the file, height, width) of a baseline JPEG with one or three components; None
    for any other file."""
    place = 2
    if data[:2] != b"\xff\xd8":
        return None
    while place + 9 < len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker in BASELINE:
            height, width, components = struct.unpack_from(">HHB", data, place + 5)
            return (place + 5, height, width) if components in (1, 3) and height and width else None
        if marker in (0xC2, 0xD9, 0xDA):
            return None
        place += 2 + (data[place + 2] << 8 | data[place + 3])
    return None


def _decoded(data: bytes, frame: tuple[int, int, int], *, bottom: int, times: int, channels: int) -> np.ndarray:
    """Decode a baseline JPEG from the top to the row `bottom` or slightly below, at 1 / 2**times of its size. Return
    uint8 (H, W, channels), valid until the next call in this thread. `frame`: what `_frame` returns for the file."""
    place, height, width = frame
    rows = (bottom + MARGIN + BLOCK - 1) // BLOCK * BLOCK
    if rows < height:
        height, data = rows, b"".join((data[:place], struct.pack(">H", rows), data[place + 2 :]))
    reduced = [-(-side // (1 << times)) for side in (height, width)]
    needed = reduced[0] * reduced[1] * channels
    buffer = getattr(_buffers, "pixels", None)
    if buffer is None or len(buffer) < needed:
        buffer = _buffers.pixels = np.empty(max(needed, 1 << 20), dtype=np.uint8)
    return simplejpeg.decode_jpeg(
        data,
        "RGB" if channels == 3 else "GRAY",
        min_height=reduced[0] if times else 0,
        min_width=reduced[1] if times else 0,
        buffer=buffer,
        strict=False,
    )


def opened(data: bytes, *, channels: int, times: int = 0, orientation: int = 1) -> np.ndarray:
    """Decode a whole image with Pillow; return it upright, uint8 (H, W, channels). JPEGs are decoded at 1 / 2**times of
    their size, other files in full size."""
    mode = "L" if channels == 1 else "RGB"
    with Image.open(io.BytesIO(data)) as image:
        if image.format == "JPEG":
            reduced = image.width >> times, image.height >> times
            image.draft("L" if channels == 1 and image.mode in ("RGB", "L") else None, reduced)
        upright = eight_bits(ImageOps.exif_transpose(image) if orientation != 1 else image)
        pixels = np.asarray(upright if upright.mode == mode else upright.convert(mode))
    return pixels[..., None] if channels == 1 else pixels
