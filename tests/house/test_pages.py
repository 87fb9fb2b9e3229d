"""Pages that people read: pictures are those of the committed studies, and words are the field's."""

import pytest

from tests.conftest import PROJECT
from tools import gallery, private_words


def test_pictures_of_the_gallery_are_those_of_the_studies():
    """Otherwise: python -m tools.gallery."""
    sources = gallery.sources()
    assert len(sources) == 6
    assert {path.name for path in gallery.PICTURES.iterdir()} == set(sources)
    old = [name for name, path in sources.items() if (gallery.PICTURES / name).read_bytes() != path.read_bytes()]
    assert not old, f"python -m tools.gallery: {old}"


PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_the_fields_words(page):
    """Where the code has a word of its own, a page has the field's (python -m tools.private_words --where)."""
    text = private_words.prose(page.read_text())
    said = {field: private_words.found(text, pattern) for field, pattern in private_words.FIELD.items()}
    assert not {field: lines for field, lines in said.items() if lines}


def test_a_private_word_is_found_in_prose_alone():
    text = "A cell's name; `cell`, [cells](cell.md).\n```\ncells\n```\nexcellent\n"
    assert (
        private_words.found(private_words.prose(text), private_words.FIELD["run"]) == ["A cell's name;  , [cells ."] * 2
    )


def test_the_glossary_is_short_and_explains_what_is_kept():
    page = (PROJECT / "docs/glossary.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) <= 25
    assert [word for word in private_words.EXPLAINED if not private_words.found(page, word)] == []
