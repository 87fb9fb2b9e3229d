"""Writes the same images in every format that is read."""

import gzip
import io
import json
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SPLITS = ("train", "test")


def picture(path: Path, shade: int, *, size: tuple[int, int] = (20, 12)) -> None:
    """A wide JPEG of one shade, so that it can be told from the others after decoding."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade, shade, shade)).save(path, "JPEG" if path.suffix != ".png" else "PNG")


def shades(images: object) -> list[int]:
    """The shade of every image, to the nearest ten."""
    return [int(round(float(image.mean()) / 10) * 10) for image in images.images_NHWC]  # type: ignore[attr-defined]


def png(pixels: np.ndarray) -> bytes:
    return encoded(Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels), "PNG")


def encoded(image: Image.Image, kind: str = "JPEG", **how: object) -> bytes:
    data = io.BytesIO()
    image.save(data, kind, **how)
    return data.getvalue()


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def png_file(width: int, height: int, rows: bytes, *, bits: int = 8, colour: int = 0) -> bytes:
    """A PNG of any kind of pixels, also of those that Pillow cannot write."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def png_header(width: int, height: int) -> bytes:
    """A PNG that promises so many pixels and holds none."""
    return png_file(width, height, b"\0" * 1000)


def make(count: int, *, classes: int = 3, side: int = 8, channels: int = 1, seed: int = 0) -> dict[str, tuple]:
    """(images_NHWC, labels_N) by split; the test split is a third as large."""
    rng = np.random.default_rng(seed)
    return {
        split: (rng.integers(0, 256, (size, side, side, channels), dtype=np.uint8), np.arange(size) % classes)
        for split, size in (("train", count), ("test", max(classes, count // 3)))
    }


def add(tar: tarfile.TarFile, name: str, data: bytes, **fields: object) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    for key, value in fields.items():
        setattr(member, key, value)
    tar.addfile(member, io.BytesIO(data))


def as_folder(folder: Path, parts: dict[str, tuple]) -> None:
    for split, (images, labels) in parts.items():
        for row, (pixels, label) in enumerate(zip(images, labels, strict=True)):
            path = folder / split / str(label) / f"{row:05d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(pixels))


def as_tar(folder: Path, parts: dict[str, tuple], *, per_shard: int = 7) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, (images, labels) in parts.items():
        for start in range(0, len(labels), per_shard):
            with tarfile.open(folder / f"{split}-{start // per_shard:06d}.tar", "w") as tar:
                for row in range(start, min(start + per_shard, len(labels))):
                    add(tar, f"{row:05d}.png", png(images[row]))
                    if row % 2:
                        add(tar, f"{row:05d}.cls", str(labels[row]).encode())
                    else:
                        add(tar, f"{row:05d}.json", json.dumps({"label": int(labels[row]), "x": "y"}).encode())


def as_npz(folder: Path, parts: dict[str, tuple]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, (images, labels) in parts.items():
        np.savez_compressed(folder / f"{split}.npz", images=images, labels=labels)


def as_idx(folder: Path, parts: dict[str, tuple], *, prefix: str = "", test: str = "t10k", plain: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, (images, labels) in parts.items():
        stem = prefix + {"train": "train", "test": test}[split]
        for what, array in (("images-idx3", images[..., 0]), ("labels-idx1", labels.astype(np.uint8))):
            data = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
            name = f"{stem}-{what}-ubyte"
            (folder / (name if plain else f"{name}.gz")).write_bytes(data if plain else gzip.compress(data, 1))


def as_parquet(folder: Path, parts: dict[str, tuple], *, names: list[str] | None = None) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    folder.mkdir(parents=True, exist_ok=True)
    for split, (images, labels) in parts.items():
        rows = [{"bytes": png(pixels), "path": "/nowhere/x.png"} for pixels in images]
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        table = pa.table({"image": pa.array(rows, kind), "label": pa.array(labels.tolist(), pa.int64())})
        if names:
            features = {"label": {"names": names, "_type": "ClassLabel"}, "image": {"_type": "Image"}}
            table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        pyarrow.parquet.write_table(table, folder / f"{split}-00000-of-00001.parquet", row_group_size=10)


WRITERS = {"folder": as_folder, "tar": as_tar, "npz": as_npz, "idx": as_idx, "parquet": as_parquet}
