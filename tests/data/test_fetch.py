"""Downloads: by torchvision from a server on this machine, which breaks off and lies; archives that are hostile."""

import gzip
import hashlib
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bench.core.errors import UserError
from bench.data import __main__ as verb
from bench.data import fetch
from bench.data.load import load
from bench.data.public import OWN, ROWS
from bench.data.torchvision_sets import TorchvisionSet, prepare
from bench.study import registry
from tests.data import writers
from tests.data.hub_server import Hub, files_in, serving

PUBLISHED = ("published/sets", "1")


@pytest.fixture
def server() -> Iterator[Hub]:
    with serving() as running:
        yield running


def mirror(server: Hub) -> str:
    return f"{server.url}/datasets/published/sets/resolve/1/"


@pytest.fixture
def kmnist(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple]:
    """A small KMNIST on the server; torchvision is told its checksums."""
    from torchvision.datasets import KMNIST

    parts = writers.make(30, classes=10, side=28)
    writers.as_idx(tmp_path / "made", parts)
    server.commits[PUBLISHED] = files = files_in(tmp_path / "made")
    monkeypatch.setattr(KMNIST, "mirrors", [mirror(server)])
    sums = [(name, hashlib.md5(files[name]).hexdigest()) for name, _ in KMNIST.resources]
    monkeypatch.setattr(KMNIST, "resources", sums)
    return parts


def download(root: Path, *names: str) -> int:
    return verb.main([*names, "--download", "--data-root", str(root)])


def test_torchvision_fetches_what_is_then_read(
    server: Hub, kmnist: dict[str, tuple], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root"
    assert verb.main(["kmnist", "--data-root", str(root)]) == 2
    assert "not on this machine" in capsys.readouterr().err
    assert download(root, "kmnist") == 0
    said = capsys.readouterr()
    assert "licence CC-BY-SA-4.0" in said.err and "checksums right" in said.err
    for split, (images, labels) in kmnist.items():
        loaded = load("kmnist", split, root=root)
        np.testing.assert_array_equal(loaded.images_NHWC, images)
        np.testing.assert_array_equal(loaded.labels_N, labels)
    assert {path.name for path in root.iterdir()} == {"KMNIST"}, "nothing is left beside it"
    count = len(server.sent)
    assert download(root, "kmnist") == 0 and len(server.sent) == count, "nothing is fetched twice"


def test_a_server_that_breaks_off_leaves_nothing_half_there(
    server: Hub, kmnist: dict[str, tuple], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root"
    server.stop_after = 500
    assert download(root, "kmnist") == 2
    assert not ROWS["kmnist"].available(root) and not (root / "KMNIST").exists()
    server.stop_after = None
    assert download(root, "kmnist") == 0
    np.testing.assert_array_equal(load("kmnist", "test", root=root).labels_N, kmnist["test"][1])


def test_other_bytes_than_the_published_are_refused(
    server: Hub, kmnist: dict[str, tuple], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "t10k-images-idx3-ubyte.gz"
    server.commits[PUBLISHED][name] = gzip.compress(b"other")
    assert download(tmp_path / "root", "kmnist") == 2
    assert "corrupted" in capsys.readouterr().err and not ROWS["kmnist"].available(tmp_path / "root")


def test_what_is_there_is_not_written_over(
    kmnist: dict[str, tuple], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "root" / "KMNIST" / "notes.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert download(tmp_path / "root", "kmnist") == 2
    assert "in the way" in capsys.readouterr().err and mine.read_text() == "mine"


def test_of_a_download_that_was_killed_archives_are_kept_and_nothing_half_unpacked(tmp_path: Path) -> None:
    """torchvision takes a folder that exists for a set that is there."""
    for name in ("dtd/dtd-r1.0.1.tar.gz", "dtd/dtd/images/banded/1.jpg", "dtd/dtd/labels/train1.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "dtd" / "dtd" / "empty" / "deeper").mkdir(parents=True)
    prepare(tmp_path)
    left = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")]
    assert sorted(left) == ["dtd", "dtd/dtd-r1.0.1.tar.gz"]


def test_mnist_and_fashion_mnist_are_fetched_by_torchvision_and_read_whole(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torchvision import datasets

    parts = writers.make(30, classes=10, side=28)
    writers.as_idx(tmp_path / "made", parts)
    server.commits[PUBLISHED] = files = files_in(tmp_path / "made")
    sums = [(name, hashlib.md5(data).hexdigest()) for name, data in files.items()]
    for name, kind in (("mnist", datasets.MNIST), ("fashion-mnist", datasets.FashionMNIST)):
        monkeypatch.setattr(kind, "mirrors", [mirror(server)])
        monkeypatch.setattr(kind, "resources", sums)
        assert download(tmp_path / "root", name) == 0
        loaded = load(name, "train", root=tmp_path / "root")
        np.testing.assert_array_equal(loaded.images_NHWC, parts["train"][0])
        assert loaded.source == "full set, IDX files"


def test_every_class_that_a_row_names_is_torchvision_s() -> None:
    """Named once: a class that is renamed is found here and not by a user."""
    from torchvision import datasets

    rows = [row for row in OWN if isinstance(row, TorchvisionSet)]
    assert len(rows) == 18
    for row in rows:
        for name in (row.of, row.fetched_by or row.of):
            assert isinstance(getattr(datasets, name), type)


# Archives that are unpacked here.


def zipped(path: Path, members: dict[str, bytes], *, kind: int | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            member = zipfile.ZipInfo(name)
            if kind is not None:
                member.external_attr = (kind | 0o777) << 16
            archive.writestr(member, data)
    return path


MEMBERS = {"jpg/a/1.txt": b"one", "labels/2.txt": b"two", "readme": b"three"}
MAKES = ("jpg", "labels")


def test_archives_appear_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, root = zipped(tmp_path / "x.zip", MEMBERS), tmp_path / "root"
    real, calls = os.replace, []

    def fails_at_the_second_folder(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", fails_at_the_second_folder)
    with pytest.raises(OSError, match="No space left"):
        fetch.unpack(archive, root, makes=MAKES)
    assert os.listdir(root) == ["jpg"] and archive.exists()
    monkeypatch.setattr(os, "replace", real)
    fetch.unpack(archive, root, makes=MAKES)
    assert sorted(os.listdir(root)) == ["jpg", "labels"] and not archive.exists()
    assert (root / "jpg" / "a" / "1.txt").read_bytes() == b"one"


HOSTILE = [
    *((name, None) for name in ("../escaped", "{outside}/escaped", "jpg/../../../escaped", "jpg\\..\\..\\escaped")),
    *(("jpg/link", kind) for kind in (stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO)),
]


@pytest.mark.parametrize("name, kind", HOSTILE)
def test_hostile_archives_are_refused(tmp_path: Path, name: str, kind: int | None) -> None:
    """Members that lie elsewhere, and anything but files and folders."""
    members = {} if kind else MEMBERS
    archive = zipped(tmp_path / "x.zip", {**members, name.format(outside=tmp_path): b"/etc"}, kind=kind)
    with pytest.raises(UserError, match=r"x\.zip has a member .* that points elsewhere"):
        fetch.unpack(archive, tmp_path / "root", makes=MAKES)
    assert not list(tmp_path.glob("**/escaped*")) and not list((tmp_path / "root").iterdir())


def test_an_archive_without_what_it_should_hold(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no 'labels'"):
        fetch.unpack(zipped(tmp_path / "x.zip", {"jpg/1": b""}), tmp_path / "root", makes=MAKES)
    (tmp_path / "y.zip").write_bytes(b"no archive")
    with pytest.raises(UserError, match="cannot be unpacked"):
        fetch.unpack(tmp_path / "y.zip", tmp_path / "root", makes=MAKES)


def test_checksums(tmp_path: Path) -> None:
    """Checksums of an empty file and of "hello", as `git hash-object`, `md5sum` and `sha256sum` print them."""
    path = tmp_path / "file"
    path.write_bytes(b"")
    assert fetch.matches(path, "git:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")
    assert fetch.matches(path, "md5:d41d8cd98f00b204e9800998ecf8427e")
    path.write_bytes(b"hello")
    assert fetch.matches(path, "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
    assert not fetch.matches(path, "git:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")


def test_the_room_is_known_before_a_byte_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000_000_000))
    fetch.check_room(1_000_000_000, tmp_path / "not" / "yet" / "there")
    assert download(tmp_path, "pets") == 2
    assert "are free" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_the_list_and_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verb.main(["--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == set(registry.names("data set"))
    assert rows["imagenet"]["published"] == {"train": 1_281_167, "test": 50_000, "classes": 1_000}
    assert all(row["split"] and row["licence"] and row["source"] for row in rows.values())
    assert rows["fashion-mnist"]["available"] and not rows["kmnist"]["available"] and rows["kmnist"]["download"]
    for arguments, said in (
        (["--download", "kmnist"], "--data-root"),
        (["--download", "--data-root", str(tmp_path)], "names of data sets"),
        (["--download", "cars", "--data-root", str(tmp_path)], "cannot be downloaded"),
        (["kmnits"], "kmnist"),
    ):
        assert verb.main(arguments) == 2
        assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
