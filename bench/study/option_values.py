"""Options from a study file or from the arguments of a Python call. Each value is first converted to the word that a
command line would have, so that the functions that parse command lines parse it."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.core.errors import UserError, unknown
from bench.study.option import Alias, Kind, Option, Values

YAML = (".yaml", ".yml")  # suffixes of study files in YAML; all others are TOML


def read_file(path: Path, options: Sequence[Option], aliases: Sequence[Alias] = ()) -> Values:
    """Return the values of the options in a study file, which is TOML or YAML by its suffix.

    Raises:
        UserError: the file does not exist or is not TOML (YAML), a key is unknown, or an option does not accept its
            value.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        tables = _yaml(text) if path.suffix.lower() in YAML else tomllib.loads(text)
    except IsADirectoryError as error:
        named = (
            f"--suite {path.name} --results {path.parent}" if (path / "store.json").exists() else f"--results {path}"
        )
        raise UserError(f"{path} is a folder, not a study file.", f"For the results in it, write {named}.") from error
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not path.suffix:
            raise UserError(
                f"There is no study file and no folder {path}.",
                f"For a suite write --suite {path}; for results elsewhere --results FOLDER. "
                "Several values of an option are joined by commas.",
            ) from error
        raise UserError(
            f"The study file {path} cannot be read: {error.strerror}.",
            "Name a .toml file, or give a suite's name with --suite; several values of an option are joined by commas.",
        ) from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or a number of thousands of digits
        kind, line = ("YAML", "models: [ViT-nano/7]") if path.suffix.lower() in YAML else ("TOML", 'suite = "scaling"')
        raise UserError(f"{path} is not {kind}: {error}.", f"A line is like: {line}") from error
    try:
        return read_mapping(tables, options, aliases)
    except UserError as error:
        raise UserError(f"{path}: {error.what}", error.fix) from error


def _yaml(text: str) -> dict[str, Any]:
    """Return the mapping that a YAML text holds.

    Raises:
        ValueError: the text is not YAML, or not a mapping whose keys are texts.
    """
    import yaml

    try:
        tables = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    if not isinstance(tables, dict) or not all(isinstance(key, str) for key in tables):
        raise ValueError("it holds no names with values")
    return tables


def read_mapping(values: Mapping[str, Any], options: Sequence[Option], aliases: Sequence[Alias] = ()) -> Values:
    """Return name -> value of the options in the tables of a study file, or in the arguments of a Python call.

    Args:
        values: name of an option or alias -> value as given; None counts as not given.

    Raises:
        UserError: a key is unknown (the nearest is suggested), an option does not accept its value, or an option is
            given under two names.
    """
    by_name: dict[str, Option | Alias] = {alias.name: alias for alias in aliases}
    by_name |= {option.called: option for option in options if option.called}
    by_name |= {option.name: option for option in options}
    plain = {option.name: option for option in options}
    read: Values = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in by_name:
            raise unknown("option", key, plain)
        if value is None:
            continue
        named = by_name[name]
        option = plain[named.option] if isinstance(named, Alias) else named
        made = _read_alias(named, option, value) if isinstance(named, Alias) else _read(option, value)
        if option.kind is Kind.FIELDS:
            read.setdefault(option.name, []).extend(made)
        elif option.name in read:
            raise UserError(f"{key} and another name of {option.name} are both given.", "Give one of them.")
        elif made is not None:
            read[option.name] = made
    return read


def _read_alias(alias: Alias, option: Option, value: Any) -> Any:
    """Return the value that an alias, set to `value`, gives to its option; None if the alias is a flag and `value` is
    false."""
    if alias.value is not None:
        return alias.value if _read(replace(option, name=alias.name, kind=Kind.FLAG), value) else None
    named = replace(option, name=alias.name, read=alias.read or option.read)
    if option.kind is Kind.FIELDS:
        return [_word(named, _text(named, value))]
    return _read(named, value)


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
    """Yield (name, value) for all entries of nested tables. A name is the path to its entry, joined by dots: the table
    {"model": {"dropout": 0.1}} gives ("model.dropout", 0.1). `before`: text that is put before every name."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _text(option: Option, value: Any, *, between: str = ",") -> str:
    """Return a value as the word that a command line would have. The items of a list are joined by `between`; the items
    of a list within that list are joined by "/", so [[0.9, 0.999]] gives "0.9/0.999".

    Raises:
        UserError: a value of this type has no such word.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float | str | Path):
        return str(value)
    if isinstance(value, list | tuple) and not (between == "/" and any(isinstance(v, list | tuple) for v in value)):
        return between.join(_text(option, item, between="/") for item in value)
    raise UserError(f"{option.name} cannot be {value!r}.", f"It takes {option.kind.value}.")
