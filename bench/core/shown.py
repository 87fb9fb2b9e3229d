"""Base classes of results that display themselves, as text where they are printed and as HTML or images in
notebooks."""

from __future__ import annotations

import html
import tempfile
from dataclasses import dataclass
from pathlib import Path


class Shown:
    """Base class of results that are displayed as `str(self)`; a notebook shows it as preformatted text."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A PNG file, which a notebook displays. It can be used wherever a path can (`open`, `shutil.copy`)."""

    path: Path

    @classmethod
    def at(cls, path: Path | str | None, name: str) -> Picture:
        """Return a picture that is yet to be drawn: at `path`, or as the file `name` in a new temporary folder."""
        return cls(path=Path(path or Path(tempfile.mkdtemp(prefix="vit-bench-")) / name))

    def __fspath__(self) -> str:
        return str(self.path)

    def _repr_png_(self) -> bytes:
        return self.path.read_bytes()
