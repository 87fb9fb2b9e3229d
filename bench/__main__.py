"""The command `vit-bench VERB …`, also `python -m bench VERB …`: finds the module of the verb and calls its `main`."""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType

from bench import __version__
from bench.core.cli import PARSER_ALONE, ParserMade, folder
from bench.core.errors import EXIT_OK, UserError, command, unknown
from bench.study import registry

FOLDER = Path(__file__).parent
INTERNAL = ("worker",)  # started by other commands, not by users
NAMED = {"suite": "suite", "data": "data set", "tasks": "task"}  # option -> kind whose names complete its value
EXAMPLES = """\
examples:
  vit-bench run --suite smoke                                           the whole pipeline, small, with its report
  vit-bench fit runs.csv --x compute --y error --figure laws.png        a law of runs of your own
  vit-bench run --suite adapt --data folder:NAME --data-root photos     the best model for photos/NAME/CLASS/*.jpg
  vit-bench run --suite scaling --models my_model.py:Net,ViT-pico/14    a network of your own, beside another
  vit-bench VERB --help                                                 options, and more examples"""
MERGED = {"export": "report --to", "inspect": "report --cell"}  # command of the last release -> what replaces it


def verbs() -> dict[str, Path]:
    """Return verb (subcommand) -> its file. Verbs are the files with a function `main` in `commands` folders, those of
    plug-ins included, and in bench/ itself, and the `__main__.py` of its packages."""
    files = {
        path.stem: path for place in (*registry.places("command"), str(FOLDER)) for path in Path(place).glob("*.py")
    }
    files |= {path.parent.name: path for path in FOLDER.glob("*/__main__.py")}
    shown = (name for name in sorted(files) if not name.startswith("_") and name not in INTERNAL)
    return {name: files[name] for name in shown if "\ndef main(" in files[name].read_text(encoding="utf-8")}


def listing() -> str:
    """Return the help text that lists every verb with the first sentence of its description."""
    lines = ["usage: vit-bench VERB …     or: python -m bench VERB …", "", "verbs:"]
    for name, path in verbs().items():
        about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        first = about.partition("\n\n")[0]
        lines.append(f"  {name:9} {' '.join(first.split()).partition('. ')[0].rstrip('.')}")
    return "\n".join([*lines, "", EXAMPLES])


def imported(path: Path) -> ModuleType:
    """Import and return the module of a verb's file, `path`."""
    if not path.is_relative_to(FOLDER) or path.parent.name == "commands":
        return importlib.import_module(f"bench.commands.{path.stem}")
    return importlib.import_module(".".join(("bench", *path.relative_to(FOLDER).with_suffix("").parts)))


def completion(shell: str) -> str:
    """Return a script for a shell (bash, zsh, tcsh) that completes verbs, options, their choices and names, and files.

    Raises:
        UserError: the package shtab, which writes the script, is not installed or does not know the shell.
    """
    try:
        import shtab
    except ImportError:
        raise UserError("Completion needs the package shtab.", "Type: pip install shtab") from None
    if shell not in shtab.SUPPORTED_SHELLS:
        raise unknown("shell", shell, shtab.SUPPORTED_SHELLS)
    whole = argparse.ArgumentParser(prog="vit-bench")
    by_verb = whole.add_subparsers()
    for name, path in verbs().items():
        try:
            imported(path).main.__wrapped__(PARSER_ALONE)
        except ParserMade as made:
            (own,) = made.args
            for action in own._actions:
                if action.type in (Path, folder):
                    action.complete = shtab.FILE
                elif action.dest in NAMED:
                    action.choices = registry.names(NAMED[action.dest])
            by_verb.add_parser(name, parents=[own], add_help=False, help=own.description)
    return shtab.complete(whole, shell)


@command
def main(argv: list[str] | None = None) -> int:
    name, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    answers = dict.fromkeys(("", "-h", "--help"), listing) | {
        "--version": lambda: __version__,
        "--print-completion": lambda: completion(*rest[:1] or ("bash",)),
    }
    if name in answers:
        print(answers[name]())
        return EXIT_OK
    known = verbs()
    if name in MERGED:
        raise UserError(f"{name} is part of another command now.", f"Type: vit-bench {MERGED[name]}")
    if name not in known:
        raise unknown("verb", name, known)
    return imported(known[name]).main(rest)


if __name__ == "__main__":
    sys.exit(main())
