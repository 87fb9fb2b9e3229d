"""Options as data: a frozen group declares each of its fields as an option, once, and from there a verb has its flags,
a study file its keys, and a Python call its arguments.

A study file (TOML) says what flags say: `models = ["ViT-nano/7"]` is `--models ViT-nano/7`, `calibrate = true` is
`--calibrate`, and a table `[set]` with `lr = 1e-3` is `--set lr=1e-3` (`bench.study.option_values`).
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
    """How an option is given: on a command line, and in a study file."""

    VALUE = "one value"  # a scalar
    LIST = "comma-separated values"  # a list
    FLAG = "present or not"  # true or false
    REPEATED = "one value, repeatable"  # a list
    FIELDS = "NAME=VALUE, repeatable"  # a table


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option.

    Attributes:
        name: of the key and the argument; the flag has "-" for "_".
        type: of the value, as the field is annotated.
        called: the flag's name, where people know it by another.
        read: the value of one word.
        here: it says something about this machine or this call, which is not kept with results.
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
OPTION = "option"  # the key of a field's metadata


def option(help: str, *, default: Any = None, **how: Any) -> Any:
    """A field of a frozen dataclass that is an option of the field's name.

    Args:
        how: other fields of `Option`.
    """
    return field(default=default, metadata={OPTION: Option(name="", help=help, default=default, **how)})


def options_of(*groups: type) -> tuple[Option, ...]:
    """The options that these dataclasses declare, in order."""
    declared = (entry for group in groups for entry in fields(group))
    return tuple(replace(entry.metadata[OPTION], name=entry.name, type=str(entry.type)) for entry in declared)


def spelt_out(options: Sequence[Option]) -> Callable[[Call], Call]:
    """Give a function that ends in `**options` a signature and a docstring that name every option, for notebooks."""

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
    """Another name for an option, or for one value of it: `--lr 1e-3` is `--set lr=1e-3`. Other tools call it so.

    Attributes:
        name: of the key and the argument, as an option's.
        option: the option that it stands for.
        read: the option's value of one word; None: as the option reads it.
        value: the option's value where the flag alone says it.
        help: "" of a name that --help leaves out.
    """

    name: str
    option: str
    read: Callable[[str], Any] | None = None
    value: Any = None
    help: str = ""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


Values = dict[str, Any]
"""Given values, by name of the option: a list for REPEATED; (name, value) pairs for FIELDS."""


# -- reading -----------------------------------------------------------------------------------------------------------


def add_flags(p: argparse._ActionsContainer, options: Iterable[Option], aliases: Sequence[Alias] = ()) -> None:
    """Add the options to a parser, each with its aliases; what is not given stays out of its result."""
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
                _add_flag(p, option, alias.flag, alias.read or option.read, shown)


def _add_flag(p: argparse._ActionsContainer, option: Option, flag: str, read: Callable[[str], Any], shown: str) -> None:
    how: dict[str, Any] = {"dest": option.name, "help": shown, "default": argparse.SUPPRESS}
    if option.kind is Kind.FLAG:
        p.add_argument(flag, action="store_true", **how)
        return
    if option.kind in (Kind.REPEATED, Kind.FIELDS):
        how["action"] = "append"
    if option.choices:
        how["choices"] = option.choices
    p.add_argument(flag, type=read, metavar=option.metavar, **how)


def given(arguments: argparse.Namespace, options: Iterable[Option]) -> Values:
    """The values that a command line gives, by the names of their options."""
    return {option.name: getattr(arguments, option.name) for option in options if hasattr(arguments, option.name)}


def resolve(options: Iterable[Option], *layers: Values) -> Values:
    """All values: a later layer overrides an earlier one, and any of them the defaults. A layer replaces those FIELDS
    that it names, in every option of that kind: `--set lr=` overrides a file's `[sweep] lr`."""
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
    """A study file with what differs from the defaults, but for what is said about this machine or this call.

    Args:
        always: options that are written whatever their value.
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
