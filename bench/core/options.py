"""Options as data: one table gives a verb its flags, the keys of a study file, and the arguments of a Python call.

A study file (TOML) says what flags say: `models = ["ViT-nano/7"]` is `--models ViT-nano/7`, `calibrate = true` is
`--calibrate`, and a table `[set]` with `lr = 1e-3` is `--set lr=1e-3`. Its values are turned into the words of a
command line, and read by the same functions.
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from bench.core.errors import UserError, unknown


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

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


Values = dict[str, Any]
"""What was given, by name of the option: a list for REPEATED; (name, value) pairs for FIELDS."""


# -- reading -----------------------------------------------------------------------------------------------------------


def add_flags(p: argparse._ActionsContainer, options: Iterable[Option]) -> None:
    """Add the options to a parser; what is not given stays out of its result."""
    for option in options:
        how: dict[str, Any] = {"dest": option.name, "help": option.help, "default": argparse.SUPPRESS}
        if option.kind is Kind.FLAG:
            p.add_argument(option.flag, action="store_true", **how)
            continue
        if option.kind in (Kind.REPEATED, Kind.FIELDS):
            how["action"] = "append"
        if option.choices:
            how["choices"] = option.choices
        p.add_argument(option.flag, type=option.read, metavar=option.metavar, **how)


def given(arguments: argparse.Namespace, options: Iterable[Option]) -> Values:
    """The layer of a command line."""
    return {option.name: getattr(arguments, option.name) for option in options if hasattr(arguments, option.name)}


def read_file(path: Path, options: Sequence[Option]) -> Values:
    """The layer of a study file.

    Raises:
        UserError: no file, no TOML, an unknown key, a value that its option does not take.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(
            f"The study file {path} cannot be read: {error.strerror}.",
            "Name a .toml file, or give a suite's name with --suite.",
        ) from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, a number of thousands of digits
        raise UserError(f"{path} is not TOML: {error}.", 'A line is like: models = ["ViT-nano/7"].') from error
    try:
        return read_mapping(found, options)
    except UserError as error:
        raise UserError(f"{path}: {error.what}", error.fix) from error


def read_mapping(values: Mapping[str, Any], options: Sequence[Option]) -> Values:
    """What a study file's tables, or the arguments of a call, say. None is as good as not given.

    Raises:
        UserError: an unknown key (with the nearest), a value that its option does not take.
    """
    by_name = {option.name: option for option in options}
    found: Values = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in by_name:
            raise unknown("option", key, by_name)
        if value is not None:
            found[name] = _read(by_name[name], value)
    return found


def _read(option: Option, value: Any) -> Any:
    if option.kind is Kind.FLAG:
        if not isinstance(value, bool):
            raise UserError(f"{option.name} cannot be {value!r}.", "Give true or false.")
        return value
    if option.kind is Kind.FIELDS and isinstance(value, Mapping):
        return [_word(option, f"{name}={_text(option, item)}") for name, item in _flat(value)]
    if option.kind in (Kind.REPEATED, Kind.FIELDS):
        items = [value] if isinstance(value, str | Path) else value
        if not isinstance(items, Iterable) or isinstance(items, bytes | Mapping):
            form, like = ("a table", "NAME = VALUE") if option.kind is Kind.FIELDS else ("a list", "[VALUE, …]")
            raise UserError(f"{option.name} takes {form}, not {value}.", f"It is: {option.help}. Write it as {like}.")
        return [_word(option, _text(option, item)) for item in items]
    if option.kind is Kind.VALUE and isinstance(value, list | tuple):
        raise UserError(f"{option.name} takes one value, not the list {list(value)}.", f"It is: {option.help}.")
    return _word(option, _text(option, value))


def _word(option: Option, text: str) -> Any:
    if not text.strip(" ,\t\r\n"):
        raise UserError(f"{option.name} is empty.", "Give a value, or leave the option out.")
    try:
        value = option.read(text)
    except argparse.ArgumentTypeError as error:
        raise UserError(f"{option.name}: {error}.") from error
    if option.choices and value not in option.choices:
        raise unknown(f"{option.name} value", text, option.choices)
    return value


def _flat(table: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    """[set.model] dropout = 0.1 is the field model.dropout."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _text(option: Option, value: Any, *, between: str = ",") -> str:
    """A value as the word of a command line. A list within a list is a pair: "0.9/0.999"."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float | str | Path):
        return str(value)
    if isinstance(value, list | tuple) and not (between == "/" and any(isinstance(v, list | tuple) for v in value)):
        return between.join(_text(option, item, between="/") for item in value)
    raise UserError(f"{option.name} cannot be {value!r}.", f"It takes {option.kind.value}.")


def resolve(options: Iterable[Option], *layers: Values) -> Values:
    """All values: a later layer overrides an earlier one, and any of them the defaults. Of FIELDS a layer replaces the
    fields that it names, in every option of that kind: `--set lr=` overrides a file's `[sweep] lr`."""
    known = list(options)
    found: Values = {option.name: option.default for option in known}
    fields = [option.name for option in known if option.kind is Kind.FIELDS]
    for layer in layers:
        named = {key for name in fields for key, _ in layer.get(name) or ()}
        kept = {name: [pair for pair in found[name] if pair[0] not in named] for name in fields}
        found |= {name: value for name, value in layer.items() if name in found}
        found |= {name: kept[name] + list(dict(layer.get(name) or ()).items()) for name in fields}
    return found


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
