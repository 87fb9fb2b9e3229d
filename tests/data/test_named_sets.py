"""KMNIST, EMNIST, CIFAR in both versions, SVHN: pixels and labels land where they belong; damage is said."""

from __future__ import annotations

import importlib
import pickle
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from bench.core.errors import UserError
from bench.data.load import load
from bench.data.sets import cifar10, cifar100, emnist
from tests.data import writers

ROWS = 20
COLOUR = {
    split: writers.make(ROWS, classes=10, side=32, channels=3, seed=seed)["train"]
    for seed, split in enumerate(writers.SPLITS)
}


def planes(images_NHWC: np.ndarray) -> np.ndarray:
    return images_NHWC.transpose(0, 3, 1, 2).reshape(len(images_NHWC), -1)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layouts as they are, with fewer rows per file."""
    rows = {"train": ROWS, "test": ROWS}
    monkeypatch.setattr(cifar10, "LAYOUTS", tuple(replace(layout, rows=rows) for layout in cifar10.LAYOUTS))
    for name in ("BINARY", "PICKLED"):
        monkeypatch.setattr(cifar100, name, replace(getattr(cifar100, name), rows=rows))


def test_the_published_sizes() -> None:
    """30,730,000 bytes per file of CIFAR-10; 153,700,000 and 30,740,000 of CIFAR-100, as the archives unpack."""
    reload = importlib.reload
    ten, hundred = reload(cifar10).LAYOUTS[0], reload(cifar100).BINARY
    assert [ten.rows[split] * (ten.label_bytes + 3072) for split in writers.SPLITS] == [30_730_000] * 2
    assert [hundred.rows[split] * (hundred.label_bytes + 3072) for split in writers.SPLITS] == [153_700_000, 30_740_000]


def write_cifar10(root: Path, version: str, protocol: int = 2) -> None:
    folder = root / {"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"}[version]
    folder.mkdir(parents=True)
    for split, (images, labels) in COLOUR.items():
        for number in range(1, 6) if split == "train" else (0,):
            name = f"data_batch_{number}" if number else "test_batch"
            rolled = np.roll(labels, number)
            if version == "binary":
                rows = np.concatenate([rolled[:, None].astype(np.uint8), planes(images)], axis=1)
                (folder / f"{name}.bin").write_bytes(rows.tobytes())
            else:
                batch = {b"data": planes(images), b"labels": rolled.tolist(), b"filenames": [b"x.png"] * len(labels)}
                (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))


def write_cifar100(root: Path, version: str) -> None:
    folder = root / {"binary": "cifar-100-binary", "python": "cifar-100-python"}[version]
    folder.mkdir(parents=True)
    for split, (images, labels) in COLOUR.items():
        coarse, fine = labels.astype(np.uint8), (labels * 7).astype(np.uint8)
        if version == "binary":
            rows = np.concatenate([coarse[:, None], fine[:, None], planes(images)], axis=1)
            (folder / f"{split}.bin").write_bytes(rows.tobytes())
        else:
            batch = {b"data": planes(images), b"fine_labels": fine.tolist(), b"coarse_labels": coarse.tolist()}
            (folder / split).write_bytes(pickle.dumps(batch, protocol=2))


@pytest.mark.parametrize("version", ["binary", "python"])
def test_cifar10(tmp_path: Path, version: str) -> None:
    write_cifar10(tmp_path, version)
    train, test = (load("cifar10", split, root=tmp_path) for split in writers.SPLITS)
    np.testing.assert_array_equal(train.images_NHWC, np.concatenate([COLOUR["train"][0]] * 5))
    np.testing.assert_array_equal(train.labels_N, np.concatenate([np.roll(COLOUR["train"][1], i) for i in range(1, 6)]))
    np.testing.assert_array_equal(test.images_NHWC, COLOUR["test"][0])
    assert version in train.source.lower()


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_both_versions_are_the_same_set(tmp_path: Path, protocol: int) -> None:
    write_cifar10(tmp_path / "a", "binary")
    write_cifar10(tmp_path / "b", "python", protocol)
    one, other = (load("cifar10", "train", root=tmp_path / name) for name in "ab")
    assert one.content_hash == other.content_hash


def test_the_python_version_as_python_2_wrote_it(tmp_path: Path) -> None:
    """Opcodes of the published files: strings without an encoding, numpy under its old name."""
    images, labels = COLOUR["test"]
    data = planes(images)
    program = b"".join(
        [
            b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R",
            b"(K\x01", b"M" + struct.pack("<H", ROWS), b"M" + struct.pack("<H", 3072), b"\x86",
            b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89",
            b"T" + struct.pack("<I", data.size) + data.tobytes(), b"tb",
            b"U\x06labels](", b"".join(b"K" + bytes([label]) for label in labels), b"eu.",
        ]
    )  # fmt: skip
    reference = pickle.loads(program, encoding="bytes")  # the standard reader agrees that this is such a file
    np.testing.assert_array_equal(reference[b"data"], data)
    write_cifar10(tmp_path, "python")
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(program)
    np.testing.assert_array_equal(load("cifar10", "test", root=tmp_path).images_NHWC, images)


@pytest.mark.parametrize("version", ["binary", "python"])
def test_cifar100_fine_and_coarse(tmp_path: Path, version: str) -> None:
    write_cifar100(tmp_path, version)
    images, labels = COLOUR["train"]
    fine, coarse = load("cifar100", "train", root=tmp_path), load("cifar100:coarse", "train", root=tmp_path)
    np.testing.assert_array_equal(fine.labels_N, labels * 7)
    np.testing.assert_array_equal(coarse.labels_N, labels)
    np.testing.assert_array_equal(coarse.images_NHWC, images)
    assert (fine.num_classes, coarse.num_classes) == (100, 20)
    with pytest.raises(UserError, match="coarse"):
        load("cifar100:corse", "train", root=tmp_path)


def test_kmnist(tmp_path: Path) -> None:
    parts = writers.make(30, classes=10, side=28)
    writers.as_idx(tmp_path / "kmnist", parts)
    found = load("kmnist", "test", root=tmp_path)
    np.testing.assert_array_equal(found.images_NHWC, parts["test"][0])
    np.testing.assert_array_equal(found.labels_N, parts["test"][1])


def test_emnist_splits_are_upright_and_count_from_zero(tmp_path: Path) -> None:
    for option, kind in emnist.SPLITS.items():
        count = len(kind.classes)
        parts = writers.make(count, classes=count, side=28, seed=count)
        stored = {split: (x.swapaxes(1, 2), y + kind.first) for split, (x, y) in parts.items()}
        writers.as_idx(tmp_path / "emnist", stored, prefix=f"emnist-{option}-", test="test")
        found = load(f"emnist:{option}", "train", root=tmp_path)
        np.testing.assert_array_equal(found.images_NHWC, parts["train"][0])
        np.testing.assert_array_equal(found.labels_N, parts["train"][1])
    assert {option: len(kind.classes) for option, kind in emnist.SPLITS.items()} == {
        "balanced": 47, "letters": 26, "digits": 10, "mnist": 10, "bymerge": 47, "byclass": 62,
    }  # fmt: skip
    assert (
        load("emnist", "test", root=tmp_path).content_hash
        == load("emnist:balanced", "test", root=tmp_path).content_hash
    )
    with pytest.raises(UserError, match="'letters'"):
        load("emnist:leters", "train", root=tmp_path)


def write_svhn(root: Path, **changes: np.ndarray) -> None:
    (root / "svhn").mkdir(parents=True, exist_ok=True)
    for split, (images, labels) in COLOUR.items():
        stored = {"X": images.transpose(1, 2, 3, 0), "y": np.where(labels == 0, 10, labels)[:, None].astype(float)}
        savemat(root / "svhn" / f"{split}_32x32.mat", stored | changes, do_compression=True)


def test_svhn(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    found = load("svhn", "train", root=tmp_path)
    np.testing.assert_array_equal(found.images_NHWC, COLOUR["train"][0])
    np.testing.assert_array_equal(found.labels_N, COLOUR["train"][1])


SETS: dict[str, tuple[Callable[[Path], object], str]] = {
    "cifar10": (lambda root: write_cifar10(root, "binary"), "test_batch.bin"),
    "cifar100": (lambda root: write_cifar100(root, "binary"), "test.bin"),
    "svhn": (write_svhn, "test_32x32.mat"),
    "kmnist": (lambda root: writers.as_idx(root / "kmnist", writers.make(30, classes=10, side=28)), "t10k-images*"),
}


@pytest.mark.parametrize("name", SETS)
def test_a_truncated_file(tmp_path: Path, name: str) -> None:
    write, pattern = SETS[name]
    write(tmp_path)
    path = next(tmp_path.rglob(pattern))
    whole = path.read_bytes()
    for kept in (len(whole) - 1, len(whole) // 2, 10, 0):
        path.write_bytes(whole[:kept])
        with pytest.raises(UserError) as caught:
            load(name, "test", root=tmp_path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", SETS)
def test_available_only_with_both_splits(tmp_path: Path, name: str) -> None:
    from bench.core import registry

    module = registry.load("data set", name)
    SETS[name][0](tmp_path)
    assert module.available(tmp_path)
    next(tmp_path.rglob(SETS[name][1])).unlink()
    assert not module.available(tmp_path)
    with pytest.raises(UserError, match="not on this machine"):
        load(name, "test", root=tmp_path)


def test_labels_out_of_range(tmp_path: Path) -> None:
    images, labels = COLOUR["test"]
    write_cifar10(tmp_path, "binary")
    rows = np.concatenate([np.full((ROWS, 1), 10, np.uint8), planes(images)], axis=1)
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(rows.tobytes())
    with pytest.raises(UserError, match="label 10"):
        load("cifar10", "test", root=tmp_path)
    write_svhn(tmp_path, y=labels[:, None])  # 0 is not how this set writes a zero
    with pytest.raises(UserError, match="labels 0 to 9"):
        load("svhn", "test", root=tmp_path)


@pytest.mark.parametrize(
    "changes",
    [{"X": np.zeros((32, 32, 3, 4))}, {"X": np.zeros((8, 8, 3, 20), np.uint8)}, {"y": np.ones((3, 1))}, {"y": "abc"}],
)
def test_other_matlab_files(tmp_path: Path, changes: dict) -> None:
    write_svhn(tmp_path, **changes)
    with pytest.raises(UserError, match=r"test_32x32\.mat"):
        load("svhn", "test", root=tmp_path)
    savemat(tmp_path / "svhn" / "test_32x32.mat", {"z": 1})
    with pytest.raises(UserError, match="lacks 'X'"):
        load("svhn", "test", root=tmp_path)
