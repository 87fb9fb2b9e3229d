"""Keeps private text out of a published study: names of its user and machine, paths, keys.

There are two steps, and the second does not rely on the first: `without` removes private text from a string, and
`check` reads every file that is about to be published and refuses it if anything private is left.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.core.errors import UserError

REMOVED = "[removed]"
EVERYBODYS = frozenset(("root", "user", "users", "ubuntu", "admin", "runner", "home", "localhost", "nobody"))
MIN_NAME, MIN_SECRET = 3, 6  # fewest letters of a name, and of a key; shorter ones are not searched for
USERS = ("USER", "LOGNAME", "USERNAME", "SUDO_USER")
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
KEYS = re.compile(
    r"(?<![\w-])(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16}(?![\w+/]))|"
    r"-----BEGIN [A-Z ]*PRIVATE KEY"
)
PATH = re.compile(r"(?<![\w/.:<~…*-])(?:~|/[\w.@+-]+)(?:/[\w.@+=-]+)+|\b[A-Za-z]:\\\\?(?:[\w.@+-]+\\\\?)+[\w.@+-]+")
HOMES = re.compile(r"(?<![\w.-])/(?:home|Users|root|mnt|scratch|tmp|work|data|gpfs|lustre|nfs)/[\w.@+-]+")
TEXTS = (".json", ".md", ".toml", ".csv", ".tex")


@dataclass(frozen=True, kw_only=True)
class PrivateWords:
    """Text that says where and by whom a study was run.

    Attributes:
        names: names of the user and the machine; only whole words count as such a name.
        secrets: value of each environment variable that holds a key -> the variable's name.
        folders: folders of this machine, such as the user's home.
    """

    names: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()

    @property
    def _alone(self) -> re.Pattern[str] | None:
        words = "|".join(re.escape(name) for name in sorted(self.names, key=len, reverse=True))
        return re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE) if words else None

    def without(self, text: str) -> str:
        """Return the text without what is private; the last part of a path is kept."""
        for value in self.secrets:
            text = text.replace(value, REMOVED)
        text = KEYS.sub(REMOVED, text)
        for place in sorted(self.folders, key=len, reverse=True):
            text = text.replace(f"{place}{os.sep}", "…/").replace(place, "…")
        text = PATH.sub(lambda found: "…/" + found[0].replace("\\", "/").rpartition("/")[2], text)
        return self._alone.sub(REMOVED, text) if self._alone else text

    def found_in(self, text: str, *, prose: bool) -> str:
        """Return in words the first private thing in a text, such as "a key"; "" if there is none.

        Args:
            prose: whether names of user and machine count too; false for texts such as SVG or HTML, in which a name may
                occur by chance.
        """
        for value, variable in self.secrets.items():
            if value in text:
                return f"the value of the environment variable {variable}"
        if KEYS.search(text):
            return "a key"
        for place in self.folders:
            if place in text:
                return f"the path {place}"
        if found := HOMES.search(text):
            return f"the path {found[0]}"
        if prose and self._alone and (named := self._alone.search(text)):
            return f"the name {named[0]!r}"
        return ""


def of_this_machine(folders: Iterable[Path] = ()) -> PrivateWords:
    """Return what is private on this machine: names, keys and folders, from the environment and the system.

    Args:
        folders: further private folders, such as those of results and images.
    """
    named = {os.environ.get(variable, "") for variable in USERS}
    with contextlib.suppress(OSError, KeyError, ImportError):
        named.add(getpass.getuser())
    host = socket.gethostname()
    named |= {host, host.partition(".")[0], socket.getfqdn(), os.environ.get("HOSTNAME", "")}
    kept = {name for name in named if len(name) >= MIN_NAME and name.casefold() not in EVERYBODYS}
    secrets = {
        value: name for name, value in os.environ.items() if SECRET.search(name) and len(value.strip()) >= MIN_SECRET
    }
    places = {str(Path(folder).absolute()) for folder in (Path.home(), Path.cwd(), *folders)}
    return PrivateWords(
        names=tuple(sorted(kept)),
        secrets=secrets,
        folders=tuple(sorted(place for place in places if len(Path(place).parts) > 1)),
    )


def check(folder: Path, private: PrivateWords) -> None:
    """Read every file in a folder, and raise if any of them holds something private.

    Raises:
        UserError: a file holds something private; the message says which file, and what.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            text = path.read_bytes().decode("utf-8", errors="replace")
            if found := private.found_in(text, prose=path.suffix in TEXTS):
                what = f"{path.relative_to(folder)} would publish {found}. Nothing was sent."
                raise UserError(
                    what, "Rename what holds it (a model's or a set's folder, a class), and run that again."
                )
