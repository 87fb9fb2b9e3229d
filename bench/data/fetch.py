"""Checks of every download that libraries make: room on the disk, checksums, and what an archive may hold."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from bench.core.errors import UserError
from bench.core.files import free_bytes, sync_directory
from bench.core.formatting import data_size


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


def matches(path: Path, checksum: str) -> bool:
    """Whether a file has a checksum: "sha256:…", "md5:…", or "git:…", the sha1 that git gives it."""
    kind, _, expected = checksum.partition(":")
    with open(path, "rb") as file:
        if kind == "git":
            digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
            return hashlib.file_digest(file, lambda: digest).hexdigest() == expected
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest() == expected


def unpack(archive: Path, folder: Path, *, makes: tuple[str, ...]) -> None:
    """Unpack a zip file beside its place, move what it makes into `folder`, and remove the archive.

    Args:
        makes: the names that it unpacks to; each appears in `folder` whole.

    Raises:
        UserError: it is damaged, points out of its folder, or lacks what it should make; the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{archive.name}-", dir=folder))
    try:
        with zipfile.ZipFile(archive) as packed:
            for member in packed.infolist():
                _check(member, archive)
            check_room(sum(member.file_size for member in packed.infolist()), folder)
            packed.extractall(beside)
        for name in makes:
            if not (beside / name).exists():
                raise UserError(f"{archive} holds no {name!r}.", "Get the file again.")
            if not (folder / name).exists():
                os.replace(beside / name, folder / name)
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError) as error:
        raise UserError(f"{archive} cannot be unpacked: {error}.", "Remove it and get it again.") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    sync_directory(folder)
    archive.unlink()


def _check(member: zipfile.ZipInfo, archive: Path) -> None:
    """Raises UserError for a member that points out of the archive, or is no plain file or folder."""
    path, kind = PurePosixPath(member.filename.replace("\\", "/")), stat.S_IFMT(member.external_attr >> 16)
    if path.is_absolute() or ".." in path.parts or kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        what = f"{archive} has a member {member.filename!r} that points elsewhere."
        raise UserError(what, "Do not use this file.")
