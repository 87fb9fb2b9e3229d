"""Downloads: from a server on this machine, which breaks off, forgets ranges, lies, and packs hostile archives."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import struct
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from bench.core import registry
from bench.core.errors import UserError
from bench.data import __main__ as verb
from bench.data import fetch
from bench.data.fetch import File

BODY = bytes(np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8))


class Server(ThreadingHTTPServer):
    """Serves `files`; remembers the ranges asked for."""

    files: dict[str, bytes]
    ranges: list[str | None]
    stop_after: int | None = None
    knows_ranges = True
    length: str | None = None  # said instead of the true one
    pause = 0.0  # seconds between single bytes

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        body = self.server.files.get(self.path.lstrip("/"))
        if body is None:
            return self.send_error(404)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.knows_ranges else 0
        if start >= len(body):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", self.server.length or str(len(body) - start))
        self.end_headers()
        if not self.server.pause:
            self.wfile.write(body[start : self.server.stop_after])
        for place in range(start, len(body)) if self.server.pause else ():
            try:
                self.wfile.write(body[place : place + 1])
            except OSError:
                return
            time.sleep(self.server.pause)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server(("127.0.0.1", 0), Handler)
    running.files, running.ranges = {"data.bin": BODY}, []
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def checksum(data: bytes, kind: str = "sha256") -> str:
    return f"{kind}:{hashlib.new(kind, data).hexdigest()}"


def the_file(server: Server, **changes: object) -> File:
    return replace(File(url=f"{server.url}/data.bin", checksum=checksum(BODY), folder="set"), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_fetched_once_and_checked(server: Server, tmp_path: Path, kind: str) -> None:
    file = the_file(server, checksum=checksum(BODY, kind))
    assert fetch.fetch(file, tmp_path)
    assert (tmp_path / "set" / "data.bin").read_bytes() == BODY
    assert not fetch.fetch(file, tmp_path), "it was there already"
    assert len(server.ranges) == 1 and os.listdir(tmp_path / "set") == ["data.bin"]


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_continued_after_an_interruption(server: Server, tmp_path: Path, knows_ranges: bool) -> None:
    server.stop_after, server.knows_ranges = 100_000, knows_ranges
    with pytest.raises(UserError, match="Run the same command again"):
        fetch.fetch(the_file(server), tmp_path)
    assert os.listdir(tmp_path / "set") == [".data.bin.part"], "nothing under its own name yet"
    server.stop_after = None
    assert fetch.fetch(the_file(server), tmp_path)
    assert server.ranges == [None, "bytes=100000-"]
    assert (tmp_path / "set" / "data.bin").read_bytes() == BODY


@pytest.mark.parametrize("length", ["abc", "5, 5", "-1", "9" * 30, "٣"])
def test_a_length_that_is_none_is_unknown(server: Server, tmp_path: Path, length: str) -> None:
    server.length = length
    try:
        assert fetch.fetch(the_file(server), tmp_path)
    except UserError as error:
        assert "cannot be had" in str(error)


def test_more_than_the_file_can_be_is_not_taken(server: Server, tmp_path: Path) -> None:
    for length in (None, "x"):  # said beforehand, and found out
        server.length = length
        with pytest.raises(UserError, match="larger than 20,000 bytes"):
            fetch.fetch(the_file(server, size=10_000), tmp_path)
        assert os.listdir(tmp_path / "set") == []
    assert fetch.fetch(the_file(server, size=280_000), tmp_path)


def test_a_server_that_never_ends_is_left(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte now and then is no silence, and would go on for years; what came is kept."""
    monkeypatch.setattr(fetch, "PATIENCE", 0.5)
    server.pause = 0.02
    with pytest.raises(UserError, match=r"it sent \d+ bytes in"):
        fetch.fetch(the_file(server), tmp_path)
    assert (tmp_path / "set" / ".data.bin.part").stat().st_size > 5


def test_stopped_between_the_last_byte_and_the_name(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / ".data.bin.part").write_bytes(BODY)
    assert fetch.fetch(the_file(server), tmp_path)
    assert (tmp_path / "set" / "data.bin").read_bytes() == BODY


def test_other_content_is_refused_and_removed(server: Server, tmp_path: Path) -> None:
    server.files["data.bin"] = BODY[:-1] + b"x"
    with pytest.raises(UserError, match="checksum"):
        fetch.fetch(the_file(server), tmp_path)
    assert os.listdir(tmp_path / "set") == []
    (tmp_path / "set" / "data.bin").write_bytes(b"mine")
    with pytest.raises(UserError, match="not the published file"):
        fetch.fetch(the_file(server), tmp_path)
    assert (tmp_path / "set" / "data.bin").read_bytes() == b"mine", "what is there is not touched"


def test_servers_that_do_not_answer(server: Server, tmp_path: Path) -> None:
    for url in (f"{server.url}/nothing", "http://127.0.0.1:9/data.bin", "ftp://127.0.0.1/data.bin"):
        with pytest.raises(UserError, match=r"127\.0\.0\.1"):
            fetch.fetch(the_file(server, url=url), tmp_path)


def packed(kind: str, members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for name, data in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


MEMBERS = {"jpg/a/1.txt": b"one", "labels/2.txt": b"two", "readme": b"three"}


def archive_of(server: Server, kind: str, members: dict[str, bytes]) -> File:
    name = f"x.{kind}"
    server.files[name] = packed(kind, members)
    sum_ = checksum(server.files[name])
    return File(url=f"{server.url}/{name}", checksum=sum_, folder="set", makes=("jpg", "labels"))


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_archives_appear_whole(server: Server, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = archive_of(server, kind, MEMBERS)
    real, calls = os.replace, []

    def fails_at_the_second_folder(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", fails_at_the_second_folder)
    with pytest.raises(UserError, match="No space left"):
        fetch.fetch(file, tmp_path)
    assert sorted(os.listdir(tmp_path / "set")) == ["jpg", f"x.{kind}"]
    monkeypatch.setattr(os, "replace", real)
    assert fetch.fetch(file, tmp_path)
    assert sorted(os.listdir(tmp_path / "set")) == ["jpg", "labels"]
    assert (tmp_path / "set" / "jpg" / "a" / "1.txt").read_bytes() == b"one"
    assert not fetch.fetch(file, tmp_path) and len(server.ranges) == 1


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.parametrize("name", ["../escaped", "{outside}/escaped", "jpg/../../../escaped"])
def test_hostile_archives_are_refused(server: Server, tmp_path: Path, kind: str, name: str) -> None:
    file = archive_of(server, kind, {**MEMBERS, name.format(outside=tmp_path): b"bad"})
    root = tmp_path / "data"
    with pytest.raises(UserError, match=r"x\.(zip|tar\.gz) has a member .* that points elsewhere"):
        fetch.fetch(file, root)
    assert not list(tmp_path.glob("escaped*"))
    assert {path.name for path in root.iterdir()} == {"set"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_a_tar_with_anything_but_files_and_folders_is_refused(server: Server, tmp_path: Path, kind: bytes) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        member = tarfile.TarInfo("jpg/link")
        member.type, member.linkname = kind, str(tmp_path)
        tar.addfile(member)
    server.files["x.tar.gz"] = out.getvalue()
    file = File(url=f"{server.url}/x.tar.gz", checksum=checksum(out.getvalue()), folder="set", makes=("jpg",))
    with pytest.raises(UserError, match="'jpg/link' that points elsewhere"):
        fetch.fetch(file, tmp_path / "data")
    assert os.listdir(tmp_path / "data" / "set") == ["x.tar.gz"]


def test_an_archive_without_what_it_should_hold(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no 'labels'"):
        fetch.fetch(archive_of(server, "zip", {"jpg/1": b""}), tmp_path)
    file = archive_of(server, "zip", {})
    server.files["x.zip"] = b"no archive"
    with pytest.raises(UserError, match="cannot be unpacked"):
        fetch.fetch(replace(file, checksum=checksum(b"no archive")), tmp_path / "other")


def test_checksums_are_those_that_torchvision_pins() -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    pinned = dict(datasets.OxfordIIITPet._RESOURCES) | {
        datasets.EMNIST.url: datasets.EMNIST.md5,
        datasets.CLEVRClassification._URL: datasets.CLEVRClassification._MD5,
    }
    for kind in (datasets.MNIST, datasets.FashionMNIST, datasets.KMNIST):
        pinned |= {mirror + name: md5 for mirror in kind.mirrors for name, md5 in kind.resources}
    import inspect

    checked = 0
    for name in registry.names("data set"):
        for file in getattr(registry.load("data set", name), "DOWNLOADS", ()):
            md5 = file.checksum.removeprefix("md5:")
            if file.url in pinned:
                assert pinned[file.url] == md5
            else:
                source = inspect.getsource(datasets.EuroSAT.download)
                assert file.url in source and md5 in source
            checked += 1
    assert checked >= 17


def kmnist_files(folder: Path) -> tuple[File, ...]:
    """KMNIST in miniature, at file:// addresses."""
    found = []
    for stem, count in (("train", 20), ("t10k", 10)):
        images = struct.pack(">BBBB3I", 0, 0, 8, 3, count, 28, 28) + BODY[: count * 784]
        labels = struct.pack(">BBBBI", 0, 0, 8, 1, count) + bytes(i % 10 for i in range(count))
        for what, data in (("images-idx3", images), ("labels-idx1", labels)):
            path = folder / f"{stem}-{what}-ubyte.gz"
            path.write_bytes(gzip.compress(data, 1))
            found.append(File(url=path.as_uri(), checksum=checksum(path.read_bytes()), folder="kmnist"))
    return tuple(found)


def test_the_verb_fetches_and_says_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "server").mkdir()
    small = replace(registry.load("data set", "kmnist"), DOWNLOADS=kmnist_files(tmp_path / "server"))
    monkeypatch.setattr(registry, "load", lambda kind, name: small)
    root = ["--data-root", str(tmp_path / "root")]
    assert verb.main(["kmnist", *root]) == 2
    assert "not on this machine" in capsys.readouterr().err
    assert verb.main(["kmnist", "--download", *root]) == 0
    said = capsys.readouterr()
    assert "train        20 images, 28 x 28 x 1, 10 classes" in said.out and "CC-BY-SA" in said.out
    assert said.err.count("fetched, checksum right") == 4
    shutil.rmtree(tmp_path / "server")
    assert verb.main(["kmnist", "--download", "--json", *root]) == 0, "nothing is fetched twice"
    (facts,) = json.loads(capsys.readouterr().out)
    assert facts["test"]["images"] == 10 and len(facts["train"]["content_hash"]) == 64


def test_the_cost_is_known_before_a_byte_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = registry.load("data set", "pets").DOWNLOADS
    whole = sum(file.size for file in files)
    assert fetch.missing(files, tmp_path) == whole > 800_000_000
    (tmp_path / "oxford-iiit-pet" / "annotations").mkdir(parents=True)
    assert fetch.missing(files, tmp_path) == files[0].size
    (tmp_path / "oxford-iiit-pet" / f".{files[0].name}.part").write_bytes(bytes(1_000))  # a download that was stopped
    assert fetch.missing(files, tmp_path) == files[0].size - 1_000
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=whole))
    fetch.check_room(whole, tmp_path / "not" / "yet" / "there")
    with pytest.raises(UserError, match="are free"):
        fetch.check_room(whole + 1, tmp_path)


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
        (["--download", "flowers102", "--data-root", str(tmp_path)], "cannot be downloaded"),
        (["kmnits"], "kmnist"),
    ):
        assert verb.main(arguments) == 2
        assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
