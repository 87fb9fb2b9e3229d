"""Redirection of prints: standard output is kept for answers, and what a user's code prints goes to standard error."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def prints_aside() -> Iterator[None]:
    """Send prints inside the block to standard error. Outside the main thread this does nothing, because it would also
    redirect what the main thread prints meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with contextlib.redirect_stdout(sys.stderr):
        yield


@contextlib.contextmanager
def answers_only() -> Iterator[TextIO]:
    """Yield standard output as a file to write answers to; all other output inside the block (prints, child processes,
    C code) goes to standard error."""
    try:
        number, errors = sys.stdout.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):  # standard output is not a file, as in a notebook
        answers = sys.stdout
        with contextlib.redirect_stdout(sys.stderr):
            yield answers
        return
    sys.stdout.flush()
    with open(os.dup(number), "w", encoding="utf-8") as answers, contextlib.redirect_stdout(sys.stderr):
        os.dup2(errors, number)
        try:
            yield answers
        finally:
            answers.flush()
            os.dup2(answers.fileno(), number)
