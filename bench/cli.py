"""What the verbs' command lines share: a parser that suggests, and argument types."""

from __future__ import annotations

import argparse
from typing import Any

from bench.errors import UserError, nearest


class Parser(argparse.ArgumentParser):
    """argparse that suggests the nearest option for a mistyped one and exits like every other mistake."""

    def error(self, message: str) -> Any:
        if "unrecognized arguments" in message:
            wrong = message.split(":", 1)[1].split()[0]
            close = nearest(wrong, [o for a in self._actions for o in a.option_strings if o.startswith("--")])
            hint = f"Did you mean {close[0]}? " if close else ""
            raise UserError(f"Unknown option {wrong!r}.", f"{hint}See `{self.prog} --help`.")
        raise UserError(message[0].upper() + message[1:] + ".", f"See `{self.prog} --help`.")


def parser(prog: str, description: str, examples: str) -> Parser:
    """A parser with the examples at its end."""
    return Parser(
        prog=prog, description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def names_list(text: str) -> tuple[str, ...]:
    """A comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)
