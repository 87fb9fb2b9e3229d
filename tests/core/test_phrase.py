"""A text that keeps its parts."""

from hypothesis import given
from hypothesis import strategies as some

from bench.core.phrase import Interval, parts_of, phrase
from bench.report.page import _short, _unbroken

WORDS = some.text(alphabet="abc []%,", max_size=8)
PARTS = some.lists(some.one_of(WORDS, WORDS.map(Interval)), max_size=5)


@given(PARTS, PARTS)
def test_a_phrase_is_its_text_and_keeps_the_parts_of_its_phrases(some_parts: list[str], others: list[str]) -> None:
    made = phrase(phrase(*some_parts), *others)
    assert made == "".join(some_parts + others) == "".join(parts_of(made))
    intervals = [part for part in some_parts + others if isinstance(part, Interval) and part]
    assert [part for part in parts_of(made) if isinstance(part, Interval)] == intervals


def test_a_page_knows_an_interval_from_what_is_in_brackets() -> None:
    said = phrase("[1, 2] is no interval; 3 % ", Interval("[1, 5]"), " is, <b>")
    assert _unbroken(said) == "[1, 2] is no interval; 3\u00a0% [1,\u00a05] is, &lt;b&gt;"
    assert _short(said, "") == _unbroken(said)
    assert _short(phrase(said, " ", "B: no."), "B: no.") == f'{_unbroken(said)}<span class="wide-only"> B: no.</span>'
