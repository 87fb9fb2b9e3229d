"""Checks of downloads: room on the disk, checksums, and members of archives."""

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
    """Check that the disk of `root` has room for `needed` bytes.

    Raises:
        UserError: the room is too small; the message says how much is needed and how much is free.
    """
    if needed > (free := free_bytes(root)):
        raise UserError(
            f"{root} needs about {data_size(needed)}, and {data_size(free)} are free.",
            "Free some space, or use another folder.",
        )


def matches(path: Path, checksum: str) -> bool:
    """Whether a file has the given checksum: "sha256:…", "md5:…", or "git:…" (the sha1 that git computes for it)."""
    kind, _, expected = checksum.partition(":")
    with open(path, "rb") as file:
        if kind == "git":
            digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
            return hashlib.file_digest(file, lambda: digest).hexdigest() == expected
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest() == expected


def unpack(archive: Path, folder: Path, *, makes: tuple[str, ...]) -> None:
    """Unpack a zip file into a temporary folder, move the results into `folder`, and delete the archive.

    Args:
        makes: names of the files or folders that the archive unpacks to; each is moved as a whole.

    Raises:
        UserError: the archive is damaged, has a member that points out of its folder, or lacks one of `makes`; or the
            disk has no room.
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
    """Check one member of an archive.

    Raises:
        UserError: the member points out of the archive, or is not a regular file or folder.
    """
    path, kind = PurePosixPath(member.filename.replace("\\", "/")), stat.S_IFMT(member.external_attr >> 16)
    if path.is_absolute() or ".." in path.parts or kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        what = f"{archive} has a member {member.filename!r} that points elsewhere."
        raise UserError(what, "Do not use this file.")
