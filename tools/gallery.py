"""Copies the pictures of docs/gallery.md out of the committed studies, so that the site has them too.

    python -m tools.gallery

Run it after the studies of results/reference/ were built again; tests/house/test_pages.py says when it was forgotten.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PICTURES = PROJECT / "docs" / "img"


def sources() -> dict[str, Path]:
    """Each picture that the page shows, and the committed figure that it is a copy of: `img/STUDY.FIGURE.png`."""
    page = (PROJECT / "docs" / "gallery.md").read_text(encoding="utf-8")
    named = re.findall(r"\]\(img/([\w-]+)\.([\w-]+)\.png\)", page)
    reference = PROJECT / "results" / "reference"
    return {f"{study}.{name}.png": reference / study / "figures" / f"{name}.png" for study, name in named}


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name, source in sources().items():
        shutil.copyfile(source, PICTURES / name)
        print(f"{name} ({source.stat().st_size // 1024} kB)")


if __name__ == "__main__":
    main()
