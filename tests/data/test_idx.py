"""The IDX reader: what it reads, and one clear message for every kind of bad file."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from bench.core.errors import UserError
from bench.data.idx import find_pair, read_idx, read_idx_pair

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 4, 5), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2], dtype=np.uint8)


def encode(array: np.ndarray, kind: int = 0x08) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape) + array.tobytes()


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_round_trip(tmp_path: Path, ending: str) -> None:
    images = write(tmp_path / f"images{ending}", encode(IMAGES))
    images_NHWC, labels_N = read_idx_pair(images, write(tmp_path / f"labels{ending}", encode(LABELS)), num_classes=3)
    np.testing.assert_array_equal(images_NHWC[..., 0], IMAGES)
    np.testing.assert_array_equal(labels_N, LABELS)
    assert labels_N.dtype == np.int64


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an IDX file"),
        (b"\x89PNG\r\n", "not an IDX file"),
        (encode(LABELS), "1 dimensions"),
        (encode(IMAGES, kind=0x0D), "type 0x0d"),
        (encode(IMAGES)[:10], "ends inside its header"),
        (encode(IMAGES)[:-1], "holds only 119"),
        (encode(IMAGES) + b"x", "holds more"),
        (struct.pack(">BBBB3I", 0, 0, 8, 3, 2**31, 2**31, 2**31), "promises an array"),
    ],
)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_bad_files(tmp_path: Path, data: bytes, message: str, ending: str) -> None:
    path = write(tmp_path / f"images{ending}", data)
    with pytest.raises(UserError, match=message) as caught:
        read_idx(path, dimensions=3)
    assert str(path) in str(caught.value)


def test_damaged_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(encode(IMAGES))
    for data in (whole[:-20], b"not gzip at all", whole[:20] + bytes([whole[20] ^ 255]) + whole[21:]):
        path = tmp_path / "images.gz"
        path.write_bytes(data)
        with pytest.raises(UserError, match="cannot be read"):
            read_idx(path, dimensions=3)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES, LABELS[:5], "6 images but .* 5 labels"),
        (IMAGES, LABELS + 1, "label 3"),
        (IMAGES[:0], LABELS[:0], "no images"),
    ],
)
def test_pairs_that_do_not_agree(tmp_path: Path, images: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_idx_pair(
            write(tmp_path / "images", encode(images)), write(tmp_path / "labels", encode(labels)), num_classes=3
        )


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_idx(tmp_path / "nothing.gz", dimensions=3)


def test_both_usual_names_are_found(tmp_path: Path) -> None:
    for folder, names in {
        "a": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
        "b": ("train-images.idx3-ubyte", "train-labels.idx1-ubyte"),
    }.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch()
        assert find_pair([tmp_path / "absent", tmp_path / folder], "train") is not None
        assert find_pair([tmp_path / folder], "test") is None


def test_torchvision_reads_the_same(tmp_path: Path) -> None:
    from torchvision.datasets.mnist import read_sn3_pascalvincent_tensor

    for array in (IMAGES, LABELS):
        path = write(tmp_path / f"{array.ndim}", encode(array))
        np.testing.assert_array_equal(read_idx(path, dimensions=array.ndim), read_sn3_pascalvincent_tensor(str(path)))
