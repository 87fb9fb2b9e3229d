"""Words that this project uses in a sense of its own, counted in what a person reads.

    python -m tools.private_words [--at COMMIT] [--where]

Counts README, docs/, the committed reports and the `--help` of every command, of this folder or of a
commit. `--where` prints each place of a word that has another in the field. Fenced examples, `code`, links, names of
options are not counted, because they are names that a person types.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/*.md", "results/reference/README.md", "results/reference/*/report.md")
FIELD = {
    "run": r"cells?",
    "budget": r"horizons?",
    "few-shot sample": r"(?:few-shot |all |several |\d+ |which )draws?|draws? of",
    "inconclusive": r"(?:cannot|can't) tell",
    "pre-training set": r"upstream",
    "target set": r"downstream",
    "main": r"headline",
    "out-of-domain": r"\(far\)|far (?:sets?|tasks?)",
    "pooled": r"moderated",
    "pixel baseline": r"raw pixels",
    "answer": r"verdicts?",
    "shared part": r"trunks?",
}
"""The field's word -> what this project's code says instead."""
EXPLAINED = (
    "suite", "scale", "family", "record", "finding", "revision", "cool-down", "pico", "nano", "branch(?:es)?", "worker",
    "reach", "frontier", "rehears(?:e|al)", "main sets?", "out-of-domain", "few-shot samples?", "inconclusive",
    "pixel baseline",
)  # fmt: skip
"""Words that stay, because each is in docs/glossary.md."""


def prose(text: str) -> str:
    """Markdown without what is typed or linked: fenced blocks, `code`, HTML comments and targets of links."""
    text = re.sub(r"^```.*?^```|<!--.*?-->", " ", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`|\]\([^)]*\)|!\[[^\]]*\]", " ", text)


def helped(text: str) -> str:
    """A `--help` without its synopsis, options, file names, commands of examples, and placeholders."""
    text = re.sub(r"^usage:.*?\n\n", "", text, flags=re.DOTALL)
    return re.sub(r"vit-bench \S.*?(?=  |$)|--[\w-]+|\S*[/.=]\S+|\b[A-Z]{2,}\b", " ", text, flags=re.MULTILINE)


def read(folder: Path) -> Iterator[tuple[str, str]]:
    """Every page and every `--help` of a checkout, with its name."""
    for pattern in PAGES:
        for path in sorted(folder.glob(pattern)):
            yield str(path.relative_to(folder)), prose(path.read_text(encoding="utf-8"))
    for verb in re.findall(r"^  (\w+)  ", _said(folder).partition("examples:")[0], flags=re.MULTILINE):
        yield f"{verb} --help", helped(_said(folder, verb))


def _said(folder: Path, *words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "100", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "bench", *words, "--help"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment).stdout


def found(text: str, pattern: str) -> list[str]:
    """Every line of a text in which a word is, once for each place."""
    return [line for line in text.splitlines() for _ in re.finditer(rf"(?<![\w-])(?:{pattern})(?![\w-])", line, re.I)]


def counted(pages: Mapping[str, str]) -> tuple[Counter[str], Counter[str]]:
    """How often words are used that the field has another for, and those that the glossary explains."""
    replaced = Counter({field: sum(len(found(t, p)) for t in pages.values()) for field, p in FIELD.items()})
    return replaced, Counter({word: sum(len(found(t, word)) for t in pages.values()) for word in EXPLAINED})


def checkout(commit: str, folder: Path) -> Path:
    """The files of a commit in a folder."""
    packed = subprocess.run(["git", "archive", commit], capture_output=True, cwd=PROJECT, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", metavar="COMMIT", help="count in this commit")
    parser.add_argument("--where", action="store_true", help="print every place of a word that is to be replaced")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = checkout(args.at, Path(temporary)) if args.at else PROJECT
        pages = dict(read(folder))
    replaced, explained = counted(pages)
    for field, number in replaced.most_common():
        print(f"{number:5}  {FIELD[field]}  ->  {field}")
    print(f"{replaced.total():5}  uses of {len(FIELD)} words that the field has another for, in {len(pages)} pages")
    print(f"{explained.total():5}  uses of {len(EXPLAINED)} words that docs/glossary.md explains")
    for field, pattern in FIELD.items() if args.where else ():
        for name, text in pages.items():
            for line in found(text, pattern):
                print(f"{name}: {field}: {' '.join(line.split())}")


if __name__ == "__main__":
    main()
