"""Classes for results that display themselves: as text where they are printed, as HTML or images in notebooks."""

from __future__ import annotations

import html
import tempfile
from dataclasses import dataclass
from pathlib import Path


class Shown:
    """Base class of results that are displayed as the text `str(self)`; a notebook shows this text preformatted."""

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
        """Return a picture whose file is yet to be drawn. The file is `path`; None: the file `name` in a new temporary
        folder."""
        return cls(path=Path(path or Path(tempfile.mkdtemp(prefix="vit-bench-")) / name))

    def __fspath__(self) -> str:
        return str(self.path)

    def _repr_png_(self) -> bytes:
        return self.path.read_bytes()
