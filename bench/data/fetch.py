"""Download of data sets from their authors' servers: only on request, checked, resumed, never half there.

A set whose licence allows it names its files as `DOWNLOADS`, with the checksums that torchvision pins; of files on the
Hugging Face hub, the hub states them (`bench.data.hub`). A file is written under another name beside its place,
continued there after an interruption, and takes its name when its checksum is right. An archive is unpacked beside its
place too; each folder in it appears there whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from bench.core.errors import UserError
from bench.core.files import free_bytes, sync_directory
from bench.core.formatting import data_size

PIECE = 1 << 20
PATIENCE = 60.0  # seconds without a byte, or with fewer than SLOWEST of them in each
SLOWEST = 1_000  # bytes a second
SCHEMES = ("https", "http", "file")
IDX_SIZES = {
    "train-images-idx3": 20_000_000,
    "train-labels-idx1": 30_000,
    "t10k-images-idx3": 4_000_000,
    "t10k-labels-idx1": 5_000,
}


@dataclass(frozen=True, kw_only=True)
class File:
    """One file to fetch.

    Attributes:
        url: where it is.
        checksum: "md5:…" or "sha256:…", as published; "git:…", the sha1 that git gives it.
        size: bytes, about; more than twice as many are not taken. None where nobody knows.
        folder: where it goes, below the data root.
        makes: for an archive, what it unpacks to in that folder; empty for a file that is used as it is.
        authorization: header for its server alone, where one is needed.
    """

    url: str
    checksum: str
    folder: str
    size: int | None = None
    makes: tuple[str, ...] = ()
    authorization: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        return PurePosixPath(unquote(urlsplit(self.url).path)).name


@dataclass(frozen=True, kw_only=True)
class Download:
    """What `--download` fetches of a set.

    Attributes:
        name: the set's, with the revision that is fetched.
        licence, source: for people. finish: called with the data root when every file is there.
    """

    name: str
    files: tuple[File, ...]
    licence: str
    source: str
    finish: Callable[[Path], None] = lambda root: None


def idx_files(url: str, folder: str, *md5: str) -> tuple[File, ...]:
    """MNIST's four files, which its relatives have under the same names."""
    return tuple(
        File(url=f"{url}/{name}-ubyte.gz", checksum=f"md5:{sum_}", size=size, folder=folder)
        for (name, size), sum_ in zip(IDX_SIZES.items(), md5, strict=True)
    )


def missing(files: Sequence[File], root: Path) -> int:
    """Bytes that are not there yet, about: what a stopped download has left counts as there."""
    total = 0
    for file in files:
        folder = root / file.folder
        if (folder / file.name).is_file() or (file.makes and all((folder / name).exists() for name in file.makes)):
            continue
        part = folder / f".{file.name}.part"
        total += max(0, (file.size or 0) - (part.stat().st_size if part.is_file() else 0))
    return total


def disk(files: Sequence[File], root: Path) -> int:
    """Bytes of disk that are still needed, about: an archive lies beside what it unpacks to."""
    return sum((2 if file.makes else 1) * missing([file], root) for file in files)


def check_room(needed: int, root: Path) -> None:
    """Refuse to begin what the disk cannot hold.

    Raises:
        UserError: how much is needed, and how much there is.
    """
    if needed > (free := free_bytes(root)):
        raise UserError(
            f"{root} needs about {data_size(needed)}, and {data_size(free)} are free.",
            "Free some space, or use another folder.",
        )


def fetch(file: File, root: Path) -> bool:
    """Have a file, or what its archive unpacks to, below the data root. False when it was there already.

    Raises:
        UserError: the server does not answer or sends something else, the disk is full or read-only, the archive is
            damaged or hostile. What was fetched of a file is kept, and continued next time.
    """
    folder = root / file.folder
    target = folder / file.name
    if file.makes and all((folder / name).exists() for name in file.makes):
        return False
    try:
        if not target.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            _download(file, target)
        elif not _matches(target, file.checksum):
            raise UserError(f"{target} is not the published file: its checksum differs.", "Move it away.")
        elif not file.makes:
            return False
        if file.makes:
            _unpack(target, folder, makes=file.makes)
    except OSError as error:
        raise UserError(f"{file.url} cannot be kept in {folder}: {error}.", "Run the same command again.") from error
    return True


def _download(file: File, target: Path) -> None:
    import http.client  # here: sets name their files wherever they are listed, and hardly ever get one
    import urllib.error
    import urllib.request

    part = target.with_name(f".{target.name}.part")
    have = part.stat().st_size if part.is_file() else 0
    if urlsplit(file.url).scheme not in SCHEMES:
        raise UserError(f"{file.url} is not on the web.", f"Allowed: {', '.join(SCHEMES)}.")
    request = urllib.request.Request(file.url, headers={"Range": f"bytes={have}-"} if have else {})
    if file.authorization:
        request.add_unredirected_header("Authorization", file.authorization)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            continued = have > 0 and getattr(answer, "status", None) == 206
            _receive(answer, part, start=have if continued else 0, size=file.size)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # nothing after what is there: it may be whole
            raise UserError(f"{file.url} cannot be had: {error}.", "Try later, or get it by hand.") from error
    except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise UserError(f"{file.url} cannot be had: {reason}.", "Run the same command again to continue.") from error
    if not _matches(part, file.checksum):
        part.unlink()
        raise UserError(f"What {file.url} sent is not the published file: its checksum differs.", "Try again later.")
    os.replace(part, target)
    sync_directory(target.parent)


def _receive(answer: Any, part: Path, *, start: int, size: int | None) -> None:
    """Append what the server sends, as it comes.

    Raises:
        UserError: it is more than the file can be, or than the disk has room for.
        ConnectionError: the server stops early, or is too slow ever to come to an end.
    """
    stated = str(answer.headers.get("Content-Length"))
    length = int(stated) if stated.isascii() and stated.isdigit() and len(stated) < 19 else None
    most = 2 * size if size else None
    needed = length if length is not None else (size or start) - start
    if most and start + (length or 0) > most:
        raise _too_large(part, most)
    if needed > free_bytes(part):
        raise UserError(f"{part.parent} has no room for {needed:,} bytes.", "Free some space, or use another folder.")
    done, shown = start, time.monotonic()
    since, before = shown, done
    with open(part, "r+b" if start else "wb") as out:
        out.seek(start)
        while piece := answer.read1(PIECE):
            out.write(piece)
            done += len(piece)
            now = time.monotonic()
            if most and done > most:
                raise _too_large(part, most)
            if now - since >= PATIENCE:
                if done - before < SLOWEST * PATIENCE:
                    raise ConnectionError(f"it sent {done - before:,} bytes in {now - since:.0f} s")
                since, before = now, done
            if now - shown > 5:
                shown = now
                whole = f" of {(start + length) / 1e6:,.0f}" if length else ""
                print(f"{part.name[1:-5]}: {done / 1e6:,.0f}{whole} MB", file=sys.stderr, flush=True)
        out.flush()
        os.fsync(out.fileno())
    if length and done < start + length:
        raise ConnectionError(f"it stopped after {done:,} of {start + length:,} bytes")


def _too_large(part: Path, most: int) -> UserError:
    part.unlink(missing_ok=True)
    return UserError(f"{part.name[1:-5]} is larger than {most:,} bytes, so it is another file.", "Try again later.")


def _matches(path: Path, checksum: str) -> bool:
    kind, _, expected = checksum.partition(":")
    with open(path, "rb") as file:
        if kind == "git":
            digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
            return hashlib.file_digest(file, lambda: digest).hexdigest() == expected
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest() == expected


def _unpack(archive: Path, folder: Path, *, makes: tuple[str, ...]) -> None:
    """Unpack beside, move what it makes into its place, and remove the archive.

    Raises:
        UserError: it is damaged, points out of its folder, or lacks what it should make.
    """
    beside = Path(tempfile.mkdtemp(prefix=f".{archive.name}-", dir=folder))
    try:
        if archive.name.endswith(".zip"):
            with zipfile.ZipFile(archive) as packed:
                for member in packed.infolist():
                    kind = stat.S_IFMT(member.external_attr >> 16)
                    _check(member.filename, archive, plain=kind in (0, stat.S_IFREG, stat.S_IFDIR))
                if (size := sum(member.file_size for member in packed.infolist())) > free_bytes(folder):
                    raise UserError(f"{folder} has no room for {size:,} bytes of {archive.name}.", "Free some space.")
                for member in packed.infolist():
                    packed.extract(member, beside)
        else:
            # Not extractall(): its safe filter came with Python 3.11.4 only. Data needs no links, owners or modes.
            with tarfile.open(archive) as tar:
                for entry in tar:
                    _check(entry.name, archive, plain=entry.isfile() or entry.isdir())
                    target = beside / entry.name
                    (target if entry.isdir() else target.parent).mkdir(parents=True, exist_ok=True)
                    if data := tar.extractfile(entry):
                        with data, open(target, "wb") as out:
                            shutil.copyfileobj(data, out)
        for name in makes:
            if not (beside / name).exists():
                raise UserError(f"{archive} holds no {name!r}.", "Get the file again.")
            if not (folder / name).exists():
                os.replace(beside / name, folder / name)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError) as error:
        raise UserError(f"{archive} cannot be unpacked: {error}.", "Remove it and get it again.") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    sync_directory(folder)
    archive.unlink()


def _check(name: str, archive: Path, *, plain: bool) -> None:
    """Raises UserError for a member that points out of the archive, or is no plain file or folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not plain:
        raise UserError(f"{archive} has a member {name!r} that points elsewhere.", "Do not use this file.")
