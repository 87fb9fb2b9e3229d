"""Damaged and hostile input: one clear message each, and nothing of it is run, unpacked or followed."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from bench.core.errors import UserError
from bench.data import decode
from bench.data.load import load
from bench.data.pickles import array_of, read_plain_pickle
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
    ],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_images(tmp_path: Path, data: bytes, match: str) -> None:
    writers.as_folder(tmp_path / "mine", PARTS)
    (tmp_path / "mine" / "train" / "0" / "bad.png").write_bytes(data)
    refused(tmp_path, match)
    with pytest.raises(UserError, match=r"bad\.png"):
        load("folder:mine", "train", root=tmp_path)


def test_sixteen_bits_are_not_quietly_cut_to_eight(tmp_path: Path) -> None:
    from PIL import Image

    writers.as_folder(tmp_path / "mine", PARTS)
    Image.fromarray(np.full((8, 8), 40_000, np.uint16)).save(tmp_path / "mine" / "train" / "0" / "deep.png")
    refused(tmp_path, "deep.png .*not 8 bits")


def test_huge_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writers.as_folder(tmp_path / "mine", PARTS)
    monkeypatch.setattr(decode, "MAX_FILE_BYTES", 20)
    refused(tmp_path, "bytes long")


def test_folders_of_classes(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    refused(tmp_path, "holds no images")
    writers.as_folder(tmp_path / "mine", PARTS)
    (tmp_path / "mine" / "train" / "7").mkdir()
    refused(tmp_path, "7 holds no images")
    (tmp_path / "mine" / "train" / "7").rmdir()
    (tmp_path / "mine" / "test" / "3").mkdir()
    refused(tmp_path, "class '3'")
    (tmp_path / "mine" / "test" / "3").rmdir()
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


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_with_code_in_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.pickle"
    for value in (Evil(), {b"data": Evil(), b"labels": [1]}, print, np.load, io.BytesIO, decode.Storage()):
        path.write_bytes(pickle.dumps(value, protocol=protocol))
        with pytest.raises(UserError, match=r"asks to run .*nothing of it was run|not a readable pickle"):
            read_plain_pickle(path)
    assert not Path(MARK).exists()


@pytest.mark.parametrize(
    "program",
    [
        b"cos\nsystem\n(S'mkdir was-run'\ntR.",
        b"(S'mkdir was-run'\nios\nsystem\n.",
        b"\x8c\x02os\x8c\x06system\x93\x8c\x0dmkdir was-run\x85R.",
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"cnumpy.core.multiarray\nfromfile\n(S'x'\ntR.",
        b"cnumpy\nndarray.tofile\n.",
        b"Pid\n.",
        b"\x82\x01.",
        b"cnumpy\ndtype\n(S'O'\ntR.",
        b"cnumpy\ndtype\n(S'V99999999'\ntR.",
        b"",
        b".",
        b"garbage",
        b"K\x01r\xff\xff\xff\x7f.",  # a table of two thousand million entries
        b"I1\np99999999999\n.",
        b"\x80\x02}U\x04data",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f",
    ],
)
def test_pickle_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: bytes) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.pickle"
    path.write_bytes(program)
    with pytest.raises(UserError, match=r"x\.pickle"):
        read_plain_pickle(path)
    assert not Path(MARK).exists()


@pytest.mark.parametrize("protocol", range(5))
def test_plain_pickles_are_read(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "x.pickle"
    for array in (IMAGES, np.asfortranarray(IMAGES[..., 0]), IMAGES[:0]):
        value = {b"a": array, "b": [1, "two", b"three", (None, 4.5, True)]}
        path.write_bytes(pickle.dumps(value, protocol=protocol))
        found = read_plain_pickle(path)
        np.testing.assert_array_equal(array_of(found[b"a"]), array)
        assert found["b"] == value["b"]
    with pytest.raises(ValueError, match="not an array"):
        array_of([1])
