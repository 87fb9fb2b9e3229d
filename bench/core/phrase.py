"""Text that keeps the parts it was joined from, so that code that shows the text can tell which parts are intervals.

Such code can keep an interval on one line, or leave it out where there is no room, without looking for brackets in a
finished sentence.
"""

from __future__ import annotations


class Interval(str):
    """An interval in brackets, as part of a phrase: "[1.0, 5.2]"."""

    __slots__ = ()


class Phrase(str):
    """A text that was joined from parts, and keeps them in the attribute `parts`."""

    parts: tuple[str, ...]


def phrase(*parts: str) -> Phrase:
    """Join texts to one text that keeps its parts. A text that is itself a `Phrase` contributes each of its own parts,
    so that intervals in it stay parts."""
    made = Phrase("".join(parts))
    made.parts = tuple(part for given in parts for part in parts_of(given))
    return made


def parts_of(text: str) -> tuple[str, ...]:
    """Return the parts of a `Phrase`. Any other text is its own only part; an empty text has none."""
    return text.parts if isinstance(text, Phrase) else (text,) if text else ()
