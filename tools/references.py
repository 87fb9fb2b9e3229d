"""Builds the reports of committed studies again, in place, from their records.

    python -m tools.references [STUDY ...]      of results/reference/; all of them where none is named

What a study has committed is replaced (findings, laws, tables, figures, pages); of new figures the kinds of files are
kept that its others have. Then follow `python -m tools.gallery` and `python -m tools.golden write`.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.analysis import saved_findings
from tools import golden

KEPT = ("plan.json", "study.toml")  # These say what was asked, and no report writes them.
FOLDERS = ("tables", "figures")


def studies() -> list[Path]:
    """Folders with a report."""
    return sorted(path.parent for path in golden.REFERENCE.glob(f"*/{saved_findings.NAME}"))


def build(folder: Path) -> list[str]:
    """Build one study again. Returns the files that came or went."""
    with tempfile.TemporaryDirectory() as into:
        made = golden.rebuild(folder, Path(into))
        before = {path.relative_to(folder) for name in FOLDERS for path in (folder / name).glob("*")}
        kinds = {(path.parent.name, path.suffix) for path in before}
        after = {path.relative_to(made) for name in FOLDERS for path in (made / name).glob("*")}
        after = {path for path in after if (path.parent.name, path.suffix) in kinds}
        for gone in before - after:
            (folder / gone).unlink()
        pages = {Path(path.name) for path in folder.glob("*.*")} - {Path(name) for name in KEPT}
        for path in (*after, *(page for page in pages if (made / page).exists())):
            shutil.copyfile(made / path, folder / path)
        return sorted(str(path) for path in before ^ after)


def main(argv: Sequence[str] | None = None) -> None:
    named = sys.argv[1:] if argv is None else argv
    for folder in [golden.REFERENCE / name for name in named] or studies():
        print(f"{folder.name}: {', '.join(build(folder)) or 'the same files'}")


if __name__ == "__main__":
    main()
