"""Every number with an interval that a page states is on the list of claims, and the file named there says so."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

import pytest

from tests.conftest import PROJECT

LIST = PROJECT / "docs/claims.md"
PAGES = [
    "README.md",
    "results/reference/README.md",
    *(f"docs/{p.name}" for p in sorted((PROJECT / "docs").glob("*.md"))),
]
NUMBER = r"[−+\-]?\d[\d.,]*"
INTERVAL = re.compile(rf"{NUMBER}[^\[\]|.;:]{{0,12}} \[{NUMBER}, {NUMBER}\]|{NUMBER} ± {NUMBER}")


@dataclass(frozen=True)
class Claim:
    """A row of the list."""

    where: str
    words: str
    file: str
    it_says: str


def claims() -> list[Claim]:
    """The rows, without the table's head."""
    rows = [line for line in LIST.read_text().splitlines() if line.startswith("|")][2:]
    cells = ([plain(cell) for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows)
    return [Claim(*row) for row in cells]


def plain(text: str) -> str:
    """Words alone: no tags, no escapes of Markdown, and one space between words."""
    text = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", "", text))
    return re.sub(r"\s+", " ", re.sub(r"\\(?=\W)", "", text)).strip()


def page(name: str) -> str:
    """What a reader of a page is told: its commands and their output are left out."""
    return plain(re.sub(r"```.*?```", "", (PROJECT / name).read_text(), flags=re.DOTALL))


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: f"{claim.where}: {claim.words}"[:80])
def test_a_claim_stands_where_the_list_says_and_its_file_supports_it(claim: Claim) -> None:
    assert claim.words in page(claim.where)
    if not claim.file.startswith("`"):
        assert claim.it_says in plain((PROJECT / claim.file).read_text())


@pytest.mark.parametrize("name", sorted({*PAGES} - {"docs/claims.md", "docs/paper.md"}))
def test_no_interval_is_stated_without_a_row(name: str) -> None:
    """docs/paper.md is written by a command, and held by a test of its own."""
    listed = [claim.words for claim in claims() if claim.where == name]
    for stated in INTERVAL.findall(page(name)):
        assert any(stated in words for words in listed), stated


def test_the_intervals_of_a_claim_are_those_of_its_file() -> None:
    """To the digits that the page states; a page may say "behind" where its file has a minus."""
    pairs = re.compile(rf"\[({NUMBER}), ({NUMBER})\]")
    for claim in claims():
        for stated, found in zip(pairs.findall(claim.words), pairs.findall(claim.it_says), strict=False):
            of_page, of_file = ([abs(float(end.replace("−", "-"))) for end in pair] for pair in (stated, found))
            digits = [len(end.partition(".")[2]) for end in stated]
            assert sorted(of_page) == pytest.approx(sorted(of_file), abs=0.51 * 10 ** -min(digits)), claim


def test_the_old_headline_is_nowhere() -> None:
    """It compared a ViT of four patches with a ResNet whose features saw 11 of 28 pixels."""
    for name in PAGES:
        assert not re.search(r"\b3[56](\.\d)? points", page(name)), name
