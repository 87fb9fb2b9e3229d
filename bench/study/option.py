"""Options as data. Each option is declared once, as a field of a frozen dataclass (a group). From the declaration the
flag of a command, the key of a study file and the argument of a Python call are derived.

A study file (TOML) can state whatever flags can: `models = ["ViT-nano/7"]` is `--models ViT-nano/7`, `calibrate = true`
is `--calibrate`, and a table `[set]` with `lr = 1e-3` is `--set lr=1e-3` (`bench.study.option_values`).
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, TypeVar


class Kind(Enum):
    """The form in which an option is given. Each value describes the form on the command line; the comment beside it
    states the TOML type in a study file."""

    VALUE = "one value"  # a scalar
    LIST = "comma-separated values"  # a list
    FLAG = "present or not"  # true or false
    REPEATED = "one value, repeatable"  # a list
    FIELDS = "NAME=VALUE, repeatable"  # a table


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a command, a study file and a Python call.

    Attributes:
        name: name of the study file's key and of the Python argument; the flag has "-" for "_".
        help: help text.
        kind: the form in which the option is given, such as a list.
        read: parses one word of the command line into a value.
        choices: the allowed values; () if any value that `read` accepts is allowed.
        metavar: what the help shows in place of the value; None: what argparse shows by default.
        here: whether the option concerns this machine or this call only, so that it is not saved with results.
        called: name of the flag if it differs from `name`, else "".
        type: type of the value, as the annotation of the declaring field states it.
    """

    name: str
    help: str
    kind: Kind = Kind.VALUE
    read: Callable[[str], Any] = str
    default: Any = None
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    here: bool = False
    called: str = ""
    type: str = ""

    @property
    def flag(self) -> str:
        return "--" + (self.called or self.name).replace("_", "-")


Call = TypeVar("Call", bound=Callable[..., Any])
OPTION = "option"  # key under which a dataclass field's metadata holds its `Option`


def option(help: str, *, default: Any = None, **how: Any) -> Any:
    """Return a dataclass field that declares an option; the option gets the name of the field.

    Args:
        help, default, how: attributes of `Option`.
    """
    return field(default=default, metadata={OPTION: Option(name="", help=help, default=default, **how)})


def options_of(*groups: type) -> tuple[Option, ...]:
    """Return the options that the fields of these dataclasses declare, in the order of declaration."""
    declared = (entry for group in groups for entry in fields(group))
    return tuple(replace(entry.metadata[OPTION], name=entry.name, type=str(entry.type)) for entry in declared)


def spelt_out(options: Sequence[Option]) -> Callable[[Call], Call]:
    """Return a decorator for a function that takes `**options`: it adds every option to the function's signature and
    docstring, so that notebooks show them."""

    def wrap(function: Call) -> Call:
        own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
        keyword = inspect.Parameter.KEYWORD_ONLY
        named = [inspect.Parameter(o.name, keyword, default=o.default, annotation=o.type) for o in options]
        function.__signature__ = inspect.Signature([*own, *named])  # type: ignore[attr-defined]
        lines = (f"    {option.name}: {option.help.replace('%%', '%')}" for option in options)
        function.__doc__ = "\n".join([f"{function.__doc__}\n\nOptions:", *lines])
        return function

    return wrap


@dataclass(frozen=True, kw_only=True)
class Alias:
    """Another name for an option, or for one of the option's values, that users know from other tools: `--lr 1e-3`
    means `--set lr=1e-3`.

    Attributes:
        name: name of the study file's key and of the Python argument; the flag has "-" for "_".
        option: name of the option that the alias stands for.
        read: parses one word into the option's value; None: the option's own `read` is used.
        value: value that the option gets if the alias is a flag without a value; None if the alias takes a value.
        help: help text; "" hides the alias from --help.
        letter: a second flag of one letter, such as "-o"; "" for none.
    """

    name: str
    option: str
    read: Callable[[str], Any] | None = None
    value: Any = None
    help: str = ""
    letter: str = ""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


Values = dict[str, Any]
"""Name of an option -> its value, which is a list for the kind REPEATED, and a list of (name, value) pairs for the kind
FIELDS. Options that were not given may be missing."""


# -- reading -----------------------------------------------------------------------------------------------------------


def add_flags(p: argparse._ActionsContainer, options: Iterable[Option], aliases: Sequence[Alias] = ()) -> None:
    """Add options, each with its aliases, to an argument parser. An option that the user does not give is missing from
    the parsed namespace, so that it overrides no study file; see `resolve`."""
    for option in options:
        _add_flag(p, option, option.flag, option.read, option.help)
        for alias in aliases:
            if alias.option != option.name:
                continue
            shown = alias.help or argparse.SUPPRESS
            if alias.value is not None:
                how: dict[str, Any] = {"dest": option.name, "help": shown, "default": argparse.SUPPRESS}
                p.add_argument(alias.flag, action="store_const", const=alias.value, **how)
            else:
                _add_flag(p, option, alias.flag, alias.read or option.read, shown, alias.letter)


def _add_flag(
    p: argparse._ActionsContainer, option: Option, flag: str, read: Callable[[str], Any], shown: str, letter: str = ""
) -> None:
    how: dict[str, Any] = {"dest": option.name, "help": shown, "default": argparse.SUPPRESS}
    if option.kind is Kind.FLAG:
        p.add_argument(flag, action="store_true", **how)
        return
    if option.kind in (Kind.REPEATED, Kind.FIELDS):
        how["action"] = "append"
    if option.choices:
        how["choices"] = option.choices
    p.add_argument(flag, *([letter] if letter else []), type=read, metavar=option.metavar, **how)


def given(arguments: argparse.Namespace, options: Iterable[Option]) -> Values:
    """Return name -> value of the options that were given on a command line. `arguments`: the result of a parser to
    which `add_flags` has added them."""
    return {option.name: getattr(arguments, option.name) for option in options if hasattr(arguments, option.name)}


def resolve(options: Iterable[Option], *layers: Values) -> Values:
    """Return the values of all options. `layers` are the values from each source, such as a study file and the command
    line; a later layer overrides an earlier one, and every layer overrides the defaults.

    Options of kind FIELDS (such as --set and --sweep) are merged name by name. A name in a layer also removes this name
    from all FIELDS options of earlier layers: `--set lr=…` overrides `[sweep] lr` of a study file.
    """
    known = list(options)
    resolved: Values = {each.name: each.default for each in known}
    tables = [each.name for each in known if each.kind is Kind.FIELDS]
    for layer in layers:
        named = {key for name in tables for key, _ in layer.get(name) or ()}
        kept = {name: [pair for pair in resolved[name] if pair[0] not in named] for name in tables}
        resolved |= {name: value for name, value in layer.items() if name in resolved}
        resolved |= {name: kept[name] + list(dict(layer.get(name) or ()).items()) for name in tables}
    return resolved


# -- writing -----------------------------------------------------------------------------------------------------------


def to_toml(values: Values, options: Iterable[Option], *, always: Sequence[str] = ()) -> str:
    """Return the text of a study file with all values that differ from their defaults. Options with `Option.here` set,
    which concern this machine or this call only, are left out.

    Args:
        always: names of options that are written in any case.
    """
    lines, tables = [], []
    for option in options:
        value = values.get(option.name, option.default)
        if option.name not in always and (option.here or value == option.default or value in ((), [])):
            continue
        if option.kind is Kind.FIELDS:
            tables += ["", f"[{option.name}]", *(f"{_key(name)} = {_toml(item)}" for name, item in value)]
        else:
            lines.append(f"{option.name} = {_toml(value)}")
    return "\n".join([*lines, *tables]) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name, re.ASCII) else json.dumps(name, ensure_ascii=False)


def _toml(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    return json.dumps(str(value), ensure_ascii=False)
