"""Whether tests notice a change: random mutants of modules, each tried by the tests of its own room.

    python -m tools.mutants bench/analysis/frontiers.py bench/stats [--number 20] [--seed 0] [--tests FOLDER ...]
    python -m tools.mutants bench/stats --sample 40 --seed 1
    python -m tools.mutants bench/analysis/frontiers.py --line 243

A mutant has one change: a comparison (< for <=), an operator (+ for -), a number (one more, or twice), a condition (its
opposite) or a raise (left out). It is killed where a test fails, and survives where all pass. No test of the room
notices a survivor: a test is missing, or the change makes no difference, which a person must judge.

The tests of bench/ROOM are those in `tests/ROOM` that are in no other lane. One run of them without a change notes
which functions each test calls, and how long it takes. A mutant of a function is tried first by the tests that call it,
the quickest first, because the first failure ends it: in a fork of a process that has loaded the tests, where the
function's code is exchanged. What these pass, and a mutant of what is read on import (a constant, a default), is tried
by all tests of the room in a process that imports the changed module. No file of the checkout is touched, and processes
that a test starts run the module as it is.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import random
import re
import select
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import pytest

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
    """A plug-in of pytest that notes the first test that fails, and puts the quickest tests first."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.name = ""
        self._seconds = seconds

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items) -> None:
        items.sort(key=lambda item: self._seconds.get(item.nodeid, 0.0))


@dataclass
class Calls:
    """What one run of a room's tests says about them.

    Attributes:
        seconds: of each test.
        functions: (file, first line) of every function of the room that a test, or a fixture of it, calls.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    functions: dict[str, set[tuple[str, int]]] = field(default_factory=dict)

    def tests_of(self, function: tuple[str, int]) -> list[str]:
        """The tests that call a function, the quickest first."""
        calling = (test for test, called in self.functions.items() if function in called)
        return sorted(calling, key=lambda test: self.seconds[test])


class Watch(First):
    """A plug-in of pytest that notes the calls of every test into a folder of the project."""

    def __init__(self, folder: Path) -> None:
        super().__init__({})
        self.calls = Calls()
        self._folder = f"{folder}{os.sep}"
        self._now: list[set[tuple[str, int]]] = [set()]
        self._of_fixture: dict[tuple[str, str], set[tuple[str, int]]] = {}

    def _trace(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(self._folder):
            self._now[-1].add((code.co_filename, code.co_firstlineno))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        self._now.append(self._of_fixture.setdefault((fixturedef.baseid, fixturedef.argname), set()))
        yield
        self._now.pop()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        self._now = [set()]
        began = time.monotonic()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        yield
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        called = self._now[0]
        for each in (one for several in item._fixtureinfo.name2fixturedefs.values() for one in several):
            called = called | self._of_fixture.get((each.baseid, each.argname), set())
        self.calls.seconds[item.nodeid] = time.monotonic() - began
        self.calls.functions[item.nodeid] = called


def room_of(path: Path) -> str:
    """`bench/stats/fits.py` -> `stats`."""
    parts = path.relative_to(PROJECT).with_suffix("").parts
    return parts[1] if parts[0] == "bench" and len(parts) > 2 else parts[0]


def tests_of(path: Path, given: Sequence[str]) -> list[str]:
    """Test files of a module's room."""
    folders = [PROJECT / name for name in given] or [PROJECT / "tests" / room_of(path)]
    files = [
        file for folder in folders for file in ([folder] if folder.is_file() else sorted(folder.rglob("test_*.py")))
    ]
    if not files:
        raise SystemExit(f"no tests in {', '.join(map(str, folders))}; name them with --tests")
    return [str(file.relative_to(PROJECT)) for file in files]


def functions_of(code: CodeType) -> dict[tuple[str, int], CodeType]:
    """The code of every function that the module or a class of it defines, by its name and first line."""
    found = {}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & 2:  # a function has fresh locals; the body of a class has none
                found[inner.co_qualname, inner.co_firstlineno] = inner
            else:
                found |= functions_of(inner)
    return found


def read_on_import(code: CodeType) -> list[object]:
    """What the module does when it is imported: its instructions and values without the functions that it defines."""
    told: list[object] = [code.co_code, code.co_names]
    for inner in code.co_consts:
        if not isinstance(inner, CodeType):
            told.append(repr(inner))
        elif not inner.co_flags & 2:
            told += read_on_import(inner)
    return told


def changed_function(mutant: Mutant) -> tuple[tuple[str, int], CodeType] | None:
    """The function that a mutant changes, and its code; None where it changes what is read on import."""
    name = str(mutant.path)
    before = compile(mutant.path.read_text(), name, "exec", dont_inherit=True)
    after = compile(mutated(mutant), name, "exec", dont_inherit=True)
    if read_on_import(before) != read_on_import(after):
        return None
    old, new = functions_of(before), functions_of(after)
    differing = [key for key in new if key in old and new[key] != old[key]]
    return (differing[0], new[differing[0]]) if len(differing) == 1 else None


def put_in(mutant: Mutant) -> None:
    """Change the module in this process, whether it is loaded or will be."""
    sys.meta_path.insert(0, Finder(mutant))
    changed = changed_function(mutant)
    if changed is None:
        return
    (name, line), code = changed
    gc.unfreeze()
    for each in gc.get_objects():
        if not isinstance(each, FunctionType) or each.__code__.co_filename != str(mutant.path):
            continue
        if (each.__code__.co_qualname, each.__code__.co_firstlineno) == (name, line):
            each.__code__ = code


def in_a_fork(tests: Sequence[str], plugin: First, seconds: float, mutant: Mutant | None = None) -> tuple[str, bytes]:
    """How a run of tests ended, and what its plug-in says: calls that it watched, or the first test that failed."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.close(reading)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        if mutant is not None:
            put_in(mutant)
        code = int(pytest.main(["-x", "-n", "0", "-p", "no:cacheprovider", *tests], plugins=[plugin]))
        said = pickle.dumps(plugin.calls) if isinstance(plugin, Watch) and not code else plugin.name.encode()
        os.write(writing, bytes([code]))
        with open(writing, "wb") as pipe:
            pipe.write(said)
        os._exit(code)
    os.close(writing)
    ready = select.select([reading], [], [], seconds)[0]
    with open(reading, "rb") as pipe:
        said = pipe.read() if ready else b""
    if not ready:
        with contextlib.suppress(OSError):
            os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not ready:
        return ENDLESS, b""
    return {0: SURVIVED, NO_TESTS: UNKNOWN}.get(code, KILLED), said[1:] or f"pytest ended with {code}".encode()


def calling_tests(mutant: Mutant, calls: Calls) -> list[str]:
    """The tests that call the function that a mutant changes; none for what is read on import."""
    changed = changed_function(mutant)
    return calls.tests_of((str(mutant.path), changed[0][1])) if changed else []


def calls_of(tests: Sequence[str], path: Path, seconds: float) -> Calls | None:
    """What the tests of a room call; None where they do not pass as it is."""
    outcome, said = in_a_fork(tests, Watch(PROJECT.joinpath(*path.relative_to(PROJECT).parts[:2])), seconds)
    if outcome != SURVIVED:
        print(f"The tests do not pass without a change ({outcome}, {said.decode()}): nothing can be said.", flush=True)
        return None
    return pickle.loads(said)


def killed_first(asked: Sequence[tuple[Mutant, Calls]], seconds: float, *, last: bool) -> dict[Mutant, str]:
    """How mutants end that end by the tests that call them. One fork collects these tests; forks of it try a mutant
    each."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        every = sorted({test.partition("::")[0] for mutant, calls in asked for test in calling_tests(mutant, calls)})
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            pytest.main(["--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", *every])
        os.environ.pop("VIT_BENCH_CACHE", None)  # its folder went with that run: each fork makes one of its own
        ended = {}
        for mutant, calls in asked:
            outcome = told(mutant, calling_tests(mutant, calls), calls, seconds, last=last)
            if outcome != SURVIVED or last:
                ended[mutant] = outcome
        with open(writing, "wb") as pipe:
            pipe.write(pickle.dumps(ended))
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        ended = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    return ended


def told(mutant: Mutant, tests: Sequence[str], calls: Calls, seconds: float, *, last: bool = False) -> str:
    """How a mutant ends, printed unless other tests try it too."""
    began = time.monotonic()
    outcome, said = in_a_fork(tests, First(calls.seconds), seconds, mutant)
    if outcome != SURVIVED or last:
        by = f" by {Path(said.decode()).name}" if outcome == KILLED else ""
        print(f"{outcome}{by} ({time.monotonic() - began:.0f} s): {mutant.name}", flush=True)
    return outcome


def chosen(paths: Sequence[Path], *, number: int, seed: int, line: int | None, sample: int | None) -> Iterator[Mutant]:
    """Mutants at random: as many of every module, or a sample of all."""
    draws = random.Random(seed)
    if sample is not None:
        every = [mutant for path in paths for mutant in mutants(path)]
        yield from draws.sample(every, min(sample, len(every)))
        return
    for path in paths:
        every = [mutant for mutant in mutants(path) if line is None or mutant.line == line]
        yield from draws.sample(every, min(number, len(every)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", type=Path, help="files or folders")
    parser.add_argument("--number", type=int, default=5, help="mutants of each file (default: 5)")
    parser.add_argument("--sample", type=int, help="so many mutants of all files together, instead")
    parser.add_argument("--files", type=int, help="so many files at random of those that are named (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--line", type=int, help="all mutants of this line only")
    parser.add_argument("--tests", nargs="+", default=[], help="test files or folders (default: tests/ROOM)")
    parser.add_argument("--quick", action="store_true", help="leave out the room's other tests, which seldom kill more")
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
    number = options.number if options.line is None else sys.maxsize
    drawn = list(chosen(paths, number=number, seed=options.seed, line=options.line, sample=options.sample))
    tests = {room_of(mutant.path): tests_of(mutant.path, options.tests) for mutant in drawn}
    paths_of = {room_of(mutant.path): mutant.path for mutant in drawn}
    calls = {
        room: known
        for room, path in paths_of.items()
        if (known := calls_of(tests[room], path, options.seconds)) is not None
    }
    asked = [(mutant, calls[room]) for mutant in drawn if (room := room_of(mutant.path)) in calls]
    first = [(mutant, known) for mutant, known in asked if calling_tests(mutant, known)]
    ended = killed_first(first, options.seconds, last=options.quick) if first else {}
    counts.update(ended.values())
    for mutant, known in asked:
        if mutant not in ended:
            counts[told(mutant, tests[room_of(mutant.path)], known, options.seconds, last=True)] += 1
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()) or "nothing was tried")
    judged = counts[KILLED] + counts[SURVIVED]
    if judged:
        print(f"{counts[KILLED]} of {judged} killed: {counts[KILLED] / judged:.0%}")
    return 0 if judged else 1


if __name__ == "__main__":
    sys.exit(main())
