"""Check the options of a task against the annotations of its `evaluate`."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.core.errors import UserError, unknown

WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "a word", type(None): "None"}


def checked_options(evaluate: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Check the options of a task against the annotations of its `evaluate`, and return them. A single value becomes a
    tuple where the task takes a sequence; options without an annotation are not checked.

    Raises:
        UserError: the task has no such option, or takes a value of another kind.
    """
    known = set(inspect.signature(evaluate).parameters) - {"context", "data"}
    kinds = typing.get_type_hints(evaluate)
    result = {}
    for name, value in options.items():
        if name not in known:
            raise unknown("option of the task", name, known)
        try:
            result[name] = _as(value, kinds.get(name, Any))
        except TypeError as error:
            what = f"The task's option {name} cannot be {value!r}."
            raise UserError(what, f"It takes {_in_words(kinds[name])}.") from error
    return result


def _as(value: Any, kind: Any) -> Any:
    """Return a value if it is of a kind, given as a type annotation. Where a sequence is wanted, return a list as a
    tuple, and a single value as a tuple of one.

    Raises:
        TypeError: the value is of another kind.
    """
    if kind is Any:
        return value
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        for one in typing.get_args(kind):
            try:
                return _as(value, one)
            except TypeError:
                continue
    elif typing.get_origin(kind) is Sequence:
        (each,) = typing.get_args(kind)
        return tuple(_as(one, each) for one in (value if isinstance(value, list | tuple) else (value,)))
    elif type(value) in ((int, float) if kind is float else (kind,)) and value not in (math.inf, -math.inf):
        return value
    raise TypeError


def _in_words(kind: Any) -> str:
    """Return a type annotation in words, for error messages: `int | None` -> "None or a whole number"."""
    if typing.get_origin(kind) is Sequence:
        return f"a list, each {_in_words(typing.get_args(kind)[0])}"
    kinds = sorted(typing.get_args(kind) or (kind,), key=lambda one: one is not type(None))
    return " or ".join(WORDS[one] if one in WORDS else _in_words(one) for one in kinds)
