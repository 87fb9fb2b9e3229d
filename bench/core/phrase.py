"""A text that still knows which of its parts are intervals.

Code that shows the text can keep an interval on one line, or leave it out where there is no room, without looking for
brackets in a finished sentence.
"""

from __future__ import annotations


class Interval(str):
    """An interval in brackets, as part of a phrase: "[1.0, 5.2]"."""

    __slots__ = ()


class Phrase(str):
    """A text that keeps the parts it was joined from, in `parts`."""

    parts: tuple[str, ...]


def phrase(*parts: str) -> Phrase:
    """Join texts to one text that keeps their parts, including the intervals in them."""
    made = Phrase("".join(parts))
    made.parts = tuple(part for given in parts for part in parts_of(given))
    return made


def parts_of(text: str) -> tuple[str, ...]:
    """Return the parts of a `Phrase`; for plain text the text itself, and nothing for an empty one."""
    return text.parts if isinstance(text, Phrase) else (text,) if text else ()
