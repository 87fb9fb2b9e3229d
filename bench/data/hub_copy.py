"""Data sets of the Hugging Face hub as they lie below the data root, each at one commit.

A set is there when `<data root>/hf/OWNER--NAME/COMMIT.json` lists its files and the folder beside it holds them all, so
half of one is never trained on. A study reads these files and asks nobody (`bench.data.hub` does, to fetch them).
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
    """Files of one data set of the hub.

    Attributes:
        repo: "owner/name".
        revision: a commit, of which seven digits are enough; or, for a download, a branch or a tag; "" for the newest.
        config: which of the set's configurations; "" for the only one.
        test: the word for the split that is for testing ("validation"), of several; "" for the best that is there.
        archive: one file that is fetched and unpacked, instead of files that are read as they are.
        makes: what the archive unpacks to, below the data root.
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
        """The name of the folder and the list of a commit's files."""
        return ".".join(filter(None, (commit, self.config, self.test)))

    def find(self, root: Path) -> Path | None:
        """The folder of the files; None where they are not all there."""
        if not COMMIT.fullmatch(self.revision):
            return None
        lists = self._lists(root)
        whole = [path for commit, path in lists.items() if commit.startswith(self.revision)]
        if len(whole) > 1:
            what = f"{self.repo}: {len(whole)} of the commits that are here begin with {self.revision}."
            raise UserError(what, "Write more of its digits.")
        return _complete(whole[0]) if whole else None

    def commits(self, root: Path) -> tuple[str, ...]:
        """The commits that are here."""
        return tuple(self._lists(root))

    def _lists(self, root: Path) -> dict[str, Path]:
        words = self.entry("")
        entry = re.compile(f"({COMMIT.pattern})" + (re.escape(f".{words}") if words else ""))
        lists = sorted(self.place(root).glob("*.json"))
        return {match.group(1): path for path in lists if (match := entry.fullmatch(path.stem))}


def _complete(listed: Path) -> Path | None:
    """The folder beside a list, where each file has the size in the list."""
    folder = listed.with_suffix("")
    try:
        sizes = json.loads(listed.read_text())["files"]
        whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
        return folder / os.path.commonpath([PurePosixPath(name).parent for name in sizes]) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
