"""A validity check: what weakens a study's conclusions, what does not compare in it, and what was set aside for that.

A file in `bench/validity/` exports one as `CHECK`: its condition, the kinds of its results, and their words.
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

MAX_NAMED = 6  # names in one sentence


@dataclass(frozen=True, kw_only=True)
class Words:
    """A result of a check in one or two sentences.

    Attributes:
        text: all of them, or what comes before the rule.
        rule: the rule by which it was judged, in brackets; a short page says each rule once.
        rest: what follows the rule.
    """

    text: str
    rule: str = ""
    rest: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.rule}){self.rest}" if self.rule else self.without_rule

    @property
    def without_rule(self) -> str:
        """The sentences for a reader who knows the rule."""
        return self.text + self.rest


@dataclass(frozen=True, kw_only=True, eq=False)
class Check:
    """A validity check.

    Attributes:
        order: place in a report, low first.
        find: evidence -> results; none where nothing is weakened.
        words: kind of a result -> a template of its fields, or a function that puts it into words.
        quoted: what is said in place of its words where a study's numbers are quoted.
        together: results -> fewer, of which each is said in a sentence of its own.
    """

    order: int
    find: Callable[[Evidence], Iterable[ValidityCheck]]
    words: Mapping[str, str | Callable[[ValidityCheck], str | Words]]
    quoted: str = ""
    together: Callable[[Sequence[ValidityCheck]], Sequence[ValidityCheck]] = lambda results: results


def every() -> list[Check]:
    """Every check in the order of a report."""
    made: list[Check] = [registry.load("validity check", name) for name in registry.names("validity check")]
    return sorted(made, key=lambda check: check.order)


def checks(evidence: Evidence) -> tuple[ValidityCheck, ...]:
    """The results of every check that found something in the runs that are compared."""
    judged = compared(evidence)
    return tuple(result for check in every() for result in check.find(judged))


@cache
def _by_kind() -> dict[str, Check]:
    return {kind: check for check in every() for kind in check.words}


def check_of(result: ValidityCheck) -> Check:
    """The check that a result is of."""
    return _by_kind()[result.kind]


def say(c: ValidityCheck, *, published: bool = False) -> Words:
    """A result in words.

    Args:
        published: the study's numbers are quoted.
    """
    check = check_of(c)
    if check.quoted and published:
        return Words(text=check.quoted)
    made = check.words[c.kind]
    said = made.format(**_fields(c)) if isinstance(made, str) else made(c)
    return Words(text=said) if isinstance(said, str) else said


def said(results: Iterable[ValidityCheck], *, published: bool = False) -> Iterator[tuple[ValidityCheck, Words]]:
    """Results with their words, those of one check together."""
    by_check: dict[Check, list[ValidityCheck]] = {}
    for result in results:
        by_check.setdefault(check_of(result), []).append(result)
    for check, mine in by_check.items():
        yield from ((c, say(c, published=published)) for c in check.together(mine))


# -- words that checks share -------------------------------------------------------------------------------------------


def _fields(c: ValidityCheck) -> dict[str, Any]:
    """The fields of a template."""
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
    """The names of a result; of many, the first and how many more."""
    more = len(c.names) - MAX_NAMED
    return f"{join(c.names[:MAX_NAMED])} and {more} more" if more > 0 else join(c.names)


def groups(c: ValidityCheck) -> str:
    """The groups of a result, each with its members."""
    return "; ".join(f"{name} {join(values)}" if name else join(values) for name, values in c.groups)


def grouped(values: Mapping[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Groups as a result holds them, in order."""
    return tuple((name, tuple(sorted(members))) for name, members in sorted(values.items()))
