"""`vit-bench VERB …` is `python -m bench.VERB …`."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

from bench import __version__
from bench.core.errors import EXIT_OK, UserError, command, unknown

FOLDER = Path(__file__).parent
INTERNAL = ("worker",)  # started by others
MERGED = {"export": "report --to", "inspect": "report --cell"}  # commands of the last release, and what they are now


def verbs() -> dict[str, Path]:
    """Every verb with its file: those at the top of this package that have a `main`."""
    files = {path.stem: path for path in FOLDER.glob("*.py")}
    files |= {path.parent.name: path for path in FOLDER.glob("*/__main__.py")}
    shown = (name for name in sorted(files) if not name.startswith("_") and name not in INTERNAL)
    return {name: files[name] for name in shown if "\ndef main(" in files[name].read_text(encoding="utf-8")}


def listing() -> str:
    """The verbs, each with the first sentence of its description."""
    lines = ["usage: vit-bench VERB …     or: python -m bench.VERB …", "", "verbs:"]
    for name, path in verbs().items():
        about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        first = about.partition("\n\n")[0]
        lines.append(f"  {name:8} {' '.join(first.split()).partition('. ')[0].rstrip('.')}")
    return "\n".join([*lines, "", "examples:", "  vit-bench run --suite smoke", "  vit-bench run --help"])


@command
def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    name, rest = (words[0], words[1:]) if words else ("", [])
    if name in ("", "-h", "--help"):
        print(listing())
        return EXIT_OK
    if name == "--version":
        print(__version__)
        return EXIT_OK
    known = verbs()
    if name in MERGED:
        raise UserError(f"{name} is part of another command now.", f"Type: vit-bench {MERGED[name]}")
    if name not in known:
        raise unknown("verb", name, known)
    path = known[name]
    module = f"bench.{name}.__main__" if path.name == "__main__.py" else f"bench.{name}"
    found: int = importlib.import_module(module).main(rest)
    return found


if __name__ == "__main__":
    sys.exit(main())
