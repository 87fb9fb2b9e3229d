"""Words in parts: a text that still knows which of its parts are intervals.

Whoever shows it may keep an interval on one line, or leave it out where there is no room, without looking for brackets
in a finished sentence.
"""

from __future__ import annotations


class Interval(str):
    """An interval in brackets, as part of a phrase: "[1.0, 5.2]"."""

    __slots__ = ()


class Phrase(str):
    """A text, and the parts that it was made of."""

    parts: tuple[str, ...]


def phrase(*parts: str) -> Phrase:
    """One text of several, with the intervals that are in any of them."""
    made = Phrase("".join(parts))
    made.parts = tuple(part for given in parts for part in parts_of(given))
    return made


def parts_of(text: str) -> tuple[str, ...]:
    """The parts of a text: itself, where it is no phrase; none of an empty one."""
    return text.parts if isinstance(text, Phrase) else (text,) if text else ()
