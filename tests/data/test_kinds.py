"""Photographs as people have them: every kind of image file is read as Pillow reads it upright, stored and streamed, or
is counted and named."""

from __future__ import annotations

import io
import re
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from bench.data.load import load
from bench.train.reading import resize

SIDE = 24
PIXELS = np.random.default_rng(0).integers(0, 256, (3, 3, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
PICTURE = Image.fromarray(PIXELS)
OTHER = Image.fromarray(255 - PIXELS)


def encoded(image: Image.Image, kind: str, **how: object) -> bytes:
    data = io.BytesIO()
    image.save(data, kind, **how)
    return data.getvalue()


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def sixteen_bits(channels: str) -> bytes:
    """A PNG of 16 bits a channel, which Pillow cannot write in colour."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    deep = PIXELS.astype(">u2") * 257 if channels == "RGB" else PIXELS[..., :1].astype(">u2") * 257
    rows = b"".join(b"\0" + row.tobytes() for row in deep)
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 16, 2 if channels == "RGB" else 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


READ = {
    **{f"JPEG turned {n}": (encoded(PICTURE, "JPEG", quality=95, exif=turned(n)), ".jpg") for n in range(1, 9)},
    "PNG turned": (encoded(PICTURE, "PNG", exif=turned(6)), ".png"),
    "WebP turned": (encoded(PICTURE, "WEBP", lossless=True, exif=turned(8)), ".webp"),
    "progressive JPEG turned": (encoded(PICTURE, "JPEG", progressive=True, exif=turned(3)), ".jpeg"),
    "CMYK JPEG": (encoded(PICTURE.convert("CMYK"), "JPEG", quality=95), ".jpg"),
    "grey JPEG": (encoded(PICTURE.convert("L"), "JPEG", quality=95), ".JPG"),
    "GIF": (encoded(PICTURE, "GIF"), ".gif"),
    "animated GIF": (encoded(PICTURE, "GIF", save_all=True, append_images=[OTHER]), ".gif"),
    "animated PNG": (encoded(PICTURE, "PNG", save_all=True, append_images=[OTHER]), ".png"),
    "animated WebP": (encoded(PICTURE, "WEBP", lossless=True, save_all=True, append_images=[OTHER]), ".webp"),
    "palette": (encoded(PICTURE.convert("P"), "PNG"), ".png"),
    "palette with a transparent colour": (encoded(PICTURE.convert("P"), "PNG", transparency=0), ".png"),
    "RGBA": (encoded(PICTURE.convert("RGBA"), "PNG"), ".png"),
    "grey with alpha": (encoded(PICTURE.convert("LA"), "PNG"), ".png"),
    "one bit": (encoded(PICTURE.convert("1"), "PNG"), ".png"),
    "16 bits in colour": (sixteen_bits("RGB"), ".png"),
    "BMP": (encoded(PICTURE, "BMP"), ".bmp"),
    "PPM": (encoded(PICTURE, "PPM"), ".ppm"),
}
NAMED = {
    "16 bits of grey": (sixteen_bits("L"), ".png", "not 8 bits"),
    "a TIFF under another name": (encoded(PICTURE, "TIFF"), ".jpg", "not a JPEG"),
    "half a JPEG": (READ["JPEG turned 1"][0][:-60], ".jpg", "truncated"),
    "an empty file": (b"", ".png", "not a JPEG"),
}


def upright(data: bytes) -> np.ndarray:
    """Pillow's own reading of the first frame."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a palette's transparency
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def folder_of(files: dict[str, bytes], below: Path) -> None:
    for number, (name, data) in enumerate(files.items()):
        for split in ("train", "test"):
            path = below / "mine" / split / str(number % 2) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
@pytest.mark.parametrize("how", ["stored", "stream"])
def test_every_kind_is_read_upright(tmp_path: Path, how: str) -> None:
    files = {f"{number:02}{end}": data for number, (data, end) in enumerate(READ.values())}
    folder_of(files, tmp_path)
    images = load(f"folder:mine:{SIDE}px:rgb:{how}", "train", root=tmp_path)
    assert len(images) == len(READ) and "unreadable" not in images.source
    found = {pixels.tobytes() for pixels in images.images_NHWC[:]}
    for kind, (data, _) in READ.items():
        assert upright(data).tobytes() in found, kind
    if how == "stream":  # what training cuts out: here all of each
        index = images.images_NHWC.index
        whole = np.array([[0], [0], [SIDE], [SIDE]]).repeat(len(images), 1)
        cut = np.empty((len(images), SIDE, SIDE, 3), dtype=np.uint8)
        images.images_NHWC.read(np.arange(len(images)), whole, out_BHWC=cut, resize=resize)
        for row in range(len(images)):
            assert np.abs(cut[row].astype(int) - upright(index.read(row))).max() <= 1, row


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("how", ["stored", "stream"])
def test_what_is_not_read_is_counted_and_named(tmp_path: Path, monkeypatch, how: str) -> None:
    monkeypatch.setenv("VIT_BENCH_MAX_UNREADABLE", "50%")
    good = {f"{number:02}.png": encoded(Image.fromarray(np.roll(PIXELS, number, 0)), "PNG") for number in range(8)}
    bad = {f"bad{number}{end}": data for number, (data, end, _) in enumerate(NAMED.values())}
    folder_of(good | bad, tmp_path)
    for ending in (".tif", ".heic", ".tif"):  # not even listed, but counted
        path = tmp_path / "mine" / "train" / "0" / f"{len(list((tmp_path / 'mine/train/0').iterdir()))}{ending}"
        path.write_bytes(b"x")
    with pytest.warns(UserWarning) as said:
        images = load(f"folder:mine:{SIDE}px:rgb:{how}", "train", root=tmp_path)
    text = str(said[0].message)
    assert f"{len(NAMED)} of {len(good) + len(NAMED)} images cannot be read" in text and len(images) == len(good)
    for number, (_, end, reason) in enumerate(NAMED.values()):
        assert re.search(rf"bad{number}{end} \((?=[^)]*({reason}))", text), (number, text)
    left_out = {"stored": len(NAMED), "stream": 2 * len(NAMED)}[how]  # of this split; of both
    assert "1 .heic, 2 .tif" in images.source and f"; {left_out} unreadable left out" in images.source
