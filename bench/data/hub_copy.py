"""Local copies, below the data root (folder with data sets that are not installed), of data sets of the Hugging Face
hub, each at one commit.

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
    """A data set of the Hugging Face hub: its repository and revision, and which of its files are used.

    Attributes:
        repo: "owner/name".
        revision: a commit (seven digits or more); for a download also a branch, a tag, or "" for the newest commit.
        config: name of the configuration whose files are used; "" for the only one, or the card's default.
        test: name of the split that is used for testing, such as "validation"; "" for the first of SPLIT_WORDS["test"]
            that there is, so that "test" comes before "validation".
        archive: name of the only file that is fetched, an archive that is unpacked; "" if files are read as they are.
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
        """Return the name of the folder with the files of a commit; the list of these files has this name and
        ".json"."""
        return ".".join(filter(None, (commit, self.config, self.test)))

    def find(self, root: Path) -> Path | None:
        """Return the folder below the data root `root` with the files of `revision`; None if they are not all there.

        Raises:
            UserError: several commits that are there begin with the digits of `revision`.
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
        """Return the commits of which a copy has been fetched into the data root `root`."""
        return tuple(self._lists(root))

    def _lists(self, root: Path) -> dict[str, Path]:
        words = self.entry("")
        entry = re.compile(f"({COMMIT.pattern})" + (re.escape(f".{words}") if words else ""))
        lists = sorted(self.place(root).glob("*.json"))
        return {match.group(1): path for path in lists if (match := entry.fullmatch(path.stem))}


def _complete(listed: Path) -> Path | None:
    """Return the folder that holds the files named in the JSON file `listed`, if each has the size stated there; else
    None."""
    folder = listed.with_suffix("")
    try:
        sizes = json.loads(listed.read_text())["files"]
        whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
        return folder / os.path.commonpath([PurePosixPath(name).parent for name in sizes]) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
