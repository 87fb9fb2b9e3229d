"""A part of an encoded image at another size: what training on full images does most.

The result is defined without regard to speed: the image as libjpeg-turbo decodes it (accurate integer DCT, smooth
chroma), at the smallest of the scales 1, 1/2, 1/4, 1/8 at which the part is still as large as what is wanted; of that
the part, rounded down to whole pixels; resized bilinearly without a low-pass. (google-research/vision_transformer
resizes so too, with `tf.image.resize`, but at full scale.) A grey image is the luma of a JPEG, and Rec. 601 luma of
others. simplejpeg, where it is installed, and Pillow give the same bytes. Of packed pixels (`bench.data.raw`) the part
is halved by means of four; of any other file it is not halved.

Two things make it fast. Rows below the part are not decoded: a baseline JPEG whose header says that it ends there is
read no further. And pixels are decoded into one buffer that stays.
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

BASELINE = (0xC0, 0xC1)  # markers of frames that are coded from top to bottom
MARGIN, BLOCK = 8, 16  # rows below a part that its pixels may depend on; rows of a block
_buffers = threading.local()


Resize = Callable[[np.ndarray, np.ndarray], None]


def read_part(data: bytes, box: Sequence[int], *, out_SSC: np.ndarray, resize: Resize, orientation: int = 1) -> None:
    """Put (top, left, height, width) of the image, upright, into uint8 (size, size, 1 or 3).

    Args:
        resize: (part_HWC, out_SSC) puts the one, resized, into the other (`bench.train.reading.resize`).
        orientation: how the file's pixels lie, as EXIF counts (1: upright).

    Raises:
        OSError, ValueError: it cannot be decoded.
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
    """A part of even sides, halved so many times: between two pixels, bilinear interpolation is their mean."""
    for _ in range(times):
        height, width, channels = part_HWC.shape
        half_HWC = np.empty((height // 2, width // 2, channels), dtype=np.uint8)
        resize(part_HWC, half_HWC)
        part_HWC = half_HWC
    return part_HWC


def halvings(box: Sequence[int], *, size: int) -> int:
    """How often a part (top, left, height, width) is halved, up to three times, before it would be smaller than
    `size` pixels."""
    return min(3, max(0, (min(box[2:]) // size).bit_length() - 1))


def is_baseline(data: bytes) -> bool:
    """Whether a file is a baseline JPEG, grey or of three components."""
    return _frame(data) is not None


def _frame(data: bytes) -> tuple[int, int, int] | None:
    """(place of the height in the file, height, width) of a baseline JPEG, grey or of three components."""
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
    """The image down to the row `bottom` or somewhat below, halved so many times."""
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
    """The whole image (H, W, channels), upright, halved so many times where it is a JPEG, by Pillow."""
    mode = "L" if channels == 1 else "RGB"
    with Image.open(io.BytesIO(data)) as image:
        if image.format == "JPEG":
            reduced = image.width >> times, image.height >> times
            image.draft("L" if channels == 1 and image.mode in ("RGB", "L") else None, reduced)
        upright = eight_bits(ImageOps.exif_transpose(image) if orientation != 1 else image)
        pixels = np.asarray(upright if upright.mode == mode else upright.convert(mode))
    return pixels[..., None] if channels == 1 else pixels
