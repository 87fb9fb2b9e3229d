"""Whether tests notice a change: random mutants of modules, each tried by the tests of its own room.

    python -m tools.mutants bench/analysis/frontiers.py bench/stats [--number 20] [--seed 0] [--tests FOLDER ...]
    python -m tools.mutants bench/analysis/frontiers.py --line 243

A mutant has one change: a comparison (< for <=), an operator (+ for -), a number (one more, or twice), a condition (its
opposite) or a raise (left out). It is killed where a test fails, and survives where all pass. No test of the room
notices a survivor: a test is missing, or the change makes no difference, which a person must judge.

The tests of bench/ROOM are those in `tests/ROOM` that are in no other lane; files that name the module come first,
because the first failure ends a mutant. The module is changed in memory, in a fork of one process that has loaded the
libraries: no file of the checkout is touched, and processes that a test starts run the module as it is.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import re
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

PROJECT = Path(__file__).resolve().parent.parent
LIBRARIES = (
    "numpy",
    "pandas",
    "scipy.stats",
    "scipy.optimize",
    "sklearn.linear_model",
    "torch",
    "torchvision",
    "pytest",
)
OTHER_COMPARISON: dict[type, type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OTHER_OPERATOR: dict[type, type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
KILLED, SURVIVED, ENDLESS, UNKNOWN = "killed", "SURVIVED", "too long", "no test"
NO_TESTS = 5  # pytest's exit code where nothing was collected
Change = Callable[[ast.AST], ast.AST]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of one module.

    Attributes:
        place: of the changed node in the order of `ast.walk`.
        which: the change, of those that the node allows.
        before, after: source of the changed expression or statement.
    """

    path: Path
    line: int
    place: int
    which: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """How a person finds it."""
        return f"{self.path.relative_to(PROJECT)}:{self.line}: {self.before}  ->  {self.after}"


def changes(node: ast.AST) -> list[ast.AST]:
    """What may stand in a node's place."""
    made: list[ast.AST] = []
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = copy.deepcopy(node)
        other.ops = [OTHER_COMPARISON[type(node.ops[0])]()]
        made.append(other)
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in OTHER_OPERATOR:
        summed = copy.deepcopy(node)
        summed.op = OTHER_OPERATOR[type(node.op)]()
        made.append(summed)
    if isinstance(node, ast.BoolOp):
        joined = copy.deepcopy(node)
        joined.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        made.append(joined)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        number = node.value + 1 if type(node.value) is int else 2 * node.value or 1.0
        made.append(ast.copy_location(ast.Constant(value=number), node))
    if isinstance(node, (ast.If, ast.IfExp, ast.While)) and not (isinstance(node.test, ast.Constant)):
        turned = copy.deepcopy(node)
        turned.test = ast.UnaryOp(op=ast.Not(), operand=turned.test)
        made.append(turned)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        made.append(copy.deepcopy(node.operand))
    if isinstance(node, ast.Raise):
        made.append(ast.copy_location(ast.Pass(), node))
    return [ast.fix_missing_locations(ast.copy_location(other, node)) for other in made]


def shown(node: ast.AST) -> str:
    """The first line of a node's source; of a branch, its condition."""
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        return f"if {ast.unparse(node.test)}"
    return ast.unparse(node).partition("\n")[0][:100]


def left_out(tree: ast.AST) -> set[int]:
    """Nodes that no run reads: annotations, and branches for types or for a module that is run as a program."""
    skipped: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and re.search(r"TYPE_CHECKING|__name__", ast.unparse(node.test)):
            skipped.append(node)
        skipped += [part for name in ("annotation", "returns") if (part := getattr(node, name, None)) is not None]
    return {id(inner) for node in skipped for inner in ast.walk(node)}


def mutants(path: Path) -> list[Mutant]:
    """Every mutant of a module."""
    tree = ast.parse(path.read_text())
    skipped = left_out(tree)
    return [
        Mutant(path=path, line=node.lineno, place=place, which=which, before=shown(node), after=shown(other))
        for place, node in enumerate(ast.walk(tree))
        if id(node) not in skipped
        for which, other in enumerate(changes(node))
        if isinstance(node, (ast.expr, ast.stmt))
    ]


def mutated(mutant: Mutant) -> ast.Module:
    """The module with the change."""
    tree = ast.parse(mutant.path.read_text())
    node = list(ast.walk(tree))[mutant.place]
    other = changes(node)[mutant.which]
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, other)
            elif isinstance(value, list) and any(entry is node for entry in value):
                value[:] = [other if entry is node else entry for entry in value]
    return ast.fix_missing_locations(tree)


def module_of(path: Path) -> str:
    """`bench/stats/fits.py` -> `bench.stats.fits`."""
    return ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__")


class Loader(importlib.machinery.SourceFileLoader):
    """Loads the changed module, never from a file of compiled code."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(module_of(mutant.path), str(mutant.path))
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return compile(mutated(self._mutant), str(self._mutant.path), "exec", dont_inherit=True)


class Finder(importlib.abc.MetaPathFinder):
    """Finds one module, the changed one."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != module_of(self._mutant.path):
            return None
        return importlib.util.spec_from_file_location(name, self._mutant.path, loader=Loader(self._mutant))


class First:
    """A plug-in of pytest that notes the first test that fails."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid


def tests_of(path: Path, given: Sequence[str]) -> list[str]:
    """Test files of a module's room, those that name the module first."""
    parts = path.relative_to(PROJECT).with_suffix("").parts
    room = parts[1] if parts[0] == "bench" and len(parts) > 2 else parts[0]
    folders = [PROJECT / name for name in given] or [PROJECT / "tests" / room]
    files = [
        file for folder in folders for file in ([folder] if folder.is_file() else sorted(folder.rglob("test_*.py")))
    ]
    if not files:
        raise SystemExit(f"no tests in {', '.join(map(str, folders))}; name them with --tests")
    naming = re.compile(rf"\b{re.escape(path.stem if path.stem != '__init__' else path.parent.name)}\b")
    return [str(file) for file in sorted(files, key=lambda file: not naming.search(file.read_text()))]


def tried(mutant: Mutant | None, tests: Sequence[str], seconds: float) -> tuple[str, str]:
    """How a mutant ended, and which test killed it; None is the module as it is."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.close(reading)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        import pytest

        if mutant is not None:
            sys.meta_path.insert(0, Finder(mutant))
        first = First()
        code = int(pytest.main(["-x", "-n", "0", "-p", "no:cacheprovider", *tests], plugins=[first]))
        os.write(writing, first.name.encode())
        os._exit(code)
    os.close(writing)
    ready = select.select([reading], [], [], seconds)[0]
    name = os.read(reading, 4096).decode() if ready else ""
    os.close(reading)
    if not ready:
        with contextlib.suppress(OSError):
            os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not ready:
        return ENDLESS, ""
    return {0: SURVIVED, NO_TESTS: UNKNOWN}.get(code, KILLED), name or f"pytest ended with {code}"


def chosen(paths: Sequence[Path], number: int, seed: int, line: int | None) -> Iterator[Mutant]:
    """Mutants at random, as many of every module."""
    draws = random.Random(seed)
    for path in paths:
        every = [mutant for mutant in mutants(path) if line is None or mutant.line == line]
        yield from draws.sample(every, min(number, len(every)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", type=Path, help="files or folders")
    parser.add_argument("--number", type=int, default=5, help="mutants of each file (default: 5)")
    parser.add_argument("--files", type=int, help="so many files at random of those that are named (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--line", type=int, help="all mutants of this line only")
    parser.add_argument("--tests", nargs="+", default=[], help="test files or folders (default: tests/ROOM)")
    parser.add_argument("--seconds", type=float, default=900.0, help="time for one mutant (default: 900)")
    options = parser.parse_args()
    named = [path.resolve() for path in options.modules]
    paths = sorted({file for path in named for file in ([path] if path.is_file() else path.rglob("*.py"))})
    paths = [path for path in paths if mutants(path)]
    if options.files:
        paths = sorted(random.Random(options.seed).sample(paths, min(options.files, len(paths))))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for library in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    counts: Counter[str] = Counter()
    passing: dict[tuple[str, ...], bool] = {}
    number = len(paths) and options.number if options.line is None else sys.maxsize
    for mutant in chosen(paths, number, options.seed, options.line):
        tests = tests_of(mutant.path, options.tests)
        key = tuple(sorted(tests))
        if key not in passing:
            outcome, name = tried(None, tests, options.seconds)
            passing[key] = outcome == SURVIVED
            if not passing[key]:
                print(f"The tests do not pass without a change ({outcome}, {name}): nothing can be said.", flush=True)
        if not passing[key]:
            continue
        began = time.monotonic()
        outcome, name = tried(mutant, tests, options.seconds)
        counts[outcome] += 1
        by = f" by {Path(name).name}" if outcome == KILLED else ""
        print(f"{outcome}{by} ({time.monotonic() - began:.0f} s): {mutant.name}", flush=True)
    told = counts[KILLED] + counts[SURVIVED]
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()) or "nothing was tried")
    if told:
        print(f"{counts[KILLED]} of {told} killed: {counts[KILLED] / told:.0%}")
    return 0 if told else 1


if __name__ == "__main__":
    sys.exit(main())
