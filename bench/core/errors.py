"""Errors that a user can act on, and the one place where they are turned into a message and an exit code."""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bench import stopped_at_start
from bench.core.formatting import printable

_usual_warning = warnings.formatwarning
PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = ("bench", "baselines")  # plug-ins are loaded as modules of these packages
EXIT_OK = 0
EXIT_FAILED = 3  # a cell could not be run; the rest of the study was finished (Python's own exit codes: 1, 2 and 120)
EXIT_FOUND = 4  # the condition of `vit-bench compare --fail-if` holds
EXIT_UNFINISHED = 5  # `vit-bench status --exit-code`: cells are running or not begun
EXIT_USAGE = 2  # a user error: one message states what is wrong
MOST_CHARACTERS, MOST_LINES = 4_000, 100  # a longer message holds names from a file or a script, and is cut
EXIT_INTERRUPTED = 130  # stopped by a signal; the same command continues


class UserError(Exception):
    """An error that the user can fix; its message is shown without a traceback.

    Args:
        what: what is wrong, and where (a name, a path, a value).
        fix: what is allowed, or what to do about it.
    """

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(_shortened(f"{what}\n  {fix}" if fix else what))
        self.what = what
        self.fix = fix


def _shortened(message: str) -> str:
    """Return the message, cut if it has more than `MOST_CHARACTERS` characters: to `MOST_LINES` lines of at most
    `MOST_CHARACTERS` each. It may quote a name from a file, which can be of any length."""
    if len(message) <= MOST_CHARACTERS:
        return message
    lines = message.splitlines()[:MOST_LINES]
    short = (f"{line[:MOST_CHARACTERS]} … ({len(line):,} characters)" for line in lines)
    return "\n".join(line if len(line) <= MOST_CHARACTERS else cut for line, cut in zip(lines, short, strict=True))


class ProcessKilled(UserError):
    """Raised when a process was killed: by the kernel because memory was short, or by a fault in native code."""


class Interrupted(Exception):
    """Raised when a signal stopped the run, after its state was saved."""


LIKENESS = 0.4  # least similarity of a suggested name, in [0, 1], as difflib measures it


def nearest(name: str, allowed: Iterable[str], *, cutoff: float = LIKENESS) -> list[str]:
    """Return the (at most three) allowed names that are most similar to `name`, ignoring case, the most similar first.
    `cutoff`: least similarity, in [0, 1], as difflib measures it."""
    by_lower = {option.lower(): option for option in allowed}
    close = difflib.get_close_matches(name.lower(), by_lower, cutoff=cutoff)
    return [by_lower[key] for key in close]


def unknown(kind: str, name: str, allowed: Iterable[str], *, meant: str = "", cutoff: float = LIKENESS) -> UserError:
    """Return the error for an unknown name. Its message suggests a name and lists the allowed names.

    Args:
        kind: what is named, such as "model".
        meant: the name to suggest; "": suggest the names that `nearest` returns.
        cutoff: least similarity of those names, in [0, 1]; choose a high one where similar words mean different things.
    """
    options = sorted(set(allowed))
    close = [meant] if meant else nearest(name, options, cutoff=cutoff)
    hint = f"Did you mean {' or '.join(repr(c) for c in close)}? " if close else ""
    shown = ", ".join(options[:40]) + (", …" if len(options) > 40 else ".")
    return UserError(f"Unknown {kind} {name!r}.", f"{hint}Known: {shown}")


def _forget_closed_output() -> None:
    """Discard buffered output if standard output was closed; otherwise Python reports an error at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def one_class(name: object, *, of: str = "images", fix: str = "") -> UserError:
    """Return the error for a data set whose examples are all of one class.

    Args:
        name: the data set.
        of: what the examples are, in the plural.
        fix: what the user can do; "": give folders of images for at least two classes.
    """
    return UserError(
        f"{name} has {of} of one class only: there is nothing to classify.",
        fix or "Give a folder of images for each of two classes or more.",
    )


def several_labels(name: object, *, for_what: str) -> UserError:
    """Return the error for the data set `name`, whose images have several labels each, where one label is needed.
    `for_what`: what needs one label, such as "the task knn"."""
    return UserError(
        f"{name} has images of several labels, and {for_what} decides on one.",
        "Take what decides on each label: --suite adapt, or --tasks adapt, linear, knn or finetune; or name the column "
        "of one label: --label-columns label=COLUMN.",
    )


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt inside the block, like Ctrl-C. Meant for work that has no state to save."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def command(main: Callable[[list[str] | None], int]) -> Callable[..., int]:
    """Wrap the `main` of a command, which takes the words of the command line (None: those of sys.argv) and returns an
    exit code. A user's mistake, a file that may not be read, or an exception in a plug-in becomes one message on stderr
    and exit code 2 instead of a traceback."""

    @functools.wraps(main)
    def guarded(argv: list[str] | None = None) -> int:
        warnings.formatwarning = _one_sentence
        if signal.getsignal(signal.SIGINT) is stopped_at_start:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        for stream in (sys.stdout, sys.stderr):
            if "utf" not in (getattr(stream, "encoding", "") or "utf").lower():  # a terminal that has no "…"
                stream.reconfigure(errors="replace")  # type: ignore[union-attr]
        try:
            with _only_answers() if "--json" in (sys.argv if argv is None else argv) else contextlib.nullcontext():
                code = main(argv)
                sys.stdout.flush()
            return code
        except (Interrupted, KeyboardInterrupt) as stop:
            _forget_closed_output()
            with contextlib.suppress(OSError):
                saved = isinstance(stop, Interrupted)  # KeyboardInterrupt: nothing that saves its state was running
                advice = f": {stop}. Run the same command to continue." if saved else " before it was done."
                print(f"stopped{advice}", file=sys.stderr)
            return EXIT_INTERRUPTED
        except BrokenPipeError:
            _forget_closed_output()
            return EXIT_OK
        except BaseException as error:
            if (told := explained(error)) is None:
                raise
            print(printable(f"error: {told}"), file=sys.stderr)
            return EXIT_USAGE

    return guarded


@contextlib.contextmanager
def _only_answers() -> Iterator[None]:
    """Reserve standard output for the prints of this process's Python code inside the block. What native libraries and
    child processes write to file descriptor 1 goes to standard error."""
    number = -1
    with contextlib.suppress(OSError, ValueError):  # standard output is not a file, as in a test
        number = sys.stdout.fileno()
    if number != 1:  # also when another command has redirected it already
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    with open(kept, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors) as answers:
        os.dup2(2, 1)
        try:
            with contextlib.redirect_stdout(answers):
                yield
        finally:
            with contextlib.suppress(BrokenPipeError):
                answers.flush()
            os.dup2(kept, 1)


def _one_sentence(message: Warning | str, category: type[Warning], filename: str, *place: Any, **line: Any) -> str:
    """Return the text of a warning: a warning of this project as one sentence without the line of code, any other
    warning as Python formats it."""
    if category is UserWarning and Path(filename).is_relative_to(PROJECT / "bench"):
        return f"warning: {printable(str(message))}\n"
    return _usual_warning(message, category, filename, *place, **line)


def at_a_limit(text: str) -> UserError | None:
    """Return the error to show if `text`, an exception's text or the last line of a log, says that a limit on memory or
    on the number of processes was reached; None for other texts."""
    if any(part in text for part in ("failed to map segment", "Cannot allocate memory", "MemoryError")):
        what, fix = (
            "There is not enough memory",
            "Close other programs, use fewer --jobs, or raise ulimit -v.",
        )
    elif any(part in text for part in ("can't start new thread", "Resource temporarily unavailable")):
        what, fix = "No further process or thread may be started", "Use fewer --jobs, or raise ulimit -u."
    else:
        return None
    return UserError(f"{what}: {text.strip()}", fix)


def explained(error: BaseException) -> UserError | None:
    """Return the error to show to the user for an exception; None if the exception is a defect of this project."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, OSError | MemoryError | ImportError | RuntimeError) and (
        limit := at_a_limit(f"{type(error).__name__}: {error}")
    ):
        return limit
    if isinstance(error, PermissionError):  # for example another user's folder
        where = f"{error.filename}" if error.filename else str(error)
        return UserError(f"No permission to use {where}.", "Ask its owner, or name another folder.")
    if (place := plugin_line(error)) is None:
        return _not_installed(error)
    reason = f"{type(error).__name__}: {error}".rstrip(": ")
    return UserError(
        f"The plug-in {place}, failed: {reason}.",
        "Fix it or move it away. vit-bench check names what a plug-in must have.",
    )


def _not_installed(error: BaseException) -> UserError | None:
    """Return the error to show if `error` is the failed import of a package that is not installed, for example torch,
    which may be left out on purpose (docs/install.md). Return None for other exceptions, and for a missing module of
    this project."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package in ("", "vit", *PACKAGES):
        return None
    return UserError(
        f"This needs {package}, which is not installed.",
        f"pip install {package}. Without torch: published, data, status, compare, fit, flops --list, report, and "
        "plan --hardware of the paper's own studies.",
    )


def plugin_line(error: BaseException) -> str | None:
    """Return the innermost line of a plug-in in an error's traceback, such as "my/suites/one.py, line 3"; None if the
    traceback has no line of a plug-in. A plug-in is a module of one of `PACKAGES` whose file lies outside the folder of
    that package."""
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        package, file = str(frame.f_globals.get("__name__")).partition(".")[0], Path(frame.f_code.co_filename)
        if package in PACKAGES and file.is_absolute() and not file.is_relative_to(PROJECT / package):
            place = f"{file}, line {line}"
    return place
