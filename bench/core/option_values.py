"""Options from a study file, or from the arguments of a call: turned into the words of a command line, and read by the
same functions."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.core.errors import UserError, unknown
from bench.core.options import Kind, Option, Values


def read_file(path: Path, options: Sequence[Option]) -> Values:
    """The layer of a study file.

    Raises:
        UserError: no file, no TOML, an unknown key, a value that its option does not take.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(
            f"The study file {path} cannot be read: {error.strerror}.",
            "Name a .toml file, or give a suite's name with --suite; several values of an option are joined by commas.",
        ) from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, a number of thousands of digits
        raise UserError(f"{path} is not TOML: {error}.", 'A line is like: models = ["ViT-nano/7"].') from error
    try:
        return read_mapping(tables, options)
    except UserError as error:
        raise UserError(f"{path}: {error.what}", error.fix) from error


def read_mapping(values: Mapping[str, Any], options: Sequence[Option]) -> Values:
    """Values that a study file's tables, or the arguments of a call, give. None is as good as not given.

    Raises:
        UserError: an unknown key (with the nearest), a value that its option does not take.
    """
    by_name = {option.name: option for option in options}
    read: Values = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in by_name:
            raise unknown("option", key, by_name)
        if value is not None:
            read[name] = _read(by_name[name], value)
    return read


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
