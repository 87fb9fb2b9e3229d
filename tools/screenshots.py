"""Pictures of a report at phone and desktop width, put beside it.

python -m tools.screenshots results/reference/scaling-cpu
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.report._browser import CHROMIUM, Browser, browser

VIEWS = {  # file name: (width, height, dark, figure to scroll to)
    "report-desktop.png": (1280, 900, False, None),
    "report-desktop-figures.png": (1280, 1100, False, "figure"),
    "report-desktop-dark.png": (1280, 1100, True, "figure"),
    "report-phone.png": (390, 844, False, None),
}


def take(opened: Browser, page: Path, folder: Path) -> list[Path]:
    """One picture per view."""
    made = []
    for name, (width, height, dark, place) in VIEWS.items():
        opened.open(page, width=width, height=height, dark=dark)
        if place:
            opened.run(f"document.querySelector('{place}')?.scrollIntoView()")
        opened.screenshot(folder / name)
        made.append(folder / name)
    return made


if __name__ == "__main__":
    if CHROMIUM is None:
        sys.exit("No Chromium on this machine: install one (apt-get install chromium).")
    for folder in map(Path, sys.argv[1:]):
        with browser() as opened:
            print(*take(opened, folder / "report.html", folder), sep="\n")
