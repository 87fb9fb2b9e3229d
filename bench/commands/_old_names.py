"""Old names of commands: `python -m bench.fit` says what to type now.

The finder comes last, so that it is asked only for modules that are nowhere else. For a command's old name it finds
this file, which then answers under that name.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

HERE = Path(__file__)


class OldNames:
    """A module finder that finds this file under the name `bench.NAME`, the old name of a command. The command is now
    `bench/commands/NAME.py`, or NAME.py in the folder commands/ of another package of bench."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, _, command = name.removesuffix(".__main__").rpartition(".")
        files = [*HERE.parents[1].glob(f"commands/{command}.py"), *HERE.parents[1].glob(f"*/commands/{command}.py")]
        known = package == "bench" and any("\ndef main(" in file.read_text(encoding="utf-8") for file in files)
        return spec_from_file_location(name, HERE) if known else None


if __spec__ and __spec__.name != "bench.commands._old_names":
    old = __spec__.name.removesuffix(".__main__")
    verb = old.rpartition(".")[2]
    answer = f"{old} is a command. Type: vit-bench {verb}, or python -m bench {verb}. In Python: bench.api."
    if __name__ == "__main__":
        sys.stderr.write(f"error: {answer}\n")
        sys.exit(2)  # the exit code of every mistake of a user
    raise ModuleNotFoundError(answer)  # not with `name=`: `from bench import fit` would say less
