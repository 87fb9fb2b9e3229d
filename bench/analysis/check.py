"""The interface of a validity check, which finds something that weakens a study's conclusions.

Examples are runs that cannot be compared, and results that are left out for that reason. A file in `bench/validity/`
exports one check as `CHECK`: its condition, the kinds of its results, and the words for each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck
from bench.analysis.ladders import compared
from bench.core.formatting import count, join, significant
from bench.study import registry

MAX_NAMED = 6  # at most this many names in one sentence


@dataclass(frozen=True, kw_only=True)
class Words:
    """A result of a check in one or two sentences. Converted to a string, it has `rule` in brackets between `text` and
    `rest`.

    Attributes:
        text: all sentences or, if there is a rule, the part before it.
        rule: the rule by which the result was judged, "" for none; a page may leave it out after the first time.
        rest: the part after the rule.
    """

    text: str
    rule: str = ""
    rest: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.rule}){self.rest}" if self.rule else self.without_rule

    @property
    def without_rule(self) -> str:
        """The sentences without the rule, for a reader who has already seen the rule."""
        return self.text + self.rest


@dataclass(frozen=True, kw_only=True, eq=False)
class Check:
    """A validity check.

    Attributes:
        order: position in a report; low numbers come first.
        find: evidence -> results; it returns no result if nothing weakens a conclusion.
        words: kind of result -> its text: a template that the fields of a result are filled into (`_fields`), or a
            function that makes the text of a result.
        quoted: text that takes the place of `words` in a study whose numbers are quoted from a publication; "" keeps
            `words`.
        together: results -> results, in which those that are to be said in one sentence are merged; by default, none
            are.
    """

    order: int
    find: Callable[[Evidence], Iterable[ValidityCheck]]
    words: Mapping[str, str | Callable[[ValidityCheck], str | Words]]
    quoted: str = ""
    together: Callable[[Sequence[ValidityCheck]], Sequence[ValidityCheck]] = lambda results: results


def every() -> list[Check]:
    """Return every validity check, in the order of a report."""
    made: list[Check] = [registry.load("validity check", name) for name in registry.names("validity check")]
    return sorted(made, key=lambda check: check.order)


def checks(evidence: Evidence) -> tuple[ValidityCheck, ...]:
    """Run every validity check, and return all results. Trials of learning rates in a ladder (`bench.analysis.ladders`)
    are not checked, because they are not compared."""
    judged = compared(evidence)
    return tuple(result for check in every() for result in check.find(judged))


@cache
def _by_kind() -> dict[str, Check]:
    return {kind: check for check in every() for kind in check.words}


def check_of(result: ValidityCheck) -> Check:
    """Return the check that produced a result."""
    return _by_kind()[result.kind]


def say(c: ValidityCheck, *, published: bool = False) -> Words:
    """Return a result in words.

    Args:
        published: whether the study's numbers are quoted from a publication.
    """
    check = check_of(c)
    if check.quoted and published:
        return Words(text=check.quoted)
    made = check.words[c.kind]
    said = made.format(**_fields(c)) if isinstance(made, str) else made(c)
    return Words(text=said) if isinstance(said, str) else said


def said(results: Iterable[ValidityCheck], *, published: bool = False) -> Iterator[tuple[ValidityCheck, Words]]:
    """Yield results with their words, grouped by check. Results that a check merges (`Check.together`) are yielded as
    one.

    Args:
        published: whether the study's numbers are quoted from a publication.
    """
    by_check: dict[Check, list[ValidityCheck]] = {}
    for result in results:
        by_check.setdefault(check_of(result), []).append(result)
    for check, mine in by_check.items():
        yield from ((c, say(c, published=published)) for c in check.together(mine))


# -- words that checks share -------------------------------------------------------------------------------------------


def _fields(c: ValidityCheck) -> dict[str, Any]:
    """Return the values that fill a template of words about a result: name of a placeholder -> value."""
    return {
        "names": names(c),
        "groups": groups(c),
        "count": count(c.count),
        "message": c.message,
        "field": join([{"lr": "learning rate"}.get(name, name.replace("_", " ")) for name in c.names]),
        "high": c.high,
        "high_text": "" if c.high is None else significant(c.high),
        "limit": c.limit,
    }


def names(c: ValidityCheck) -> str:
    """Return `names` of a result as text; of many, only the first few and the number of the others."""
    more = len(c.names) - MAX_NAMED
    return f"{join(c.names[:MAX_NAMED])} and {more} more" if more > 0 else join(c.names)


def groups(c: ValidityCheck) -> str:
    """Return `groups` of a result as text, the name of each group followed by its members ("ViT 0.001; ResNet 0.01 and
    0.03")."""
    return "; ".join(f"{name} {join(values)}" if name else join(values) for name, values in c.groups)


def grouped(values: Mapping[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return name -> members in the form of `ValidityCheck.groups`, a tuple of (name, members), sorted by name and
    member."""
    return tuple((name, tuple(sorted(members))) for name, members in sorted(values.items()))
