"""Damaged and hostile input: one clear message each, and nothing of it is run, unpacked or followed."""

import io
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.core.errors import UserError
from bench.data import decode
from bench.data.load import load
from tests.conftest import PROJECT
from tests.data import writers

PARTS = writers.make(12)
IMAGES, LABELS = PARTS["train"]
PNG = writers.png(IMAGES[0])


def refused(root: Path, match: str, *, name: str = "folder:mine") -> None:
    """Both the message, and that it is the same message a second time (nothing half-done was kept)."""
    for _ in range(2):
        with pytest.raises(UserError, match=match):
            load(name, "train", root=root)


def shard(folder: Path, *members: tuple, name: str = "train-0.tar") -> Path:
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / name, "w") as tar:
        for member_name, data, *fields in members:
            writers.add(tar, member_name, data, **(fields[0] if fields else {}))
    return folder / name


LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
SPARSE = {"pax_headers": {"GNU.sparse.map": "0,10", "GNU.sparse.size": str(1 << 40)}}  # 1 TB, it says
GOOD = [("a.png", PNG), ("a.cls", b"0"), ("b.png", writers.png(IMAGES[1])), ("b.cls", b"0")]


@pytest.mark.parametrize(
    ("members", "match"),
    [
        ([("../escape.png", PNG), ("../escape.cls", b"0")], "points out of it"),
        ([("a/../../escape.png", PNG)], "points out of it"),
        ([("/etc/escape.png", PNG)], "points out of it"),
        ([("..\\escape.png", PNG)], "points out of it"),
        ([("a.png", b"", LINK)], "link or a device"),
        ([("a.png", b"", LINK | {"type": tarfile.LNKTYPE})], "link or a device"),
        ([("a.png", b"", {"type": tarfile.CHRTYPE})], "link or a device"),
        ([("a.png", PNG, SPARSE)], "stored sparsely"),
        ([("a.png", PNG)], "0 labels"),
        ([("a.cls", b"0")], "no image"),
        ([("a.png", PNG), ("a.jpg", PNG), ("a.cls", b"0")], "second image"),
        ([("a.png", PNG), ("a.cls", b"0"), ("a.json", b'{"label": 0}')], "2 labels"),
        ([("a.png", PNG), ("a.cls", b"cat")], "not a label"),
        ([("a.png", PNG), ("a.cls", b"-1")], "holds label -1"),
        ([("a.png", PNG), ("a.cls", b"1" * 400)], "not a label"),
        ([("a.png", PNG), ("a.cls", b"99999999")], "holds label 99999999"),
        ([("a.png", PNG), ("a.cls", b"1")], "no training image of class 0"),
        ([("a.png", PNG), ("a.json", b"[" * 100_000)], "not a label"),
        ([], "no images"),
        ([("a.txt", b"x")], "no images|no image"),
        ([*GOOD, ("\x1b[2J.png", b"x"), ("\x1b[2J.cls", b"0")], r"'\\x1b\[2J.png'"),
        ([*GOOD, ("c.png", writers.png_header(30_000, 30_000)), ("c.cls", b"0")], "too large"),
    ],
)
def test_shards(tmp_path: Path, members: list, match: str) -> None:
    shard(tmp_path / "mine", *members)
    refused(tmp_path, match)
    assert not list(tmp_path.rglob("*escape*")) and len(list((tmp_path / "mine").iterdir())) == 1


def test_truncated_and_foreign_shards(tmp_path: Path) -> None:
    path = shard(tmp_path / "mine", *GOOD)
    whole = path.read_bytes()
    load("folder:mine", "train", root=tmp_path)
    for kept in (0, 100, 600, 1024, 1500, 2048, 3000):  # before, in and between members
        path.write_bytes(whole[:kept])
        refused(tmp_path, "train-0.tar")
    path.write_bytes(whole[:1024] + b"\xff" * 512 + whole[1536:])  # a damaged header
    refused(tmp_path, "damaged after byte|cannot be read")
    path.write_bytes(b"PK\x03\x04" + b"x" * 2000)
    refused(tmp_path, "cannot be read as tar")
    path.rename(path.with_suffix(".tar.gz"))
    refused(tmp_path, "compressed")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (writers.png_header(30_000, 30_000), "too large to be an image"),
        (writers.png_header(12_000, 8_000), "too large to be an image"),
        (writers.png_header(50, 50), "cannot be read"),
        (PNG[:-30], "cannot be read"),
        (b"", "cannot be read"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "cannot be read"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "cannot be read"),
        (b"GIF89a" + b"\0" * 30, "cannot be read"),
        (writers.png(np.zeros((8, 8, 3), np.uint8)), "mixes grey and colour"),
        (writers.png(np.zeros((9, 8, 1), np.uint8)), "mixes sizes"),
        (writers.png(np.full((8, 8, 1), 4_000, np.uint16)), "multiply it by 16"),
    ],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_images(tmp_path: Path, data: bytes, match: str) -> None:
    writers.as_folder(tmp_path / "mine", PARTS)
    (tmp_path / "mine" / "train" / "0" / "bad.png").write_bytes(data)
    refused(tmp_path, match)
    with pytest.raises(UserError, match=r"bad\.png"):
        load("folder:mine", "train", root=tmp_path)


def test_huge_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writers.as_folder(tmp_path / "mine", PARTS)
    monkeypatch.setattr(decode, "MAX_FILE_BYTES", 20)
    refused(tmp_path, "bytes long")


def test_folders_of_classes(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    refused(tmp_path, "holds no images")
    for name in ("a.png", "b.JPG", ".hidden.png", "notes.txt"):
        (tmp_path / "mine" / name).write_bytes(b"")
    refused(tmp_path, r"mine holds 2 images, but none in a class folder.\n.*folders named by their class")
    for path in (tmp_path / "mine").iterdir():
        path.unlink()
    writers.as_folder(tmp_path / "mine", PARTS)
    (tmp_path / "mine" / "train" / "7").mkdir()
    assert load("folder:mine", "train", root=tmp_path).class_names == ("0", "1", "2")  # no class without images
    (tmp_path / "mine" / "train" / "7").rmdir()
    (tmp_path / "mine" / "test" / "3").mkdir()
    (tmp_path / "mine" / "test" / "3" / "x.png").write_bytes(PNG)
    refused(tmp_path, "class '3'")
    shutil.rmtree(tmp_path / "mine" / "test" / "3")
    (tmp_path / "mine" / "train" / "a\x1b[31mb").mkdir()
    (tmp_path / "mine" / "train" / "a\x1b[31mb" / "x.png").write_bytes(PNG)
    refused(tmp_path, "cannot be the name of a class")


class Evil:
    def __reduce__(self) -> tuple:
        return os.mkdir, (MARK,)


MARK = "was-run"


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"images": IMAGES.astype(float), "labels": LABELS}, "float64"),
        ({"images": IMAGES[0], "labels": LABELS}, "of shape|images but"),
        ({"images": np.repeat(IMAGES, 2, axis=3), "labels": LABELS}, "of shape"),
        ({"images": IMAGES, "labels": LABELS[:-1]}, "12 images but 11 labels"),
        ({"images": IMAGES, "labels": LABELS - 1}, "label -1"),
        ({"images": IMAGES, "labels": LABELS * 2}, "no training image of class 1"),
        ({"images": IMAGES, "labels": LABELS + 0.5}, "labels are float64"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "no images"),
        ({"pictures": IMAGES, "labels": LABELS}, "lacks 'images'"),
        ({"images": np.array([Evil()], dtype=object), "labels": LABELS}, "no Python objects"),
    ],
)
def test_arrays(tmp_path: Path, arrays: dict, match: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    np.savez(tmp_path / "mine" / "train.npz", **arrays)
    refused(tmp_path, match)
    assert not Path(MARK).exists()


def test_truncated_and_oversized_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.data.formats import arrays

    writers.as_npz(tmp_path / "mine", PARTS)
    path = tmp_path / "mine" / "train.npz"
    whole = path.read_bytes()
    for kept in (0, 10, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:kept])
        refused(tmp_path, "train.npz")
    path.write_bytes(whole)
    monkeypatch.setattr(arrays, "MAX_BYTES", 500)
    refused(tmp_path, "promises")


def test_test_labels_that_training_never_saw(tmp_path: Path) -> None:
    writers.as_npz(tmp_path / "mine", {"train": PARTS["train"], "test": (IMAGES, LABELS + 3)})
    refused(tmp_path, r"label 3 \(test\)")
    writers.as_npz(tmp_path / "mine", {"train": PARTS["train"], "test": (IMAGES, LABELS * 0 - 1)})
    refused(tmp_path, "without labels is marked so")


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    writers.as_parquet(tmp_path / "mine", {"train": PARTS["train"]})
    path = tmp_path / "mine" / "train-00000-of-00001.parquet"
    whole = path.read_bytes()
    for data in (whole[: len(whole) // 2], b"", b"PAR1" + b"x" * 100, whole[:200] + b"\xff" * 100 + whole[300:]):
        path.write_bytes(data)
        refused(tmp_path, "parquet")
    rows = {
        "columns": {"picture": [PNG], "label": [0]},
        "holds no embedded image": {"image": [{"bytes": None, "path": "/etc/passwd"}] * 2, "label": [0, 0]},
        "no embedded image": {"image": ["/etc/passwd"] * 2, "label": [0, 0]},
        "label is": {"image": [PNG], "label": ["cat"]},
        "have no label": {"image": [PNG], "label": pa.array([None], pa.int64())},
        "cannot be read": {"image": [PNG[:-30], PNG], "label": [0, 0]},
        "too large": {"image": [PNG, writers.png_header(30_000, 30_000)], "label": [0, 0]},
    }
    for match, table in rows.items():
        pyarrow.parquet.write_table(pa.table(table), path)
        refused(tmp_path, match)
    writers.as_parquet(tmp_path / "mine", {"train": PARTS["train"]}, names=["only", "two"])
    refused(tmp_path, "holds label 2")


def peak_bytes(code: str, root: Path) -> int:
    """How much memory a process of its own comes to need for `code`."""
    program = f"""
import resource, sys, pathlib, numpy, PIL.Image, pyarrow.parquet
from bench.core.errors import UserError
from bench.data.load import load
root = pathlib.Path(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    {code}
except UserError as error:
    print(error, file=sys.stderr)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", program, str(root)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    print(done.stderr)
    return int(done.stdout)


def parquet_of(path: Path, images: list[bytes], rows: int) -> None:
    """`rows` rows that share a dictionary of `images`: a few bytes on the disk, as many as one likes in memory."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    place = np.arange(rows, dtype=np.int32) % len(images)
    column = pa.DictionaryArray.from_arrays(pa.array(place), pa.array(images, pa.binary()))
    table = pa.table({"image": column, "label": np.zeros(rows, np.int64)})
    pyarrow.parquet.write_table(table, path, compression="zstd", dictionary_pagesize_limit=1 << 30, store_schema=False)


@pytest.mark.gate
def test_a_dictionary_of_one_large_image_is_not_unpacked_for_every_row(tmp_path: Path) -> None:
    parquet_of(tmp_path / "mine" / "train.parquet", [bytes(4 << 20)], rows=1_024)
    assert (tmp_path / "mine" / "train.parquet").stat().st_size < 3_000
    assert peak_bytes('load("folder:mine", "train", root=root)', tmp_path) < 256 << 20  # of 4 GB


def test_more_rows_than_bytes_are_no_images(tmp_path: Path) -> None:
    parquet_of(tmp_path / "mine" / "train.parquet", [PNG], rows=3_000_000)
    refused(tmp_path, r"promises 3,000,000 images in [\d,]+ bytes")


def test_archives_are_unpacked_into_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each array may be large: what they are together counts, and what they promise is held against their bytes."""
    from bench.data.formats import arrays

    writers.as_npz(tmp_path / "mine", PARTS)
    monkeypatch.setattr(arrays, "MAX_BYTES", IMAGES.nbytes + LABELS.nbytes)  # and two headers of 128 bytes
    refused(tmp_path, r"train\.npz promises 1,120 bytes")
    monkeypatch.undo()
    with zipfile.ZipFile(tmp_path / "mine" / "train.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = members["images.npy"].replace(b"(12, 8, 8, 1)", b"(9999999,8,1)")
    with zipfile.ZipFile(tmp_path / "mine" / "train.npz", "w") as archive:
        for name, data in {**members, "images.npy": header}.items():
            archive.writestr(name, data)
    refused(tmp_path, "cut short")


def test_columns_first_are_the_same_images(tmp_path: Path) -> None:
    writers.as_npz(tmp_path / "rows", PARTS)
    columns = {split: (np.asfortranarray(images), labels) for split, (images, labels) in PARTS.items()}
    writers.as_npz(tmp_path / "columns", columns)
    one, other = (load(f"folder:{name}", "train", root=tmp_path) for name in ("rows", "columns"))
    assert one.content_hash == other.content_hash


@pytest.mark.parametrize("suffix", [".png", ".parquet", ".tar", ".npz"])
def test_pipes_devices_and_dead_links_are_not_read(tmp_path: Path, suffix: str) -> None:
    """Reading one might never end."""
    folder = tmp_path / "mine" / "train"
    device, dead = (lambda path: path.symlink_to("/dev/zero")), (lambda path: path.symlink_to("/no"))
    for number, make in enumerate((os.mkfifo, device, dead)):
        writers.as_folder(tmp_path / "mine", PARTS)
        path = (folder / "0" if suffix == ".png" else tmp_path / "mine") / f"x{number}{suffix}"
        make(path)
        refused(tmp_path, rf"x{number}\{suffix} (is no regular file|cannot be read)")
        path.unlink()


def test_a_header_that_promises_what_the_bytes_cannot_hold(tmp_path: Path) -> None:
    """A JPEG of 8 x 8 pixels whose header was changed to 9000 x 9000: the decoder would fill it with grey."""
    data = io.BytesIO()
    Image.fromarray(IMAGES[0, ..., 0]).save(data, "JPEG")
    header = data.getvalue().replace(struct.pack(">BHHB", 8, 8, 8, 1), struct.pack(">BHHB", 8, 9000, 9000, 1))
    assert header != data.getvalue() and Image.open(io.BytesIO(header)).convert("L").size == (9000, 9000)
    writers.as_folder(tmp_path / "mine", PARTS)
    (tmp_path / "mine" / "train" / "0" / "lying.jpg").write_bytes(header)
    refused(tmp_path, r"lying\.jpg \(9,000 × 9,000 pixels cannot be in \d+ bytes\)", name="folder:mine:8px")


@pytest.mark.parametrize("quality, progressive", [(1, False), (1, True), (100, True)])
def test_no_honest_jpeg_is_taken_for_a_lie(quality: int, progressive: bool) -> None:
    """The emptiest there are: one shade, large, with tables made for it."""
    data = io.BytesIO()
    image = Image.new("RGB", (4000, 3000), (200, 30, 90))
    image.save(data, "JPEG", quality=quality, progressive=progressive, optimize=True, subsampling=2)
    pixels = decode.pixels_of(data.getvalue(), name="x", storage=decode.Storage(size=8))
    assert np.abs(pixels.astype(int) - (200, 30, 90)).max() < 90
