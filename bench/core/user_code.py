"""Standard output is for answers: what a user's file prints goes to standard error instead."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def prints_aside() -> Iterator[None]:
    """Inside, prints go to standard error. In the main thread only: others would divert what it answers meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with contextlib.redirect_stdout(sys.stderr):
        yield


@contextlib.contextmanager
def answers_only() -> Iterator[TextIO]:
    """Yield standard output; inside, all others write to standard error: prints, programs that are started, and C."""
    try:
        number, errors = sys.stdout.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):  # no files, as in a notebook
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
