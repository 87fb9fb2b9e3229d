"""Local copies, below the data root, of data sets of the Hugging Face hub, each at one commit.

A copy counts as present if `<data root>/hf/OWNER--NAME/COMMIT.json` lists its files and the folder beside it holds all
of them, so that an incomplete copy is never trained on. A study reads these files without contacting the hub; only
downloads do (`bench.data.hub`).
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bench.core.errors import UserError

FOLDER = "hf"
COMMIT = re.compile(r"[0-9a-f]{7,40}")
NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True, kw_only=True)
class Repository:
    """The files of one data set of the hub that are used.

    Attributes:
        repo: "owner/name".
        revision: a commit (seven digits or more); for a download also a branch, a tag, or "" for the newest commit.
        config: name of the set's configuration; "" for the only one.
        test: name of the split that is used for testing ("validation"), if there are several; "" chooses the best one.
        archive: name of one file that is fetched and unpacked; "" if files are read as they are.
        makes: names of the files or folders that the archive unpacks to, below the data root.
    """

    repo: str
    revision: str = ""
    config: str = ""
    test: str = ""
    archive: str = ""
    makes: tuple[str, ...] = ()

    def place(self, root: Path) -> Path:
        return root / FOLDER / self.repo.replace("/", "--")

    def entry(self, commit: str) -> str:
        """Return the common name of a commit's folder and of the list of its files (which ends in ".json")."""
        return ".".join(filter(None, (commit, self.config, self.test)))

    def find(self, root: Path) -> Path | None:
        """Return the folder with the files of `revision`; None if they are not all there.

        Raises:
            UserError: several commits that are here begin with the digits of `revision`.
        """
        if not COMMIT.fullmatch(self.revision):
            return None
        lists = self._lists(root)
        whole = [path for commit, path in lists.items() if commit.startswith(self.revision)]
        if len(whole) > 1:
            what = f"{self.repo}: {len(whole)} of the commits that are here begin with {self.revision}."
            raise UserError(what, "Write more of its digits.")
        return _complete(whole[0]) if whole else None

    def commits(self, root: Path) -> tuple[str, ...]:
        """Return the commits of which a copy has been fetched."""
        return tuple(self._lists(root))

    def _lists(self, root: Path) -> dict[str, Path]:
        words = self.entry("")
        entry = re.compile(f"({COMMIT.pattern})" + (re.escape(f".{words}") if words else ""))
        lists = sorted(self.place(root).glob("*.json"))
        return {match.group(1): path for path in lists if (match := entry.fullmatch(path.stem))}


def _complete(listed: Path) -> Path | None:
    """Return the folder that holds the files named in the list `listed`, if each file has the size that the list
    states; None otherwise."""
    folder = listed.with_suffix("")
    try:
        sizes = json.loads(listed.read_text())["files"]
        whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
        return folder / os.path.commonpath([PurePosixPath(name).parent for name in sizes]) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
