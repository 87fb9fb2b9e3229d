"""The argument parser of all commands, which suggests corrections, and functions that parse argument values.

The functions that parse values raise `argparse.ArgumentTypeError` for a text that they cannot parse.
"""

from __future__ import annotations

import argparse
import ast
import errno
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.core.errors import UserError, nearest, unknown

# Maps parsed arguments to {"idle": {reason: options without effect}, "used": {reason: all options with an effect}}.
# A reason is text such as "with --list"; options are names separated by spaces, "" where the reason does not apply.
Effects = Callable[[argparse.Namespace], Mapping[str, Mapping[str, Any]]]


FIELDS_SHOWN = ("FIELD=VALUE", "FIELD=V1,V2,…")  # how --help shows options that take fields
FIELD = re.compile(r"[A-Za-z_][\w.-]*=")


def _fields(text: str, flag: str) -> list[str]:
    """Split "a=1,b=2", which follows the option `flag` ("--set"), into the words ["a=1", "--set", "b=2"]. A comma that
    is not followed by FIELD= is part of a value: betas=0.9,0.99."""
    first, *others = re.split(r",\s*(?=[A-Za-z_][\w.-]*=)", text)
    return [first, *(word for other in others for word in (flag, other))]


class ParserMade(Exception):
    """Raised by a parser that is given `PARSER_ALONE` instead of a command line. Its argument is the parser, whose
    options the caller wants to know (shell completion)."""


PARSER_ALONE = ["\0"]  # no command line has this word


class Parser(argparse.ArgumentParser):
    """An argparse parser that suggests the nearest option for a mistyped one and raises `UserError` for every mistake.

    Attributes:
        effects: function that returns the options without an effect beside the others that were given; see `Effects`.
        elsewhere: flag that only another command has -> that command, which the error message names.
    """

    effects: Effects = staticmethod(lambda _: {})
    elsewhere: Mapping[str, str] = {}

    def format_help(self) -> str:
        self.epilog = self.epilog() if callable(self.epilog) else self.epilog
        return super().format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return (namespace, unknown words) as argparse does, but refuse an empty value: `--models "$MODELS"` with an
        empty variable would be taken for "the suite's own models", and these would be trained. Options without an
        effect are refused too.

        Raises:
            UserError: the command line has any such mistake.
        """
        words = sys.argv[1:] if args is None else list(args)
        if words == PARSER_ALONE:
            raise ParserMade(self)
        words = self._spread(words)
        for before, word in zip(["", *words], words, strict=False):
            option, equals, value = word.partition("=") if word.startswith("--") else (before, "=", word)
            if equals and not value.strip(" ,\t\r\n"):
                what = f"An empty value follows {option}." if option else "The first word is empty."
                raise UserError(what, f"Give one, or leave the option out. See `{self.prog} --help`.")
        parsed, unknown_words = super().parse_known_args(words, namespace)
        if not unknown_words:
            self.refuse_idle(parsed, **self.effects(parsed))
        return parsed, unknown_words

    def _spread(self, words: list[str]) -> list[str]:
        """Return the words of a command line in which `--set a=1 b=2` and `--set a=1,b=2`, which people type, have
        become `--set a=1 --set b=2`."""
        flags = {flag for a in self._actions if a.metavar in FIELDS_SHOWN for flag in a.option_strings}
        spread: list[str] = []
        flag = ""  # the last option, if it is one that takes fields
        for word in words:
            if word.startswith("-"):
                name, equals, value = word.partition("=")
                flag = name if name in flags else ""
                spread += [name, *_fields(value, flag)] if flag and equals else [word]
            elif flag and FIELD.match(word):
                spread += ([flag] if spread[-1] != flag else []) + _fields(word, flag)
            else:
                spread.append(word)
        return spread

    def refuse_idle(self, arguments: argparse.Namespace, **effects: Mapping[str, Any]) -> None:
        """Refuse options that were given and have no effect.

        Args:
            effects: "idle": options without an effect; "used": the only options with an effect; see `Effects`.

        Raises:
            UserError: such an option was given; the message names it and the reason.
        """
        for action in self._actions:
            why = [
                mode for mode, names in effects.get("idle", {}).items() if names and action.dest in names.split()
            ] + [
                mode
                for mode, names in effects.get("used", {}).items()
                if names and action.dest not in f"{names} json plugins".split()
            ]
            if why and (given := getattr(arguments, action.dest, action.default)) not in (action.default, []):
                shown = action.option_strings or (given if isinstance(given, list) else [given])
                raise UserError(f"{shown[-1]} has no effect {why[0]}.", f"Leave it out, or see `{self.prog} --help`.")

    def error(self, message: str) -> Any:
        if "unrecognized arguments" in message:
            wrong = message.split(":", 1)[1].split()[0]
            said = wrong.partition("=")[0].lstrip("-").lower()
            known = [o.removeprefix("--") for a in self._actions for o in a.option_strings if o.startswith("--")]
            close = [name for name in known if name.startswith(said)] or nearest(said, known, cutoff=0.6)[:1]
            what, hint = "One word too many:", "Options have names, and several values are joined by commas. "
            if wrong.startswith("-"):
                if verb := self.elsewhere.get(wrong.partition("=")[0]):
                    raise UserError(
                        f"{self.prog} has no {wrong.partition('=')[0]}: {verb} has it.", "Leave it out here."
                    )
                what, hint = "Unknown option", f"Did you mean --{' or --'.join(close)}? " if close else ""
            raise UserError(f"{what} {wrong!r}.", f"{hint}See `{self.prog} --help`.")
        if match := re.fullmatch(r"argument (.+): invalid choice: '?(.*?)'? \(choose from (.*)\)", message):
            raise unknown(f"value of {match[1]}", match[2], match[3].replace("'", "").split(", "))
        message = re.sub(r"invalid (?:int|float) value: (.*)", r"\1 is not a number", message)
        raise UserError(message[0].upper() + message[1:].rstrip(".") + ".", f"See `{self.prog} --help`.")


def parser(
    prog: str,
    description: str,
    examples: str | Callable[[], str],
    *,
    plugins: Callable[[str], str] | None = None,
    effects: Effects | None = None,
) -> Parser:
    """Return the parser of a command, with the option --json.

    Args:
        prog: the command as the user types it, such as "vit-bench data".
        examples: the end of the help text, or a function that returns it, which is called only when help is shown.
        plugins: is called with each folder given as --plugins; None for commands that declare --plugins elsewhere.
        effects: see `Parser`; None if every option has an effect in every combination.
    """
    made = Parser(
        prog=prog,
        description=description,
        epilog=examples,  # type: ignore[arg-type]
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # an abbreviation in a script could change its meaning once an option is added
    )
    made.effects = effects or made.effects
    made.add_argument("--json", action="store_true", help="machine-readable output on standard output")
    if plugins:
        made.add_argument(
            "--plugins",
            action="append",
            type=plugins,
            metavar="DIR",
            help="folder of your own models, data, tasks, suites, figures, jobs; repeatable",
        )
    return made


def names_list(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of names; empty entries are dropped."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def folder(text: str) -> Path:
    """Parse a path. It need not exist, but the file system must allow it: not too long, and without a null byte."""
    try:
        os.stat(text)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise argparse.ArgumentTypeError(f"a path of {len(text)} characters is too long") from error
    except ValueError as error:  # a null byte, half a character
        raise argparse.ArgumentTypeError(f"{text!r} is no path: {error}") from error
    return Path(text)


def seeds(text: str) -> int:
    """Parse a number of seeds (repetitions of a run) from 1 to 1,000; more runs could not be listed in a plan."""
    if (number := positive(text)) > 1000:
        raise argparse.ArgumentTypeError(f"{text} is more than a study can repeat: at most 1000")
    return number


def sizes_list(text: str) -> tuple[int, ...]:
    """Parse comma-separated whole numbers of at least 1; return them sorted, without duplicates."""
    return tuple(sorted({positive(part) for part in names_list(text)}))


def flops(text: str) -> float:
    """Parse a number of training FLOPs above 0, such as 1e18."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e40:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of training FLOPs, such as 1e18")
    return value


PLACE = re.compile(r"(?:(.+):)?([0-9.]+(?:e[+]?[0-9]+)?) ?(epochs?|images|)", re.IGNORECASE)


def place(text: str) -> float | str:
    """Parse an amount of training. FLOPs such as 1e18 become a float. Epochs and images, which may follow the name of a
    network (90epochs, ViT-B/16:300epochs, ViT-S/16@224:1e8images), stay text, which a plan converts to FLOPs."""
    match = PLACE.fullmatch(text.strip())
    if match and not match[1] and not match[3]:
        return flops(text)
    if match is None or not match[3]:
        raise argparse.ArgumentTypeError(f"{text!r} is neither FLOPs, such as 1e18, nor ViT-B/16:300epochs")
    above_zero(match[2])
    return text.strip()


def accuracies(text: str) -> tuple[float, ...]:
    """Parse comma-separated accuracies, such as 95% or 0.95; return them in (0, 1), sorted, without duplicates."""
    shares = []
    for part in names_list(text):
        match = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?(%?)", part)
        value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
        if not 0 < value < 1:
            raise argparse.ArgumentTypeError(f"{part!r} is not an accuracy between 0 and 100 %, such as 95%")
        shares.append(value)
    return tuple(sorted(set(shares)))


def hours(text: str) -> float:
    """Parse a number of hours above 0."""
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text) or float(text) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours")
    return float(text)


def positive(text: str) -> int:
    """Parse a whole number of at least 1 with at most 12 digits, which is enough for every count here."""
    if not re.fullmatch(r"[0-9]{1,12}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def above_zero(text: str) -> float:
    """Parse a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def grams(text: str) -> float:
    """Parse a number of grams, from 0 to below 10,000."""
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,6})?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of grams")
    return float(text)


def literal(text: str) -> Any:
    """Parse a Python literal (a number, a truth value, a tuple, …); return any other text unchanged."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def setting(text: str) -> tuple[str, Any]:
    """Parse NAME=VALUE into (name, value as `literal` returns it). Hyphens in the name become underscores."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, such as depth=3")
    return name.replace("-", "_"), literal(value)


def pair(text: str) -> tuple[str, int | float | str]:
    """Parse NAME=VALUE into (name, value). A value that is a number becomes an int or a float; any other stays text."""
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_][\w.-]*", name, re.ASCII) or not equals or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value
