"""Results that show themselves: as text where they are printed, and in a notebook."""

from __future__ import annotations

import html
import tempfile
from dataclasses import dataclass
from pathlib import Path


class Shown:
    """A result whose printed form is its text; a notebook keeps the spaces of that."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A PNG file, which a notebook shows. It is taken wherever a path is (`open`, `shutil.copy`)."""

    path: Path

    @classmethod
    def at(cls, path: Path | str | None, name: str) -> Picture:
        """One to be drawn: at a path, or as a file of this name in a new folder for temporary files."""
        return cls(path=Path(path or Path(tempfile.mkdtemp(prefix="vit-bench-")) / name))

    def __fspath__(self) -> str:
        return str(self.path)

    def _repr_png_(self) -> bytes:
        return self.path.read_bytes()
